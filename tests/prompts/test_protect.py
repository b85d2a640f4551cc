"""Protected syntax: out of the model's sight, back byte for byte, exactly once."""

from __future__ import annotations

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
    "1.2::red car::": "weight",
    "<cat-toy>": "token",
    "<random:a, b>": "variant",
    "‹oui›": "quote",
    "'no entry'": "quote",
    "{cat|dog}s": "variant",
    "rem \\(re zero\\)": "escape",
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


def test_the_stressed_one_of_two_equal_phrases_stays_the_stressed_one() -> None:
    guarded = protect("a cat beside a (cat:1.2)")
    assert guarded.restore(["a fat cat beside a thin cat"]) == "a fat cat beside a thin (cat:1.2)"
    assert guarded.restore(["a fat cat"]) == "a fat (cat:1.2)"


def test_phrases_of_scripts_without_blanks_are_found() -> None:
    guarded = protect("一只(红色的狐狸:1.2)在雪地里")
    assert guarded.restore(["雪地里有一只红色的狐狸在跑"]) == "雪地里有一只(红色的狐狸:1.2)在跑"
    assert protect("一只{红|蓝}鸟").restore(["两棵树上的ITEM1鸟"]) == "两棵树上的{红|蓝}鸟"


def test_letters_that_touch_an_item_go_with_it() -> None:
    guarded = protect("two {cat|dog}s and a un{lit|wound} candle, {a|b}{c|d}")
    assert [s.text for s in guarded.spans] == ["{cat|dog}s", "un{lit|wound}", "{a|b}{c|d}"]
    assert guarded.sources == ("two ITEM1 and a ITEM2 candle, ITEM3",)


def test_neighbours_are_shown_apart() -> None:
    guarded = protect("(red:1.2){a|b}(car:1.1)<lora:x:1>ITEM5")
    assert guarded.sources == ("red ITEMX1 car ITEM5",)
    assert guarded.restore(["red ITEMX1 car ITEM5 there"]) == (
        "(red:1.2) {a|b} (car:1.1) ITEM5 there <lora:x:1>"
    )


@pytest.mark.parametrize(
    ("prompt", "source"),
    [
        ("a cat <lora:x:1>, a dog", "a cat, a dog"),
        ("a cat, <lora:x:1>, a dog", "a cat, a dog"),
        ("a cat,<lora:x:1>,a dog", "a cat, a dog"),
        ("a cat <lora:x:1> <lora:y:1> .", "a cat."),
        ("<lora:x:1>, <lora:y:1>,\na cat", "a cat"),
        ("a cat,\n<lora:x:1>\na dog", "a cat,\n\na dog"),
        ("a cat<lora:x:1>a dog", "a cat a dog"),
        ("(embedding:x:1.2), a cat", "a cat"),
    ],
)
def test_gaps_that_tags_leave_close_up(prompt: str, source: str) -> None:
    assert protect(prompt).sources == (source,)


def test_a_negative_part_comes_back_in_its_place() -> None:
    tail = "\nNegative prompt: (bad hands:1.3), {a|b}\nSteps: 20, Sampler: Euler a, Seed: 1"
    guarded = protect(f"a cat <lora:x:1>{tail}")
    assert guarded.sources == ("a cat",)
    assert guarded.restore(["a fat cat"]) == f"a fat cat <lora:x:1>{tail}"
    flags = protect("a beach --no people, (boats:1.2) --ar 16:9")
    assert flags.sources == ("a beach",)
    assert flags.restore(["a wide beach"]) == "a wide beach --no people, (boats:1.2) --ar 16:9"


def test_what_has_a_negative_weight_is_not_told_to_the_model() -> None:
    guarded = protect("a bee, (blur:-0.5), on a (red (petal:-1) flower:1.1) -1::fog::")
    assert guarded.sources == ("a bee, on a red flower",)
    text = guarded.restore(["a fat bee on a red flower"])
    assert text == "a fat bee on a (red (petal:-1) flower:1.1), (blur:-0.5) -1::fog::"
    parts = protect("a vase:: flowers::-0.5 a table")
    assert parts.sources == ("a vase", "a table")
    assert parts.restore(["a tall vase", "a table"]) == "a tall vase:: flowers::-0.5 a table"
    both = protect("a cat AND a dog :-0.6")
    assert both.sources == ("a cat",)
    assert both.restore(["a fat cat"]) == "a fat cat AND a dog :-0.6"


