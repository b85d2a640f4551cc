"""Clauses: cutting and joining, and operators whose outcome is known."""

from __future__ import annotations

import random
import re

import pytest

from t2x.search.clauses import (
    TRIMMINGS,
    Clauses,
    add_trimming,
    cross,
    differential,
    drop,
    front,
    is_trimming,
    repeat,
    shuffle,
    swap_trimmings,
)
from t2x.world.captions import STYLES, caption
from t2x.world.prompts import validation_prompts

LAYOUT = "two objects. left: a red cat. right: a dog."
TAGS = "red cat, dog, high quality, sharp"
ASKED = frozenset({"red", "cat", "dog"})


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        (LAYOUT, ["two objects", "left: a red cat", "right: a dog"]),
        (TAGS, ["red cat", "dog", "high quality", "sharp"]),
        ("one clause", ["one clause"]),
        (
            "Mr. Bean by St. Mark's, 1.5 m tall. e.g. v2.0",
            ["Mr. Bean by St. Mark's", "1.5 m tall", "e.g. v2.0"],
        ),
        ("a sign (red, blue, old), night", ["a sign (red, blue, old)", "night"]),
        ("1,000 birds; a lake", ["1,000 birds", "a lake"]),
        ("一只猫，高质量。", ["一只猫", "高质量"]),
        ("", []),
        ("a) red cat, b) dog. sharp", ["a) red cat", "b) dog", "sharp"]),
        ("a cat :), a dog, night", ["a cat :)", "a dog", "night"]),
        ("a sad cat :( , a dog, night", ["a sad cat :(", "a dog", "night"]),
        ("a street in Rome. A dog sleeps.", ["a street in Rome", "A dog sleeps"]),
        ("a cat, 1. a dog", ["a cat", "1. a dog"]),
    ],
)
def test_a_text_is_cut_where_clauses_end(text: str, clauses: list[str]) -> None:
    cut = Clauses.of(text)
    assert list(cut.clauses) == clauses
    assert str(cut) == text.strip()


def test_captions_of_the_emoji_world_are_cut_at_each_mark_before_a_blank() -> None:
    prompts = validation_prompts(150, 3)
    texts = [p.text for p in prompts]
    texts += [caption(p.scene, style, i) for i, p in enumerate(prompts) for style in STYLES]
    assert len(texts) > 300
    for text in texts:
        pieces = re.split(r"([,;.!?](?:\s+|$))", text)
        cut = Clauses.of(text)
        assert list(cut.clauses) == [c for c in pieces[::2] if c], text
        assert list(cut.marks) == [*pieces[1::2], ""][: len(cut)], text


def test_any_text_is_put_together_again() -> None:
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(rng.choice("ab .,;()[]!?3\u3002") for _ in range(rng.randrange(40)))
        assert str(Clauses.of(text)) == text.strip(), text


def test_other_clauses_take_the_marks_of_the_text() -> None:
    assert Clauses.of(LAYOUT).with_clauses(["right: a dog", "two objects"]) == (
        "right: a dog. two objects."
    )
    assert Clauses.of(TAGS).with_clauses(["dog", "", "cat"]) == "dog, cat"
    assert Clauses.of("alone").with_clauses(["alone", "more"]) == "alone, more"


def test_trimmings_say_nothing_of_what_was_asked() -> None:
    assert is_trimming("high quality", ASKED)
    assert not is_trimming("two cats", frozenset({"cat"}))


def test_drop_leaves_one_clause_out() -> None:
    rests = {drop(TAGS, random.Random(s)) for s in range(40)}
    assert rests == {
        "dog, high quality, sharp",
        "red cat, high quality, sharp",
        "red cat, dog, sharp",
        "red cat, dog, high quality",
    }
    assert drop("alone", random.Random(0)) == "alone"


def test_shuffle_swaps_two_clauses() -> None:
    for s in range(10):
        before, after = (
            Clauses.of(TAGS).clauses,
            Clauses.of(shuffle(TAGS, random.Random(s))).clauses,
        )
        assert sorted(before) == sorted(after)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 2
    assert shuffle("alone", random.Random(0)) == "alone"


def test_front_brings_what_is_meant_to_the_front_and_keeps_the_order_of_the_rest() -> None:
    assert front("sharp, dog, red cat", frozenset({"cat"})) == "red cat, sharp, dog"
    assert front(TAGS, frozenset({"zebra"})) == TAGS


def test_repeat_and_add_trimming_add_nothing_twice() -> None:
    assert repeat("red cat, dog", "red cat") == "red cat, dog, red cat"
    assert repeat("dog, red cat", "red cat") == "dog, red cat"
    assert add_trimming("a cat.", "high quality") == "a cat, high quality"
    assert add_trimming("a cat, High quality", "high quality") == "a cat, High quality"


def test_crossover_takes_a_head_and_a_tail_and_nothing_twice() -> None:
    a, b = Clauses.of(LAYOUT).clauses, Clauses.of(TAGS).clauses
    for s in range(30):
        child = Clauses.of(cross(LAYOUT, TAGS, random.Random(s))).clauses
        heads = [c for c in child if c in a]
        tails = [c for c in child if c in b]
        assert child == (*heads, *tails) and len(set(child)) == len(child)
        assert heads == list(a[: len(heads)]) and tails == list(b[len(b) - len(tails) :])
        assert heads and tails


def test_style_swap_keeps_the_body() -> None:
    assert swap_trimmings("red cat, dog, old photo", TAGS, ASKED) == (
        "red cat, dog, high quality, sharp"
    )
    assert swap_trimmings("old photo", TAGS, ASKED) == "old photo"


def test_differential_puts_the_difference_of_the_donors_into_the_best() -> None:
    donors = ("red cat, by a lake", "red cat")
    found = {
        differential("dog", "dog, red cat", donors, frozenset({"lake"}), random.Random(s))
        for s in range(60)
    }
    assert any("by a lake" in text for text in found)  # body: it stays as it is
    trimmed = {
        differential("dog", "dog, red cat", donors, ASKED, random.Random(s)) for s in range(60)
    }
    assert not any("by a lake" in text for text in trimmed)  # a trimming: another comes
    assert any(t in text for t in TRIMMINGS for text in trimmed)


def test_operators_are_deterministic() -> None:
    for operate in (drop, shuffle):
        assert operate(TAGS, random.Random(3)) == operate(TAGS, random.Random(3))
