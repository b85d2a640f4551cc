"""One picture of an evaluation of guidance: score against FLOPs, in plain pictures. Needs
matplotlib (extra ``report``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["draw_guidance"]

# Told apart by people who do not see red and green apart (Okabe and Ito 2008), then by the marker.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vP*"
_PANELS = {
    "overall": "judge's score, 95 % interval",
    "reward": "what the arms optimise",
    "heldout_reward": "a reward that none sees",
    "diversity": "diversity over seeds",
}


def draw_guidance(result: Mapping[str, Any], path: str | Path) -> None:
    """Draw what ``evaluate_guidance`` gave, as SVG, or as PNG by the name of the file: a line for
    each arm and source of texts, a point for each budget; rewritten texts are dashed.

    Raises MissingDependencyError without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        from t2x.registry import missing_dependency

        raise missing_dependency(error) from error
    lines = _lines(result)
    looks = _looks(lines)
    with rc_context({"svg.hashsalt": "t2x", "font.size": 8, "axes.titlelocation": "left"}):
        figure = Figure(figsize=(12, 4.2), layout="constrained")
        for axes, (key, title) in zip(
            figure.subplots(1, len(_PANELS)), _PANELS.items(), strict=True
        ):
            for label, points in lines.items():
                _draw_line(axes, key, points, looks[label], label)
            axes.set_xscale("log")
            axes.set_xticks([1, *result["budgets"]], [f"{b:g}" for b in (1, *result["budgets"])])
            axes.minorticks_off()
            axes.set_title(title)
            axes.set_xlabel("cost in plain pictures")
            axes.spines[["top", "right"]].set_visible(False)
        arms = [line for line in axes.get_lines() if "+" not in str(line.get_label())]
        dashed = "dashed: the same on rewritten texts" if len(arms) < len(lines) else None
        figure.legend(
            handles=arms, loc="outside lower center", ncols=6, frameon=False, title=dashed
        )
        kind = Path(path).suffix[1:] or "svg"
        figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _lines(result: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Rows of each arm and source of texts, by their cost in plain pictures."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for label, row in result["arms"].items():
        if row["size"] is not None:
            cost = row["flops"] / result["plain_picture_flops"]
            found.setdefault(label.rpartition("@")[0], []).append({**row, "cost": cost})
    return {name: sorted(rows, key=lambda row: row["cost"]) for name, rows in found.items()}


def _looks(lines: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    arms = list(dict.fromkeys(name.partition("+")[0] for name in lines))
    looks = {}
    for name in lines:
        at = arms.index(name.partition("+")[0])
        looks[name] = {
            "color": _COLORS[at % len(_COLORS)],
            "marker": _MARKERS[at // len(_COLORS) % len(_MARKERS)],
            "ls": "--" if "+" in name else "-",
        }
    return looks


def _draw_line(
    axes: Any, key: str, rows: list[Mapping[str, Any]], look: Mapping[str, Any], label: str
) -> None:
    x, y = [row["cost"] for row in rows], [row[key] for row in rows]
    axes.plot(x, y, ms=4, lw=1.2, label=label, **look)
    if key == "overall":
        low, high = zip(*(row["ci95"] for row in rows), strict=True)
        axes.vlines(x, low, high, color=look["color"], lw=0.7, alpha=0.5)