def test_midjourney_reads_no_weights_in_parentheses() -> None:
    assert protect("hot::2 dog").restore(["hot (red)", "dog"]) == "hot (red)::2 dog"


def test_a_conjunction_keeps_its_weights() -> None:
    guarded = protect("a cat :1.2 AND a dog :0.8")
    assert guarded.sources == ("a cat", "a dog")
    assert guarded.restore(["a fat cat", "a big dog"]) == "a fat cat :1.2 AND a big dog :0.8"


def test_a_picture_to_start_from_is_a_tag_and_an_address_in_the_text_is_not() -> None:
    first, second = protect("https://a.b/c.png a fox"), protect("a sign of www.a.b, night")
    assert first.sources == ("a fox",)
    assert first.restore(["a red fox"]) == "https://a.b/c.png a red fox"
    assert second.sources == ("a sign of ITEM1, night",)


def test_quoted_text_inside_a_weight_is_hidden_too() -> None:
    guarded = protect('a (sign that says "OPEN":1.2) at night')
    assert guarded.sources == ('a sign that says "TEXT1" at night',)
    text = guarded.restore(['a small sign that says "TEXT1" at late night'])
    assert text == 'a small (sign that says "OPEN":1.2) at late night'
    assert guarded.broken(guarded.restore(['a sign "TEXT1"'])) == ["TEXT1"]
    assert protect('("OPEN":1.2) on a door').sources == ("ITEM1 on a door",)


# QwenLM/Qwen-Image#161
@pytest.mark.parametrize("marks", ['""', "''", "“”", "„“", "„”", "«»", "»«", "‹›", "「」", "『』"])
def test_quoted_text_is_verbatim_in_any_marks(marks: str) -> None:
    quote = f"{marks[0]}Zażółć {{gęślą}} (jaźń)!{marks[1]}"
    guarded = protect(f"a sign {quote} on a wall")
    assert guarded.sources == ('a sign "TEXT1" on a wall',)
    for said in ('"TEXT1"', "“TEXT1”", "TEXT1", "'text1'"):
        text = guarded.restore([f"an old sign {said} on a wall"])
        assert text == f"an old sign {quote} on a wall"
    assert guarded.restore(['a wall with "TEXT1," in red']) == f"a wall with {quote}, in red"


def test_a_name_that_stands_for_nothing_is_seen() -> None:
    assert protect("a cat").broken("a cat and ITEM1") == ["ITEM1"]
    assert protect("a cat").broken("a cat and 'text2'") == ["text2"]
    assert protect("a cat").broken('a cat by "Text 2"') == ["Text 2"]
    assert protect("ITEM1, text 2").broken("a fat ITEM1, text 2") == []


def test_a_mark_leaves_with_what_it_marked() -> None:
    guarded = protect("best, <rewrite:a cat AND a dog>, 8k")
    assert guarded.unmarked == "best, a cat AND a dog, 8k"
    assert guarded.sources == ("a cat", "a dog")
    assert guarded.restore(["a fat cat", "a dog"]) == "best, a fat cat AND a dog, 8k"
    assert guarded.restore(guarded.sources) == guarded.original


@pytest.mark.parametrize("prompt", ['"OPEN"', "{a|b}", "<lora:x:1>", "Negative prompt: a", "…", ""])
def test_where_nothing_is_to_be_rewritten_there_is_no_region(prompt: str) -> None:
    guarded = protect(prompt)
    assert guarded.sources == () and guarded.restore([]) == prompt


def test_one_answer_for_each_source() -> None:
    with pytest.raises(ValueError, match="1 answers for 2 sources"):
        protect("a BREAK b").restore(["a"])


def test_what_goes_to_the_end_follows_the_punctuation() -> None:
    guarded = protect("a cat, (dramatic:1.2)")
    assert guarded.restore(["A cat."]) == "A cat. (dramatic:1.2)"
    assert guarded.restore(["A cat"]) == "A cat, (dramatic:1.2)"


def test_a_lone_bracket_of_the_user_is_escaped_and_counts_as_no_second_escape() -> None:
    prompt = protect("a cat\\((")
    text = prompt.restore([f"a calm view: {prompt.sources[0]}"])
    assert text.count("\\(") == 2
    assert prompt.broken(text) == []
    assert prompt.broken("a calm view: a cat") != []
