"""Noun phrases with number and colours, and the relations between them."""

from __future__ import annotations

import pytest

from t2x.prompts.grammar import ENGLISH
from t2x.prompts.grammars import GERMAN, SPANISH
from t2x.prompts.numerals import chinese_value
from t2x.prompts.phrases import read
from t2x.prompts.relations import relations


@pytest.mark.parametrize(
    ("text", "phrases"),
    [
        ("three fluffy cats sleeping on a red sofa", [("cat", 3, ""), ("sofa", 1, "red")]),
        ("a pair of swans", [("swan", 2, "")]),
        ("two dozen roses", [("rose", 24, "")]),
        ("a dog chases a crimson ball", [("dog", 1, ""), ("ball", 1, "crimson")]),
        ("a red and white striped shirt", [("shirt", 1, "red white")]),
        ("a car painted bright red", [("car", 1, "red")]),
        ("a green door and a blue one", [("door", 1, "green"), ("door", 1, "blue")]),
        ("a three-legged stool", [("leg", 3, ""), ("stool", 1, "")]),
        ("a raven on a rose", [("raven", 1, ""), ("rose", 1, "")]),
        ("a hat the colour of ripe lemons", [("hat", 1, "lemon-coloured")]),
        ('a sign "two red cats"', [("sign", 1, "")]),
    ],
)
def test_english(text: str, phrases: list[tuple[str, int, str]]) -> None:
    found = [
        (p.head, p.number[0] if p.number else None, " ".join(w for w, _ in p.colours))
        for p in read(text, ENGLISH).phrases
        if p.head
    ]
    assert found == phrases


@pytest.mark.parametrize(
    ("grammar", "text", "number", "colour"),
    [
        (GERMAN, "drei rote Katzen", 3, "rote"),
        (GERMAN, "einundzwanzig Hunde", 21, ""),
        (SPANISH, "dos coches rojos", 2, "rojos"),
        (SPANISH, "treinta y cinco rosas blancas", 35, "blancas"),
    ],
)
def test_other_languages(grammar, text: str, number: int, colour: str) -> None:
    (phrase,) = (p for p in read(text, grammar).phrases if p.head)
    assert phrase.number == (number, number)
    assert " ".join(w for w, _ in phrase.colours) == colour


@pytest.mark.parametrize(
    ("numeral", "value"),
    [
        ("3", 3),
        ("三", 3),
        ("十", 10),
        ("十二", 12),
        ("二十三", 23),
        ("一百零五", 105),
        ("两千", 2000),
    ],
)
def test_chinese_numerals(numeral: str, value: int) -> None:
    assert chinese_value(numeral) == value


@pytest.mark.parametrize(
    ("text", "name", "thing", "to"),
    [
        ("a cat to the left of a dog", "left", "cat", "dog"),
        ("a table, and under it a ball", "below", "ball", "table"),
        ("Behind the house rises a hill", "behind", "hill", "house"),
        ("a table topped with a vase", "on", "vase", "table"),
        ("a jar with a beetle inside", "in", "beetle", "jar"),
        ("a goose chased by a dog", "does chas", "dog", "goose"),
        ("to the dog's left a cat", "left", "cat", "dog"),
    ],
)
def test_relations(text: str, name: str, thing: str, to: str) -> None:
    found = relations(read(text, ENGLISH))
    assert any(
        r.name == name and thing in [p.head for p in r.things] and to in [p.head for p in r.to]
        for r in found
    ), found


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("lilies pale as milk", "lily"),
        ("a vase glazed a deep white", "vase"),
        ("a robot; its casing glows white", "robot"),
        ("a lighthouse: chalk-white walls", "lighthouse"),
        ("an evening dress in white silk, gold pins", "dress"),
    ],
)
def test_a_colour_told_apart_from_its_thing(text: str, head: str) -> None:
    (thing,) = (p for p in read(text, ENGLISH).phrases if p.head == head)
    assert any("white" in families for _, families in thing.colours)


def test_a_colour_of_another_thing_is_not_shared() -> None:
    phrases = read("a kitten in a basket of white cotton", ENGLISH).phrases
    (kitten,) = (p for p in phrases if p.head == "kitten")
    assert kitten.colours == ()
