"""Constraints that are read from a prompt."""

from __future__ import annotations

import pytest

from t2x.prompts.constraints import (
    content_words,
    extract,
    mentions,
    negated,
    numbers,
    script,
    stem,
    without_idioms,
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("two cats", (2,)),
        ("2 cats and a dozen eggs", (2, 12)),
        ("half a dozen eggs", (6,)),
        ("a pair of dogs", (2,)),
        ("two pairs of shoes", (4,)),
        ("a 3d render, 4k, 16:9, v2, 1920s", ()),
        ("1.5 metres", (1.5,)),
        ("a cat", ()),
        ("two dozen roses", (24,)),
        ("2 dozen eggs and three cats", (24, 3)),
        ("twenty-five candles", (25,)),
        ("Twenty five candles", (25,)),
        ("twenty two-storey houses", (20, 2)),
        ("ninety-nine balloons", (99,)),
        ("2,000 lanterns, 3 boats", (2000, 3)),
        ("1,2,3", (1, 2, 3)),
        ("two hundred and five people", (205,)),
        ("three thousand five hundred stars", (3500,)),
        ("three-hundred-year-old oak", (300,)),
        ("one hundred and two hundred", (100, 200)),
        ("two pairs of shoes and one hat", (4, 1)),
    ],
)
def test_numbers(text: str, values: tuple[float, ...]) -> None:
    assert numbers(text) == values


def test_vague_numbers_are_not_demanded() -> None:
    assert extract("a hundred lanterns, both sides").numbers == ()
    assert extract("two hundred lanterns").numbers == (200,)


def test_one_is_not_demanded() -> None:
    assert extract("the one on the left, 1 cat").numbers == ()


@pytest.mark.parametrize(
    ("text", "heads"),
    [
        ("a dog without a collar", ("collar",)),
        ("a street with no people", ("person",)),
        ("I don't want any red hats on it", ("hat",)),
        ("a room that is not only red", ()),
        ("no fewer than two cats", ()),
        ("I can't wait to see a dog", ()),
        ("don't forget the dog", ()),
        ("don\u2019t leave out the dog", ()),
        ("why not draw a cat", ()),
        ("wouldn't a cat be nice", ()),
        ("it wouldn't be a cat", ("cat",)),
        ("not only a cat but no dogs", ("dog",)),
        ("a cat", ()),
    ],
)
def test_negated(text: str, heads: tuple[str, ...]) -> None:
    assert negated(text) == heads


def test_what_is_ruled_out_is_not_demanded() -> None:
    found = extract("an apple that is not red, no two cats")
    assert found.colours == () and found.numbers == ()
    assert set(found.negated) == {"red", "cat"}


def test_a_thing_both_there_and_ruled_out_is_not_enforced() -> None:
    assert extract("a cat with a collar and a cat without a collar").negated == ()


def test_mentions_looks_outside_negations() -> None:
    assert mentions("a dog with two collars", "collar")
    assert not mentions("a dog without any collar", "collar")


def test_shades_of_a_colour_are_mentions_of_it() -> None:
    assert mentions("a crimson car", "red")
    assert not mentions("a rose on a wall", "pink")
    assert extract("a crimson car, not red").negated == ()


def test_a_number_of_thousands_of_digits_is_no_number() -> None:
    assert numbers(f"{'1' * 5000} dozen cats, two dogs") == (12, 2)
    assert numbers("1" + ",000" * 2000) == (1, 0)


def test_idioms_leave_every_place_where_it_was() -> None:
    assert without_idioms("Not only a Cat") == "         a Cat"
    assert without_idioms("\u0130 not only a Cat").endswith("a cat")


def test_colours_are_families() -> None:
    assert extract("a crimson bus").colours == (frozenset({"red"}),)
    assert extract("a rose and a cherry").colours == ()
    assert extract("a black and white photo of a bus").colours == ()


def test_styles() -> None:
    assert extract("Line Art of a fox, no watercolor").styles == ("line art",)


@pytest.mark.parametrize(
    ("text", "name"),
    [("a cat", "latin"), ("一只猫", "han"), ("猫がいる", "japanese"), ("кот", "cyrillic"),
     ("고양이", "hangul"), ("\U0001f431 12", ""), ("a sign 猫", "latin")],
)  # fmt: skip
def test_script(text: str, name: str) -> None:
    assert script(text) == name


@pytest.mark.parametrize(
    ("a", "b"),
    [("cats", "cat"), ("puppies", "puppy"), ("boxes", "box"), ("glasses", "glass"),
     ("knives", "knife"), ("dog's", "dog"), ("bus", "bus"), ("buses", "bus"), ("women", "woman")],
)  # fmt: skip
def test_stem(a: str, b: str) -> None:
    assert stem(a) == b


def test_content_words() -> None:
    assert content_words("a photo of the cats on a mat, cat 猫咪") == ["cat", "mat", "猫", "咪"]
