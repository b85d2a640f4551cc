"""Precision and recall of the checks, from labelled pairs, by hand-counted examples."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.prompts.measure import Pair, default_pairs, measure, read_pairs, wilson

# (rewrite of "two cats", labelled kept): found, found, found wrongly, missed, right.
PAIRS = [
    Pair("count", "two cats", "three cats", kept=False, adversarial=True),
    Pair("count", "two cats", "a cat", kept=False),
    Pair("count", "two cats", "nine cats", kept=True),
    Pair("count", "two cats", "2 cats", kept=False, language="de"),
    Pair("count", "two cats", "two grey cats", kept=True),
]


def test_shares() -> None:
    result = measure(PAIRS)
    row = result["overall"]
    assert (row["n"], row["lost"], row["found"], row["hits"]) == (5, 3, 3, 2)
    assert row["precision"] == row["recall"] == row["f1"] == pytest.approx(2 / 3)
    assert row["precision_ci95"] == pytest.approx(wilson(2, 3))
    assert result["adversarial"]["yes"]["n"] == 1 and result["adversarial"]["no"]["n"] == 4
    assert list(result["kinds"]) == ["count"] and set(result["languages"]) == {"en", "de"}


def test_what_cannot_be_measured_is_missing() -> None:
    row = measure([Pair("quote", "a cat", "a cat", kept=True)])["overall"]
    assert math.isnan(row["precision"]) and math.isnan(row["recall"]) and math.isnan(row["f1"])
    assert all(map(math.isnan, wilson(0, 0)))


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [(8, 10, 0.4902, 0.9433), (0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0)],
)
def test_wilson(hits: int, n: int, low: float, high: float) -> None:
    """(p + z2/2n -+ z sqrt(p(1-p)/n + z2/4n2)) / (1 + z2/n); 8 of 10: 0.49 to 0.94."""
    assert wilson(hits, n) == pytest.approx((low, high), abs=1e-4)


GOOD = {"kind": "name", "original": "Paris", "rewrite": "Paris", "kept": True}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "no JSON"),
        ("[1]", "no JSON object"),
        (json.dumps({**GOOD, "kept": "yes"}), "'kept' must be a bool"),
        (json.dumps({**GOOD, "kind": "smell"}), "unknown kind 'smell'.*count"),
        (json.dumps({"kind": "name"}), "'original' must be a str"),
    ],
)
def test_wrong_lines_are_told_with_their_place(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n\n{line}\n")
    with pytest.raises(T2XError, match=problem) as error:
        read_pairs(path)
    assert "pairs.jsonl:3" in str(error.value)


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    for name in ("empty", "missing"):
        with pytest.raises(T2XError):
            read_pairs(tmp_path / name)


def test_the_labelled_pairs_are_those_of_a_checkout(monkeypatch: Any, tmp_path: Path) -> None:
    from t2x.prompts import measure as module

    monkeypatch.setattr(module, "_FILE", Path("tests") / "data" / "nowhere.jsonl")
    with pytest.raises(T2XError, match="checkout"):
        default_pairs()
