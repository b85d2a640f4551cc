"""Curves of runs as SVG that takes its colours from the page around it.

Drawn by matplotlib in colours that stand for the page's CSS variables and are exchanged for them,
so that one drawing is right on light and dark paper. The same curves give the same bytes.
"""

from __future__ import annotations

import io
import re
import statistics
from collections.abc import Sequence
from typing import Any

from t2x.watching.trends import Curve

COLOURS = 8
_INK, _MUTED, _LINE, _WORSE = "#010101", "#010102", "#010103", "#010104"
_VARIABLES = {_INK: "--ink", _MUTED: "--muted", _LINE: "--line", _WORSE: "--worse"} | {
    f"#0102{i:02x}": f"--run{i}" for i in range(COLOURS)
}
_SIZE = (3.7, 2.3)  # inches of a panel
_POINTS = 400  # at most in one curve; more become means of neighbours
_FEW = 30  # points that are drawn as they are
_SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "t2x",
    "font.size": 9.0,
    "axes.formatter.limits": (-3, 4),  # longer numbers leave the panel
    "axes.linewidth": 0.8,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _MUTED,
    "axes.titlecolor": _INK,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": _LINE,
    "grid.linewidth": 0.5,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
}

__all__ = ["COLOURS", "draw_panel", "smoothed"]


def draw_panel(
    title: str,
    curves: Sequence[tuple[int, Curve, Curve | None]],
    *,
    x_label: str = "step",
    marks: Sequence[float] = (),
    zero: bool = False,
    share: bool = False,
) -> str:
    """Draw one panel: an SVG element.

    ``curves``: (number of the run, its curve, the curve's standard error or None); the number
    chooses the colour. ``marks``: where alarms were, as dashed lines. ``zero``: a line at 0.
    ``share``: the values are at least 0, and the panel begins there.
    """
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=_SIZE)
        figure.subplots_adjust(left=0.15, right=0.98, bottom=0.2, top=0.89)
        axes = figure.add_subplot()
        axes.set_title(title, y=1.02)  # a place of its own, or it makes way for the power of ten
        axes.yaxis.set_offset_position("right")
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True))
        axes.grid(axis="y")
        axes.set_axisbelow(True)
        if zero:
            axes.axhline(0.0, color=_MUTED, linewidth=0.8)
        for mark in marks:
            axes.axvline(mark, color=_WORSE, linewidth=0.9, linestyle="--")
        for number, curve, error in curves:
            _draw_curve(axes, f"#0102{number % COLOURS:02x}", curve, error)
        if share:
            axes.set_ylim(0.0, max(0.05, axes.get_ylim()[1]))
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return _inline(buffer.getvalue(), title)


def _draw_curve(axes: Any, colour: str, curve: Curve, error: Curve | None) -> None:
    if error is not None and len(error) == len(curve):
        low = [v - 1.96 * e for v, e in zip(curve.values, error.values, strict=True)]
        high = [v + 1.96 * e for v, e in zip(curve.values, error.values, strict=True)]
        axes.fill_between(curve.steps, low, high, color=colour, alpha=0.15, linewidth=0)
    thin = _thinned(curve)
    if len(thin) <= _FEW:
        axes.plot(thin.steps, thin.values, color=colour, linewidth=1.5, marker="o", markersize=3)
        return
    axes.plot(thin.steps, thin.values, color=colour, linewidth=0.8, alpha=0.3)
    line = smoothed(thin)
    axes.plot(line.steps, line.values, color=colour, linewidth=1.7)


def smoothed(curve: Curve, width: int | None = None) -> Curve:
    """Means over ``width`` neighbours around each value, fewer at the ends; None is a twentieth of
    the curve."""
    half = max((len(curve) // 20 if width is None else width) // 2, 0)
    means = [
        statistics.fmean(curve.values[max(i - half, 0) : i + half + 1]) for i in range(len(curve))
    ]
    return Curve(curve.steps, tuple(means))


def _thinned(curve: Curve) -> Curve:
    """At most ``_POINTS`` means of neighbours."""
    size = -(-len(curve) // _POINTS)
    if size <= 1:
        return curve
    parts = range(0, len(curve), size)
    return Curve(
        tuple(statistics.fmean(curve.steps[i : i + size]) for i in parts),
        tuple(statistics.fmean(curve.values[i : i + size]) for i in parts),
    )


def _inline(svg: str, title: str) -> str:
    """The element alone, as wide as its place, in the page's colours."""
    from t2x.evaluation.html import escaped

    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    size = r'<svg [^>]*?viewBox="([^"]+)"[^>]*>'
    svg = re.sub(
        size,
        rf'<svg class="plot" role="img" aria-label="{escaped(title)}" viewBox="\1" '
        'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">',
        svg,
        count=1,
    )
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
