"""Text found in text: exact values, what does not count, what does."""

from __future__ import annotations

import pytest

from t2x.functional.text import contained_ratio


@pytest.mark.parametrize(
    ("target", "text", "expected"),
    [
        ("OPEN", "OPEN", 1),
        ("open", "We are\nO P E N today", 1),  # case, spaces and lines do not count
        ("OPEN", "0PEN", 3 / 4),  # substitution
        ("OPEN", "OPN", 3 / 4),  # a letter is lost
        ("OPEN", "OPPEN", 3 / 4),  # one too many
        ("OPEN", "", 0),
        ("OPEN", "zzzzzzzzzz", 0),
        ("kitten", "sitting", 4 / 6),  # Levenshtein's 3, of which the last letter may be left out
        ("café", "cafe\u0301", 1),
        ("猫", "黒猫です", 1),
    ],
)
def test_known_pairs(target: str, text: str, expected: float) -> None:
    assert contained_ratio(target, text) == pytest.approx(expected)


def test_other_text_does_not_count_but_order_does() -> None:
    assert contained_ratio("sale", "x" * 50 + "sale" + "y" * 50) == 1
    assert contained_ratio("ab", "ba") == 0.5


def test_an_empty_target_is_refused() -> None:
    with pytest.raises(ValueError, match="no character"):
        contained_ratio(" \n", "text")
