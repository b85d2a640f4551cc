"""A rewrite is made to fit by whole clauses; what the user said goes last."""

from __future__ import annotations

import pytest

from t2x.prompts.shorten import clauses, shortened, user_first


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("a cat, a dog. A bird", 3),
        ("a sign, \u201cstop, look, go\u201d, in rain", 3),
        ("a 1,000 year old tree", 1),
        ("Mr. Bean, by St. Mark's", 2),
        ("v2.0 of a car (red, fast), parked", 2),
        ("一只猫，一只狗。", 2),
        ("", 0),
    ],
)
def test_clauses_join_to_the_text(text: str, count: int) -> None:
    found = clauses(text)
    assert len(found) == count
    assert "".join(c.text for c in found) == text


def limit(size: int):
    return lambda text: len(text) <= size


def test_added_clauses_go_first_and_the_last_of_them_first() -> None:
    text = "soft light, a fat cat on a mat, film grain, dreamy mood"
    assert shortened(text, "a cat on a mat", limit(40)) == (
        "soft light, a fat cat on a mat",
        ("dreamy mood", "film grain"),
    )
    assert shortened(text, "a cat on a mat", limit(20))[0] == "a fat cat on a mat"


def test_what_fits_stays_as_it_is() -> None:
    assert shortened("a cat,  dreamy ,", "a cat", limit(99)) == ("a cat,  dreamy ,", ())


def test_what_the_user_said_once_stays() -> None:
    """Twice told is told once more than needed; a word is never cut."""
    text = "a cat, a dog, the cat again"
    assert shortened(text, "a cat and a dog", limit(14)) == ("a cat, a dog", ("the cat again",))
    assert shortened("a cat, a dog", "a cat and a dog", limit(3)) == ("a cat, a dog", ())


def test_the_users_words_come_first() -> None:
    assert user_first("Soft light fills the air. A cat sleeps.", "a cat") == (
        "A cat sleeps. Soft light fills the air."
    )
    assert user_first("soft light, a cat", "a cat") == "a cat, soft light"
    assert user_first("a cat, soft light", "a cat") == "a cat, soft light"
