"""The strip: what guidance saw and did while one picture was drawn. A row of x0_hat over the steps
with their noise levels, and below it, above the same steps, each reward, the weights and the step
size. Needs matplotlib (extra ``report``). The same trace gives the same bytes.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageDraw

from t2x.claims.plot import COLORS
from t2x.errors import T2XError
from t2x.evaluation.lettering import Lettering, readable, wrap
from t2x.evaluation.picture import FRAME, GAP, INK, MARGIN, MUTED, PAPER, fitted
from t2x.media import spaced

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.guidance.regions import Region
    from t2x.guidance.trace import SampleTrace

CELL = 128  # side of a picture in pixels
SHOWN = 8  # pictures of x0_hat at most
LEFT, RIGHT = 96, 196  # pixels beside the curves: axis labels, and names with first and last value
PANEL, BETWEEN, AXIS = 84, 22, 52  # height of a panel, between two, and below the last
LEAD = 26  # above the first panel
MARK = "#b6bdc8"
MARKERS = ("o", "s", "^", "D", "v", "P")
DPI = 100
TITLE = Lettering(22, INK, bold=True)
NOTE = Lettering(15, MUTED)
LABEL = Lettering(14, INK)
_SETTINGS = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "grid.color": "#e8ebef",
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
}

__all__ = ["draw_strip"]


def draw_strip(
    sample: SampleTrace, *, result: Tensor | None = None, title: str = "", subtitle: str = ""
) -> Image.Image:
    """Draw one sample's trace as an RGB picture.

    ``result``: the finished picture (3, H, W) in [0, 1], or of a video one frame, beside the row.
    ``title`` is the sample's prompt unless given. Raises T2XError for a trace without steps, and
    MissingDependencyError without matplotlib.
    """
    if not sample.sigmas:
        raise T2XError("this trace has no steps; draw with guidance first")
    shown = spaced(len(sample.sigmas), SHOWN)
    width = _row_width(len(shown))
    curves = _curves(sample, width)
    lines = wrap(readable(title or sample.prompt), TITLE, width, 2)
    told = "looks for: " + "; ".join(region.describe() for region in sample.regions)
    said = [subtitle, told if sample.regions else ""]
    notes = [line for text in said if text for line in wrap(readable(text), NOTE, width, 2)]
    top = MARGIN // 2 + len(lines) * TITLE.line + len(notes) * NOTE.line + GAP
    row = any(sample.thumbnails[i] is not None for i in shown) or result is not None
    below = top + (CELL + 2 * LABEL.line + GAP if row else 0)
    total = LEFT + width + RIGHT
    sheet = Image.new("RGB", (total, below + curves.height + GAP // 2), PAPER)
    draw = ImageDraw.Draw(sheet)
    y = MARGIN // 2
    for style, text in [*((TITLE, line) for line in lines), *((NOTE, line) for line in notes)]:
        style.draw(draw, (LEFT, y), text)
        y += style.line
    if row:
        _draw_row(sheet, sample, shown, top, width)
    if result is not None:
        _draw_result(sheet, result, top, LEFT + width + GAP + GAP // 2)
    sheet.paste(curves, (0, below))
    if row:
        _draw_leaders(draw, len(sample.sigmas), shown, (below - GAP // 2, below + LEAD), width)
    return sheet


def _row_width(count: int) -> int:
    """Pixels that the steps take: at least five pictures, so that curves of few steps are wide
    enough."""
    return max(count, 5) * CELL + (max(count, 5) - 1) * GAP


def _x(position: int, steps: int, width: int) -> float:
    """Pixel of the middle of one of ``steps`` evenly spaced, from the left edge of the sheet."""
    share = 0.5 if steps == 1 else position / (steps - 1)
    return LEFT + CELL / 2 + share * (width - CELL)


def _draw_leaders(
    draw: ImageDraw.ImageDraw,
    steps: int,
    shown: Sequence[int],
    heights: tuple[float, float],
    width: int,
) -> None:
    """Lead from each picture to its step in the panels, which need not be below it."""
    for column, position in enumerate(shown):
        ends = _x(column, len(shown), width), _x(position, steps, width)
        draw.line((ends[0], heights[0], ends[1], heights[1]), MARK, 1)


def _draw_row(
    sheet: Image.Image, sample: SampleTrace, shown: Sequence[int], top: int, width: int
) -> None:
    draw = ImageDraw.Draw(sheet)
    for column, position in enumerate(shown):
        middle = _x(column, len(shown), width)
        small = sample.thumbnails[position]
        if small is not None:
            _place(sheet, _outlined(_picture(small), sample.regions), middle, top)
        text = f"step {sample.indices[position] + 1}"
        LABEL.draw(draw, (middle, top + CELL + 4), text, anchor="ma")
        level = f"noise {sample.sigmas[position]:.3g}"
        NOTE.draw(draw, (middle, top + CELL + 4 + LABEL.line), level, anchor="ma")


def _draw_result(sheet: Image.Image, result: Tensor, top: int, left: int) -> None:
    from t2x.media import to_pil

    draw = ImageDraw.Draw(sheet)
    _place(sheet, to_pil(result.unsqueeze(0))[0], left + CELL / 2, top)
    LABEL.draw(draw, (left + CELL / 2, top + CELL + 4), "result", anchor="ma")


def _picture(small: Tensor) -> Image.Image:
    return Image.fromarray(small.permute(1, 2, 0).contiguous().numpy())


def _outlined(picture: Image.Image, regions: Sequence[Region]) -> Image.Image:
    """The picture as large as it is shown, with the boxes in which things shall be."""
    drawn = fitted(picture, CELL)
    if not any(region.box for region in regions):
        return drawn
    drawn = drawn.copy()
    draw = ImageDraw.Draw(drawn)
    for number, region in enumerate(regions):
        if region.box is not None:
            x0, y0, x1, y1 = region.box
            sides = (x0 * drawn.width, y0 * drawn.height, x1 * drawn.width, y1 * drawn.height)
            inset = (sides[0] + 1, sides[1] + 1, sides[2] - 2, sides[3] - 2)
            draw.rectangle(inset, outline=COLORS[number % len(COLORS)], width=2)
    return drawn


def _place(sheet: Image.Image, picture: Image.Image, middle: float, top: int) -> None:
    drawn = fitted(picture, CELL)
    x, y = round(middle - drawn.width / 2), top + (CELL - drawn.height) // 2
    sheet.paste(drawn, (x, y))
    box = (x - 1, y - 1, x + drawn.width, y + drawn.height)
    ImageDraw.Draw(sheet).rectangle(box, outline=FRAME)


# ---- curves -------------------------------------------------------------------------------------


def _curves(sample: SampleTrace, width: int) -> Image.Image:
    """A panel for each reward, one for the weights, one for the step size, where they are."""
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        from t2x.registry import missing_dependency

        raise missing_dependency(error) from error
    names = list(sample.values)
    weighed = any(_known(row) for row in sample.weights.values())
    stepped = _known(sample.eta)
    count = len(names) + weighed + stepped
    high = count * PANEL + max(count - 1, 0) * BETWEEN + AXIS + LEAD
    wide = LEFT + width + RIGHT
    with rc_context(_SETTINGS), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prompt or name with signs that the font lacks
        figure = Figure(figsize=(wide / DPI, high / DPI), dpi=DPI, facecolor=PAPER)
        FigureCanvasAgg(figure)
        panels = [_panel(figure, at, count, (wide, high), width) for at in range(count)]
        for at, name in enumerate(names):
            _draw_reward(panels[at], name, sample.values[name], at)
        if weighed:
            _draw_weights(panels[len(names)], sample)
        if stepped:
            _draw_eta(panels[-1], sample.eta)
        for axes in panels:
            _finish(axes, sample, width, last=axes is panels[-1])
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return Image.open(buffer).convert("RGB")


def _known(values: Sequence[float]) -> bool:
    return any(map(math.isfinite, values))


def _panel(figure: Any, at: int, count: int, size: tuple[int, int], width: int) -> Any:
    """Axes whose data run from the middle of the first picture to that of the last."""
    wide, high = size
    bottom = AXIS + (count - 1 - at) * (PANEL + BETWEEN)
    return figure.add_axes((LEFT / wide, bottom / high, width / wide, PANEL / high))


def _draw_reward(axes: Any, name: str, values: Sequence[float], at: int) -> None:
    color = COLORS[at % len(COLORS)]
    _line(axes, values, color, MARKERS[at % len(MARKERS)])
    axes.margins(y=0.15)
    known = [v for v in values if math.isfinite(v)]
    _name(axes, 0.78, name, color, bold=True)
    if not known:
        axes.set_yticks([])
        _name(axes, 0.48, "not measured", MUTED)
        return
    _name(axes, 0.48, f"{_number(known[0])} → {_number(known[-1])}", INK)
    change = known[-1] - known[0]
    _name(axes, 0.22, f"{'+' if change > 0 else ''}{_number(change)}", MUTED)


def _draw_weights(axes: Any, sample: SampleTrace) -> None:
    for at, values in enumerate(sample.weights.values()):
        _line(axes, values, COLORS[at % len(COLORS)], MARKERS[at % len(MARKERS)])
    _name(axes, 0.78, "weights", INK, bold=True)
    ends = [
        (at, name, [v for v in values if math.isfinite(v)])
        for at, (name, values) in enumerate(sample.weights.items())
    ]
    for line, (at, name, known) in enumerate(ends[:5]):
        text = f"{name} {_number(known[-1])}" if known else f"{name} not measured"
        _name(axes, 0.6 - 0.16 * line, text, COLORS[at % len(COLORS)])
    axes.set_ylim(min(0.0, axes.get_ylim()[0]), None)


def _draw_eta(axes: Any, eta: Sequence[float]) -> None:
    _line(axes, eta, "#444444", "o")
    _name(axes, 0.78, "step size", INK, bold=True)
    _name(axes, 0.48, "eta", MUTED)
    axes.set_ylim(0.0, 1.15 * max(*axes.get_ylim(), 1e-9))


def _line(axes: Any, values: Sequence[float], color: str, marker: str) -> None:
    few = len(values) <= 40
    axes.plot(
        range(len(values)),
        values,
        color=color,
        linewidth=1.6,
        marker=marker if few or sum(map(math.isfinite, values)) == 1 else None,
        markersize=4.5,
        clip_on=False,
    )


def _name(axes: Any, height: float, text: str, color: str, *, bold: bool = False) -> None:
    axes.text(
        1.015,
        height,
        text if len(text) <= 26 else f"{text[:23]}...",
        transform=axes.transAxes,
        color=color,
        weight="bold" if bold else "normal",
        va="center",
        parse_math=False,
    )


def _finish(axes: Any, sample: SampleTrace, width: int, *, last: bool) -> None:
    """Shared x axis in steps, a band where steps were guided, lines at the pictures."""
    from matplotlib.ticker import MaxNLocator

    steps = len(sample.sigmas)
    edge = CELL / 2 / (width - CELL) * (steps - 1) if steps > 1 else 0.5
    axes.set_xlim(-edge, steps - 1 + edge)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.grid(axis="y")
    shown = spaced(steps, SHOWN)
    for position in shown:
        axes.axvline(position, color=MARK, linewidth=0.6, zorder=0.5)
    axes.set_xticks(shown, [str(sample.indices[i] + 1) for i in shown] if last else [])
    for i, value in enumerate(sample.eta):
        if math.isfinite(value):
            axes.axvspan(i - 0.5, i + 0.5, color="#eef1f5", lw=0, zorder=0)
    if last:
        axes.set_xlabel("step" + (" (shaded: guided)" if _known(sample.eta) else ""))


def _number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1e4 else f"{value:.1e}"
