"""How well the checks find what a rewrite lost, on labelled pairs.

A pair counts as found if the check of its own kind says that something is lost. Precision is the
share of lost ones among those found, recall the share of found ones among the lost; the intervals
are Wilson's (1927) at 95 %.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.prompts.preserved import KINDS

__all__ = ["Pair", "default_pairs", "measure", "read_pairs", "wilson"]

_Z = 1.959963984540054  # normal quantile of 0.975
_FIELDS = {"kind": str, "original": str, "rewrite": str, "kept": bool}
_FILE = Path("tests") / "data" / "constraint_pairs.jsonl"


@dataclass(frozen=True)
class Pair:
    """A prompt, a rewrite and whether its constraint of ``kind`` is ``kept``."""

    kind: str
    original: str
    rewrite: str
    kept: bool
    adversarial: bool = False
    language: str = "en"


def default_pairs() -> Path:
    """The labelled pairs of a checkout; raises T2XError where t2x is installed without them."""
    path = Path(__file__).resolve().parents[2] / _FILE
    if not path.is_file():
        raise T2XError(f"{_FILE} is only there in a checkout of t2x; give a file of pairs")
    return path


def read_pairs(path: str | Path) -> list[Pair]:
    """Read JSON lines with kind, original, rewrite, kept, and maybe adversarial and language.

    Raises T2XError for a file that can't be read, and for the first line that is no such pair.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise T2XError(f"cannot read pairs from {str(path)!r}: {error}") from error
    pairs = [_pair(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
    if not pairs:
        raise T2XError(f"{str(path)!r} holds no pair")
    return pairs


def _pair(line: str, where: str) -> Pair:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise T2XError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise T2XError(f"{where} is no JSON object")
    for name, kind in _FIELDS.items():
        if not isinstance(row.get(name), kind):
            raise T2XError(f"{where}: {name!r} must be a {kind.__name__}, got {row.get(name)!r}")
    if row["kind"] not in KINDS:
        raise T2XError(f"{where}: unknown kind {row['kind']!r}; allowed are {', '.join(KINDS)}")
    return Pair(
        kind=row["kind"],
        original=row["original"],
        rewrite=row["rewrite"],
        kept=row["kept"],
        adversarial=bool(row.get("adversarial", False)),
        language=str(row.get("language", "en")),
    )


def measure(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Run the check of each pair's kind; plain data for JSON.

    Keys ``overall``, ``kinds``, ``adversarial`` ("yes", "no"), ``languages``; each row has n, lost
    (labelled so), found, hits (both), precision and recall with their 95 % intervals, and f1. What
    can't be measured is NaN.
    """
    found = [bool(KINDS[p.kind](p.original, p.rewrite)) for p in pairs]
    rows = list(zip(pairs, found, strict=True))
    languages = sorted({p.language for p in pairs})
    return {
        "overall": _row(rows),
        "kinds": {
            kind: _row([r for r in rows if r[0].kind == kind])
            for kind in KINDS
            if any(p.kind == kind for p in pairs)
        },
        "adversarial": {
            name: _row([r for r in rows if r[0].adversarial == value])
            for name, value in (("yes", True), ("no", False))
        },
        "languages": {name: _row([r for r in rows if r[0].language == name]) for name in languages},
    }


def _row(rows: Iterable[tuple[Pair, bool]]) -> dict[str, Any]:
    kept = [(pair.kept, found) for pair, found in rows]
    lost = sum(not k for k, _ in kept)
    flagged = sum(f for _, f in kept)
    hits = sum(f and not k for k, f in kept)
    precision, recall = _share(hits, flagged), _share(hits, lost)
    total = precision + recall
    return {
        "n": len(kept),
        "lost": lost,
        "found": flagged,
        "hits": hits,
        "precision": precision,
        "precision_ci95": list(wilson(hits, flagged)),
        "recall": recall,
        "recall_ci95": list(wilson(hits, lost)),
        "f1": 2 * precision * recall / total if total else math.nan,
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's score interval of a share, 95 %: low and high in [0, 1]; NaN without trials.

    (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), Wilson 1927, with p = hits/n.
    """
    if n == 0:
        return math.nan, math.nan
    p, square = hits / n, _Z * _Z / n
    middle, half = p + square / 2, _Z * math.sqrt(p * (1 - p) / n + square / (4 * n))
    return max((middle - half) / (1 + square), 0.0), min((middle + half) / (1 + square), 1.0)
