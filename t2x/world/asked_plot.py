"""One picture of an evaluation of asking: score and gain over the number of questions. Needs
matplotlib (extra ``report``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["draw_asking"]

# Told apart by people who do not see red and green apart (Okabe and Ito 2008), and by the marker.
_LOOKS = {
    "gain": ("#0072B2", "o"),
    "gain-alone": ("#56B4E9", "s"),
    "random": ("#D55E00", "^"),
    "fixed": ("#009E73", "D"),
    "nothing": ("#000000", "x"),
}
_WORDS = {
    "gain": "information gain x influence",
    "gain-alone": "information gain alone",
    "random": "random questions",
    "fixed": "fixed order",
    "nothing": "no question",
}


def draw_asking(result: Mapping[str, Any], path: str | Path) -> None:
    """Draw what ``evaluate_asking`` gave, as SVG, or as PNG by the name of the file: the judge's
    score after each number of questions, what each question added, and what was asked when.

    Raises MissingDependencyError without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        from t2x.registry import missing_dependency

        raise missing_dependency(error) from error
    with rc_context({"svg.hashsalt": "t2x", "font.size": 8, "axes.titlelocation": "left"}):
        figure = Figure(figsize=(11, 3.8), layout="constrained")
        score, gain, asked = figure.subplots(1, 3)
        for name, arm in result["arms"].items():
            _draw_arm(score, gain, name, arm)
        ceiling = result["complete"]["overall"]
        score.axhline(ceiling, color="#888888", lw=0.8, ls=":")
        score.annotate("the scene told in full", (0, ceiling), (2, 3), textcoords="offset points",
                       fontsize=7, color="#666666")  # fmt: skip
        score.set_title("judge's score, 95 % interval")
        gain.axhline(0, color="#888888", lw=0.8)
        gain.set_title("gain of each question")
        _draw_asked(asked, result)
        for axes in (score, gain, asked):
            axes.set_xlabel("questions asked" if axes is score else "question")
            axes.spines[["top", "right"]].set_visible(False)
        handles, labels = score.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=5, frameon=False)
        kind = Path(path).suffix[1:] or "svg"
        figure.savefig(path, format=kind, metadata={"Date": None} if kind == "svg" else None)


def _draw_arm(score: Any, gain: Any, name: str, arm: Mapping[str, Any]) -> None:
    color, marker = _LOOKS.get(name, ("#CC79A7", "v"))
    look = {"color": color, "marker": marker, "ms": 4, "lw": 1.2}
    steps = range(len(arm["score"]))
    score.plot(steps, arm["score"], label=_WORDS.get(name, name), **look)
    low, high = zip(*arm["score_ci95"], strict=True)
    score.fill_between(steps, low, high, color=color, alpha=0.1, lw=0)
    if name != "nothing":
        gain.plot(steps[1:], arm["gain"], **look)


def _draw_asked(axes: Any, result: Mapping[str, Any]) -> None:
    """Which families the first arm asks about at each question, as stacked shares."""
    name, arm = next(iter(result["arms"].items()))
    colors = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
    bottom = [0.0] * len(arm["gain"])
    steps = range(1, len(bottom) + 1)
    for (family, shares), color in zip(arm["asked"].items(), colors, strict=False):
        axes.bar(steps, shares, bottom=bottom, color=color, width=0.8, label=family)
        bottom = [b + share for b, share in zip(bottom, shares, strict=True)]
    axes.set_title(f"what is asked: {_WORDS.get(name, name)}")
    if arm["asked"]:
        axes.legend(frameon=False, fontsize=7, ncols=3, loc="upper right")
    axes.set_ylim(0, 1.25)
