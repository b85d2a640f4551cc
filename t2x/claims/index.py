"""``docs/claims``: for each claim its runs, its verdict and its plot, and a page that lists all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2x.claims.protocol import Claim, known_claims, load_claim
from t2x.claims.records import read_records
from t2x.claims.verdict import Verdict, judge_claim
from t2x.errors import T2XError
from t2x.files import made_folder, write_whole

__all__ = [
    "default_folder",
    "index_page",
    "read_verdict",
    "write_index",
    "write_plot",
    "write_verdict",
]

PLOT, RESULT = "plot.svg", "result.json"
_WORDS = {"true": "holds", "false": "does not hold", "undecided": "undecided"}


def default_folder() -> Path:
    """``docs/claims`` of the checkout that this package runs from; raises T2XError where t2x is
    installed without it."""
    folder = Path(__file__).resolve().parents[2] / "docs" / "claims"
    if not folder.is_dir():
        raise T2XError("docs/claims is only there in a checkout of t2x; give a folder with --docs")
    return folder


def read_verdict(claim: Claim, docs: Path) -> Verdict:
    """The verdict of a claim, computed from the runs in its folder of ``docs``."""
    return judge_claim(claim, read_records(docs / claim.name))


def write_verdict(verdict: Verdict, docs: Path) -> Path:
    """Write ``result.json`` beside the runs; give the folder."""
    folder = made_folder(docs / verdict.claim.name)
    write_whole(folder / RESULT, json.dumps(verdict.summary(), indent=1, ensure_ascii=False) + "\n")
    return folder


def write_plot(verdict: Verdict, docs: Path) -> None:
    """Draw the plot beside the runs, if there is one; needs matplotlib."""
    from t2x.claims.plot import draw_claim

    if verdict.records is not None and verdict.records.runs:
        draw_claim(verdict, made_folder(docs / verdict.claim.name) / PLOT)


def write_index(docs: Path, protocols: Path | None = None) -> Path:
    """Write the page of all claims."""
    names = known_claims(protocols)
    verdicts = [read_verdict(load_claim(name, protocols), docs) for name in names]
    path = made_folder(docs) / "README.md"
    write_whole(path, index_page(verdicts))
    return path


def index_page(verdicts: Sequence[Verdict]) -> str:
    """The page as Markdown."""
    decided = [v for v in verdicts if not v.claim.screening]
    screening = [v for v in verdicts if v.claim.screening]
    parts = [
        "# Claims\n",
        "Written by `t2x claims`, from the runs that lie beside it: change nothing here. What is "
        "compared stands in\n`configs/claims/NAME.yaml`, and was fixed before the runs; "
        "`t2x claims NAME --run` makes them again.\n",
        "An effect above 0 speaks for the claim. Its interval, at 95 %, covers other prompts and "
        "other seeds of training;\na claim holds if all of it lies above the margin, and does not "
        "if all of it lies below. *Detectable* is the\nsmallest effect that would have been seen "
        "four times in five.\n",
        _table("## With three training seeds", decided),
        _table("## Screening: one training seed, which says nothing about others", screening),
    ]
    parts += [_section(v) for v in verdicts if v.records is not None]
    return "\n".join(parts)


def _table(title: str, verdicts: Sequence[Verdict]) -> str:
    head = "| claim | verdict | effect | 95 % | detectable | n |\n|---|---|---|---|---|---|"
    return "\n".join([title, "", head, *map(_line, verdicts)]) + "\n"


def _line(verdict: Verdict) -> str:
    found = verdict.summary()
    name = verdict.claim.name
    label = f"[{name}](#{name})" if verdict.records is not None else name
    word = _WORDS[verdict.holds] if verdict.records is not None else "not run"
    cells = [f"{label}: {verdict.claim.claim}", word]
    if verdict.records is None:
        return f"| {' | '.join([*cells, '', '', '', ''])} |"
    low, high = found["ci95"]
    size = f"{len(found['seeds'])} x {found['n']}"
    cells += [_number(found["effect"]), f"{_number(low)} to {_number(high)}"]
    return f"| {' | '.join([*cells, _number(found['minimum_detectable'], sign=False), size])} |"


def _section(verdict: Verdict) -> str:
    found, name = verdict.summary(), verdict.claim.name
    lines = [f"## {name}\n", f"{verdict.claim.claim} ({verdict.claim.paper})\n"]
    if verdict.records is not None and verdict.records.runs:
        lines.append(f"![effects, arms and curves]({name}/{PLOT})\n")
    lines += [_said(row, "") for row in found["comparisons"]]
    lines += [_said(row, "condition: ") for row in found["conditions"]]
    lines += [f"- not decided: {reason}" for reason in verdict.reasons]
    lines += [f"- missing: {m['arm']}, seed {m['seed']}: {m['why']}" for m in found["missing"]]
    if verdict.records is not None:
        lines += [
            f"- failed: {f['job']} ({f['key']}), exit code {f['code']}"
            for f in verdict.records.failures
        ]
    seconds = (f"{arm} {c['seconds'] / 60:.1f}" for arm, c in found["cost"].items() if c["seconds"])
    if cost := ", ".join(seconds):
        lines.append(f"- minutes of training for each seed, on one core: {cost}")
    if verdict.claim.notes:
        lines.append(f"- {' '.join(verdict.claim.notes.split())}")
    return "\n".join(lines) + "\n"


def _said(row: dict[str, Any], kind: str) -> str:
    low, high = row["ci95"]
    word = {True: "shown", False: "refuted"}.get(row["holds"], "undecided")
    return (
        f"- {kind}{row['first']} against {row['second']} in {row['metric']} ({row['better']} is "
        f"better): {_number(row['effect'])} ({_number(low)} to {_number(high)}), {word}"
    )


def _number(value: float | None, *, sign: bool = True) -> str:
    if value is None:
        return "?"
    return f"{value:+.3f}" if sign else f"{value:.3f}"
