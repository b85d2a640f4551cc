"""One picture of a claim: the effects with their intervals, what each arm came to with each seed,
and the curves of the trainings. Needs matplotlib (extra ``report``).
"""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from t2x.claims.curves import points
from t2x.claims.protocol import METRICS, Comparison
from t2x.claims.verdict import Verdict, arm_values

if TYPE_CHECKING:
    from t2x.claims.records import Run

__all__ = ["draw_claim"]

# Told apart by people who do not see red and green apart (Okabe and Ito 2008).
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
VERDICTS = {
    "true": ("holds", "#007A53"),
    "false": ("does not hold", "#B03A00"),
    "undecided": ("undecided", "#666666"),
}
_SETTINGS = {
    "svg.hashsalt": "t2x",  # the same bytes every time
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
}


def draw_claim(verdict: Verdict, path: Path) -> None:
    """Draw an SVG of a claim that was run.

    Raises MissingDependencyError without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        from t2x.registry import missing_dependency

        raise missing_dependency(error) from error
    assert verdict.records is not None
    with rc_context(_SETTINGS):
        curves = any(len(points(run.curve, verdict.claim.curve)[0]) for run in verdict.records.runs)
        count = len(verdict.results)
        figure = Figure(figsize=(11 if curves else 7.6, 3.3 + 0.4 * max(count - 1, 0)))
        widths = (1.2, 0.9, 1.2) if curves else (1.2, 0.9)
        axes = figure.subplots(1, len(widths), width_ratios=widths)
        figure.subplots_adjust(
            left=0.1 if curves else 0.14, right=0.985, top=0.63, bottom=0.16, wspace=0.3
        )
        _draw_title(figure, verdict)
        _draw_effects(axes[0], verdict)
        _draw_arms(axes[1], verdict)
        if curves:
            _draw_curves(axes[2], verdict)
        figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_title(figure: Any, verdict: Verdict) -> None:
    word, color = VERDICTS[verdict.holds]
    label = "screening, one seed: " if verdict.claim.screening else ""
    wide = 12.0 * figure.get_figwidth()
    if verdict.reasons:
        label += textwrap.shorten(
            f"{word}: {'; '.join(verdict.reasons)}", int(wide), placeholder=" ..."
        )
        word = ""
    figure.text(0.012, 0.97, f"{label}{word}", color=color, weight="bold", size=11, va="top")
    text = "\n".join(textwrap.wrap(verdict.claim.claim, int(1.15 * wide)))
    figure.text(0.012, 0.885, text, va="top", size=10)


def _draw_effects(axes: Any, verdict: Verdict) -> None:
    """Effects above 0 speak for the claim; the grey band is what could not have been seen."""
    claim, records = verdict.claim, verdict.records
    labels = []
    for row, (pair, found) in enumerate(verdict.results):
        color = VERDICTS[found.holds][1]
        if math.isfinite(found.detectable):
            span = (pair.margin - found.detectable, pair.margin + found.detectable)
            axes.fill_betweenx((row - 0.32, row + 0.32), *span, color="#E8E8E8", lw=0)
        axes.plot([pair.margin] * 2, [row - 0.32, row + 0.32], color="#444444", lw=1, ls=":")
        if math.isfinite(found.low):
            axes.plot([found.low, found.high], [row, row], color=color, lw=3, alpha=0.55)
        axes.plot([found.mean], [row], "o", color=color, ms=7)
        assert records is not None
        first, second = (arm_values(claim, records, pair, arm) for arm in (pair.first, pair.second))
        gaps = [_gap(pair, first[s], second[s]) for s in first if s in second]
        axes.plot(gaps, [row + 0.2] * len(gaps), "|", color="#222222", ms=7)
        condition = "condition:\n" if row >= len(claim.comparisons) else ""
        labels.append(f"{condition}{pair.metric}\n{pair.first}\nvs {pair.second}")
    axes.set_yticks(range(len(labels)), labels, size=7.5)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.axvline(0, color="#999999", lw=0.8, zorder=0)
    axes.locator_params(axis="x", nbins=6)
    axes.set_title("effect, 95 % interval; ticks: training seeds")
    axes.set_xlabel("above 0 speaks for the claim")


def _gap(pair: Comparison, first: float, second: float) -> float:
    if pair.metric == "pictures":
        return 1 - first / second if second else math.nan
    return first - second if pair.better == "higher" else second - first


def _draw_arms(axes: Any, verdict: Verdict) -> None:
    """What each arm came to in the first comparison's metric: a dot for each training seed."""
    claim, records, pair = verdict.claim, verdict.records, verdict.claim.comparisons[0]
    assert records is not None
    for at, arm in enumerate(claim.arms):
        values = [v for v in arm_values(claim, records, pair, arm).values() if not math.isnan(v)]
        if values:
            color = COLORS[at % len(COLORS)]
            axes.plot([at - 0.25, at + 0.25], [np.mean(values)] * 2, color=color, lw=2)
            spread = np.linspace(-0.12, 0.12, len(values)) if len(values) > 1 else [0]
            axes.plot(at + np.array(spread), values, "o", color=color, ms=5, alpha=0.75)
    axes.set_xticks(range(len(claim.arms)), [a.replace("_", "\n") for a in claim.arms], size=7.5)
    axes.set_xlim(-0.6, len(claim.arms) - 0.4)
    words = "pictures used on the way" if pair.metric == "pictures" else METRICS[pair.metric]
    axes.set_title("\n".join(textwrap.wrap(words, 38)))


def _draw_curves(axes: Any, verdict: Verdict) -> None:
    """Held-out curves of the trainings: each seed thin, their mean thick where all go on."""
    claim, records = verdict.claim, verdict.records
    assert records is not None
    for at, arm in enumerate(claim.arms):
        color, runs = COLORS[at % len(COLORS)], list(records.of(arm).values())
        for run in runs:
            axes.plot(*points(run.curve, claim.curve, smooth=False), color=color, lw=0.7, alpha=0.4)
        x, y = _mean_curve(verdict, runs)
        axes.plot(x, y, color=color, lw=2, label=arm)
    axes.set_xlabel(claim.curve.x)
    axes.set_title(f"training: {claim.curve.y}")
    axes.legend(frameon=False, fontsize=7.5, loc="lower right")


def _mean_curve(verdict: Verdict, runs: list[Run]) -> tuple[Any, Any]:
    """Mean of the curves, up to where the first of them ends."""
    found = [points(run.curve, verdict.claim.curve, smooth=False) for run in runs]
    known = [(x, y) for x, y in found if len(x)]
    if not known:
        return np.empty(0), np.empty(0)
    grid = np.linspace(max(x[0] for x, _ in known), min(x[-1] for x, _ in known), 60)
    return grid, np.mean([np.interp(grid, x, y) for x, y in known], axis=0)
