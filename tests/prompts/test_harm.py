"""A rewrite brings no kind of harm into a harmless prompt."""

from __future__ import annotations

import pytest

from t2x.prompts.harm import harms, new_harm


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("a naked woman", {"sexual"}),
        ("a bloody corpse", {"violence"}),
        ("a soldier with a rifle", {"weapons"}),
        ("一张裸体照片", {"sexual"}),
        ("a blood moon over naked branches, a toy gun", set()),
        ("a cat on a mat", set()),
        ("Essex in the rain, a bombastic hall", set()),
    ],
)
def test_kinds(text: str, kinds: set[str]) -> None:
    assert set(harms(text)) == kinds


def test_only_what_is_new_counts() -> None:
    assert new_harm("a knight", "a knight in a pool of blood") == ("violence", "blood")
    assert new_harm("a bloody battle", "a battle, corpses in the mud") is None
    assert new_harm("a cat", "a fluffy cat") is None
