"""The labelled pairs in tests/data: fields, counts, balance, and no pair in both files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[1] / "data"
TEST, DEV = "constraint_pairs.jsonl", "constraint_pairs_dev.jsonl"
FIELDS = {
    "id": int,
    "kind": str,
    "language": str,
    "original": str,
    "rewrite": str,
    "kept": bool,
    "adversarial": bool,
    "note": str,
}
KINDS = {"count", "colour", "relation", "negation", "name", "quote"}


def load(name: str) -> list[dict[str, Any]]:
    """The pairs of one file, in its order."""
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def plain(text: str) -> str:
    """`text` without what does not make two prompts different: case and blanks."""
    return " ".join(text.casefold().split())


@pytest.mark.parametrize("name", [TEST, DEV])
def test_fields_are_typed_and_filled(name: str) -> None:
    for pair in load(name):
        assert {key: type(value) for key, value in pair.items()} == FIELDS, pair
        assert pair["kind"] in KINDS and pair["language"] in {"en", "es", "de", "zh"}
        texts = [pair["original"], pair["rewrite"], pair["note"]]
        assert all(text and text == text.strip() for text in texts), pair["id"]
        assert plain(pair["original"]) != plain(pair["rewrite"]), pair["id"]


@pytest.mark.parametrize("name", [TEST, DEV])
def test_rewrites_have_10_to_60_words(name: str) -> None:
    for pair in load(name):
        # Chinese is written without blanks; about 1.6 characters make a word.
        chinese = pair["language"] == "zh"
        words = len(pair["rewrite"]) / 1.6 if chinese else len(pair["rewrite"].split())
        assert 10 <= words <= 60, pair["id"]


@pytest.mark.parametrize(("name", "number", "first"), [(TEST, 500, 1), (DEV, 150, 1001)])
def test_number_and_ids(name: str, number: int, first: int) -> None:
    assert [pair["id"] for pair in load(name)] == list(range(first, first + number))


@pytest.mark.parametrize(("name", "low", "high"), [(TEST, 80, 88), (DEV, 24, 26)])
def test_kinds_labels_and_difficulty_are_balanced(name: str, low: int, high: int) -> None:
    pairs = load(name)
    assert sum(pair["kept"] for pair in pairs) * 2 == len(pairs)
    assert sum(pair["adversarial"] for pair in pairs) * 2 == len(pairs)
    for kind in KINDS:
        cells = Counter((p["kept"], p["adversarial"]) for p in pairs if p["kind"] == kind)
        assert low <= cells.total() <= high, kind
        # Kept or lost must not be guessable from the difficulty: all four cells are alike.
        assert len(cells) == 4 and max(cells.values()) - min(cells.values()) <= 1, kind


@pytest.mark.parametrize(("name", "least"), [(TEST, 55), (DEV, 15)])
def test_other_languages_are_there_with_both_labels(name: str, least: int) -> None:
    pairs = [pair for pair in load(name) if pair["language"] != "en"]
    assert len(pairs) >= least
    assert len({(pair["language"], pair["kept"]) for pair in pairs}) == 6


def test_no_text_is_used_twice_within_or_across_the_files() -> None:
    pairs = load(TEST) + load(DEV)
    for field in ("original", "rewrite"):
        counts = Counter(plain(pair[field]) for pair in pairs)
        assert [text for text, times in counts.items() if times > 1] == []


def test_kept_quotes_hold_the_very_characters() -> None:
    """The rule for quotes is exact, so a script can recheck the labels of kept ones."""
    marks = "\"“”„«»»«「」'‘’"
    for pair in load(TEST) + load(DEV):
        if pair["kind"] != "quote" or not pair["kept"]:
            continue
        text = pair["original"]
        opening = next(mark for mark in "\"“「«'" if mark in text)
        closing = {"“": "”", "「": "」", "«": "»"}.get(opening, opening)
        inside = text.split(opening, 1)[1].split(closing, 1)[0]
        at = pair["rewrite"].find(inside)
        assert at > 0, pair["id"]
        around = pair["rewrite"][at - 1] + pair["rewrite"][at + len(inside)]
        assert set(around) <= set(marks), pair["id"]
