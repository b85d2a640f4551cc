"""What each piece of syntax becomes: words, weights, instructions, notes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t2x.prompts.protect import syntax
from t2x.prompts.reading import read_prompt


@pytest.mark.parametrize(
    "text",
    [
        "a red cat",
        "",
        "a photo (black and white), of a cat: 3:4 – 50%",
        'a sign that says "open [now] (really:1.5)" and nothing else',
        "see https://example.org/a_(b)?q=[1]",
        "a <cat-toy> on a mat",
        "  two dogs, \n and a bus,",
    ],
)
def test_text_without_syntax_comes_back_to_the_byte(text):
    read = read_prompt(text)
    assert read.segments == (((text, 1.0),),) and not read.notes and not read.networks


@pytest.mark.parametrize(
    ("text", "said", "weights"),
    [
        ("a (red hat:1.3) on", "a red hat on", {"red hat": 1.3}),
        ("((x)) and (y)", "x and y", {"x": 1.21, "y": 1.1}),
        ("[x] y", "x y", {"x": 0.909091}),
        ("(a (b:2):0.5), c", "a b, c", {"a": 0.5}),  # 2 * 0.5 = 1
        ("(cat:1.2)s", "cats", {"cat": 1.2}),
        ("1.2::red hat:: x", "red hat x", {"red hat": 1.2}),
        (r"miku \(vocaloid\), (x:2)", "miku (vocaloid), x", {"x": 2.0}),
        ("(bad:-1), (gone:0) (ok:1.5)", "ok", {"ok": 1.5}),
        ("(x:99)", "x", {"x": 10.0}),
        ("(" * 4000 + "x" + ")" * 4000, "x", {"x": 10.0}),
        ("(\u732b:1.2) \U0001f408", "\u732b \U0001f408", {"\u732b": 1.2}),
        ("<rewrite:a (b:1.2)> c", "a b c", {"b": 1.2}),
        ("[note: a b]", "note: a b", {"note: a b": 0.909091}),
    ],
)
def test_weights(text, said, weights):
    read = read_prompt(text)
    assert read.text == said and dict(read.weights) == weights
    assert "".join(t for segment in read.segments for t, _ in segment) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a:b:0.5] c", "a c"),
        ("[d:0.4] c", "d c"),
        ("[e::3] c", "e c"),
        ("[:f:0.1] c", "f c"),
        ("[a|b|c] d", "a d"),
        ("{2$$red|blue} dog", "red dog"),
        ("{0.3::red|0.7::blue} dog", "red dog"),
        ("<random:red, blue> hat", "red hat"),
        ("an __colors/warm_tone*__ hat", "an warm tone hat"),
        ("<wildcard:animals/dog> x", "dog x"),
        ("a cat AND a dog", "a cat, a dog"),
        ("a::2 b::1", "a, b"),
        ("a BREAK b", "a, b"),
        ("a cat --ar 16:9", "a cat"),
        ("a <hypernet:x:1> cat", "a cat"),
        ("${a=b} cat", "cat"),
        ("a cat\nSteps: 20, Sampler: Euler", "a cat"),
    ],
)
def test_what_a_generator_can_not_do_is_decided_and_told(text, said):
    read = read_prompt(text)
    assert read.text == said
    if "BREAK" in text:
        assert len(read.segments) == 2 and not read.notes
    else:
        assert len(read.notes) == text.count("::2") + 1
        for note in read.notes:
            assert note.became in ("removed", "replaced") and note.syntax in text and note.why


def test_loras_negatives_and_embeddings_stand_beside_the_words():
    text = "a <lora:neon:0.8> cat <lora:x:te=0.5:unet=1>, embedding:easy embedding:none"
    read = read_prompt(f"{text} --no dogs\nNegative prompt: (bad:1.2)", tokens={"<easy>"})
    assert read.text == "a cat, <easy>" and read.negative == "dogs, (bad:1.2)"
    assert [(name, scale) for _, name, scale in read.networks] == [("neon", 0.8), ("x", 0.5)]
    assert [(n.syntax, n.became) for n in read.notes] == [
        ("embedding:easy", "applied"),
        ("embedding:none", "removed"),
    ]
    assert read_prompt("<lora:a:much> b").notes[0].why == "'much' is no scale; give a number"
    assert read_prompt("[<lora:x:1>::0.5] dog").networks == (("<lora:x:1>", "x", 1.0),)


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32))
def test_any_text_is_read_and_what_is_said_has_no_weights(seed):
    rng = random.Random(seed)
    signs = '( ) [ ] { } : | \\( \\) :1.3) <lora:a:1> BREAK AND __x__ " , . red cat -1) 0.5] --no'
    text = " ".join(rng.choices(signs.split(), k=rng.randrange(1, 30)))
    text = text.replace(" ", "") if rng.random() < 0.5 else text
    read = read_prompt(text)
    for segment in read.segments:
        assert all(piece and 0 < weight <= 10 for piece, weight in segment) or segment == (
            ("", 1.0),
        )
    if not syntax(text) and "\\" not in text:
        assert read.text == text
    if "\\" not in text and '"' not in text:  # what is escaped or quoted is text
        assert "<lora" not in read.text
