"""``t2x rewards``: what each reward measures and costs, without loading any."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated

import typer

from t2x.commands.console import print_json, print_table
from t2x.registry import known_names
from t2x.reward_facts import FACTS, Facts

__all__ = ["rewards"]

DIRECTION = "higher is better"


def rewards(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List all rewards: what they measure, scale, range, gradient, licence, download, extra.

    Higher is better for every one of them; what cannot be measured is NaN.
    """
    names = known_names("rewards")
    if as_json:
        print_json([_record(name) for name in names])
        return
    rows = [_row(name, FACTS.get(name)) for name in names]
    columns = ("name", "measures", "scale and range", "gradient", "licence and download", "extra")
    print_table(f"All rewards; {DIRECTION}", columns, rows)


def _record(name: str) -> dict[str, object]:
    """Facts of one reward; of a plugin nothing but its name is known."""
    facts = FACTS.get(name)
    if facts is None:
        return {"name": name, "direction": DIRECTION, "measures": None}
    return {"name": name, "direction": DIRECTION, **asdict(facts)}


def _row(name: str, facts: Facts | None) -> tuple[object, ...]:
    if facts is None:
        return (name, "a plugin; see its own documentation", "", "", "", "")
    low, high = (f"{end:g}" if math.isfinite(end) else "open" for end in facts.range)
    return (
        name,
        f"{facts.modality}: {facts.measures}",
        f"{facts.scale}; {low} to {high}",
        "yes" if facts.differentiable else "no",
        f"{facts.licence}, {facts.download}" + (f"; real: {facts.real}" if facts.real else ""),
        facts.extra or "none",
    )
