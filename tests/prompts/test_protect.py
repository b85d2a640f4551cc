"""Protected syntax: out of the model's sight, back byte for byte, exactly once."""

from __future__ import annotations

import time

import pytest

from t2x.prompts.protect import protect, syntax

SYNTAX = {
    "<lora:x:0.8>": "network",
    "<lora:my__odd__name-v2.1:1>": "network",
    "<hypernet:film grain:0.3>": "network",
    "embedding:easynegative.pt": "embedding",
    "--ar 16:9": "flag",
    "[cat:dog:0.5]": "schedule",
    "[cat|dog]": "alternation",
    "{red|blue|3$$green}": "variant",
    "__animals/pets__": "wildcard",
    '"OPEN 24/7"': "quote",
    "\u201ezażółć\u201d": "quote",
    "\u300c開店\u300d": "quote",
    "(red car:1.2)": "weight",
    "((masterpiece))": "weight",
    "(a (b:1.3) c:1.1)": "weight",
    "[blurry]": "weight",
}


@pytest.mark.parametrize(("text", "kind"), SYNTAX.items())
@pytest.mark.parametrize("shape", ["{}, a dog on a mat", "a dog {} on a mat", "a dog on a mat {}"])
def test_each_kind_leaves_and_returns_once(text: str, kind: str, shape: str) -> None:
    prompt = shape.format(text)
    guarded = protect(prompt)
    assert [(s.kind, s.text) for s in guarded.spans] == [(kind, text)]
    assert text not in guarded.sources[0]
    assert not set("<>[]{}|_") & set(guarded.sources[0])
    restored = guarded.restore(guarded.sources)
    assert restored.count(text) == 1
    assert guarded.broken(restored) == []


@pytest.mark.parametrize(
    "prompt",
    [
        "a cat <lora:x:0.8>",
        "<lora:a:1> <lora:b:0.5> a cat",
        "a [cat:dog:0.5] on a mat",
        "miku \\(vocaloid\\) dancing, (red car:1.2), ((masterpiece))",
        'a sign "ZAŻÓŁĆ\ngęślą" and a sign "B"',
        "a cat BREAK a dog on a mat <lora:z:1>",
        "a plain prompt with (parentheses), it's 5\" wide <3 and a < b",
        "",
    ],
)
def test_an_unchanged_answer_restores_the_prompt(prompt: str) -> None:
    guarded = protect(prompt)
    assert guarded.restore(guarded.sources) == prompt


def test_double_underscore_in_a_lora_name_is_no_wildcard() -> None:
    # adieyal/sd-dynamic-prompts#685
    guarded = protect("a cat <lora:style__v2__final:0.7> near __place__")
    assert [s.kind for s in guarded.spans] == ["network", "wildcard"]


def test_weights_are_shown_as_words_and_wrapped_again() -> None:
    guarded = protect("a (red car:1.2) in the rain")
    assert guarded.sources == ("a red car in the rain",)
    assert guarded.restore(["a shiny Red Car in heavy rain"]) == (
        "a shiny (red car:1.2) in heavy rain"
    )
    assert guarded.restore(["an automobile in heavy rain"]) == (
        "an automobile in heavy rain, (red car:1.2)"
    )


def test_escaped_parentheses_are_kept_and_written() -> None:
    # willmiao/ComfyUI-Lora-Manager#951
    guarded = protect("foo \\(bar\\) at night")
    assert guarded.sources == ("foo at night",)
    text = guarded.restore(["foo at night, with neon (pink)"])
    assert text == "foo \\(bar\\) at night, with neon \\(pink\\)"


def test_plain_parentheses_stay_plain_without_weights() -> None:
    guarded = protect("foo (bar) at night")
    assert guarded.spans == ()
    assert guarded.restore(["foo (bar) at night with stars"]) == "foo (bar) at night with stars"


def test_a_lost_or_doubled_stand_in_is_seen() -> None:
    guarded = protect("a [cat:dog:0.5] on a mat")
    name = guarded.spans[0].stand_in
    assert guarded.broken(guarded.restore(["a mat"])) == ["[cat:dog:0.5]"]
    assert guarded.broken(guarded.restore([f"{name} and {name}"])) == ["[cat:dog:0.5]"]
    assert guarded.broken(guarded.restore([f"a sleepy {name.lower()} on a mat"])) == []


def test_a_tag_that_the_model_invents_again_is_seen() -> None:
    guarded = protect("a cat <lora:x:0.8>")
    assert guarded.broken(guarded.restore(["a cat <lora:x:0.8>"])) == ["<lora:x:0.8>"]


def test_stand_ins_avoid_the_users_words() -> None:
    guarded = protect('ITEM1 and TEXT2 beside __thing__ and "words"')
    assert guarded.sources[0].count("ITEM1") == 1
    assert guarded.restore(guarded.sources) == guarded.original


def test_only_the_marked_span_is_rewritten() -> None:
    # HartsyAI/SwarmUI-MagicPromptExtension PR#46
    guarded = protect("masterpiece, <rewrite:a cat <lora:y:1> on a mat>, best <lora:q:1>")
    assert guarded.sources == ("a cat on a mat",)
    text = guarded.restore(["a fluffy cat on a mat"])
    assert text == "masterpiece, a fluffy cat on a mat <lora:y:1>, best <lora:q:1>"
    assert guarded.broken(text) == []


def test_break_cuts_regions() -> None:
    guarded = protect("a cat BREAK\na dog")
    assert guarded.sources == ("a cat", "a dog")
    assert guarded.restore(["a fat cat", "a big dog"]) == "a fat cat BREAK\na big dog"
    assert protect('a sign "BREAK" here').sources[0].count("TEXT") == 1


@pytest.mark.parametrize("prompt", ["children's toys don't break", 'a 5" pizza and a 7" plate'])
def test_apostrophes_and_inches_are_no_quotes(prompt: str) -> None:
    assert protect(prompt).spans == ()


def test_what_one_span_holds_is_not_searched_for_the_next() -> None:
    guarded = protect('a "red car" sign and a (red car:1.2)')
    text = guarded.restore(['a "TEXT1" sign beside a red car'])
    assert text == 'a "red car" sign beside a (red car:1.2)'


@pytest.mark.parametrize("piece", ["(", "[", '"', "<a:", "<rewrite:", "\\(", "__a", "--a", "'a "])
def test_hostile_input_is_not_quadratic(piece: str) -> None:
    begin = time.process_time()
    protect(piece * 20_000)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("piece", ["BREAK a ", "<rewrite:a> ", "<l:a> ", "--a ", '"a" ', "{a} "])
def test_many_spans_are_not_quadratic(piece: str) -> None:
    begin = time.process_time()
    guarded = protect(piece * 8000)
    guarded.restore(guarded.sources)
    assert time.process_time() - begin < 2


def test_many_quotes_and_variants_return_to_their_places() -> None:
    prompt = 'a "B" and {c|d}, "e" and {f|g} or (h:1.2)'
    guarded = protect(prompt)
    assert guarded.restore(guarded.sources) == prompt


def test_syntax_is_named_by_kind() -> None:
    assert syntax('a (cat:1.2) "x" \\(y\\) --no dog') == {"weight": "(cat:1.2)", "flag": "--no dog"}
    assert syntax("a plain (cat), well-lit") == {}


def test_a_weighted_phrase_without_a_place_is_named() -> None:
    guarded = protect("(cat:1.2) and (Cat:1.3) and (dog:1.1)")
    assert [s.text for s in guarded.unplaced("a cat and a dog")] == ["(Cat:1.3)"]
