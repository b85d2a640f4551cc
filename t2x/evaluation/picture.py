"""``compare.png``: original and rewritten side by side, prompts and score bars under the pictures.

Small pictures are enlarged by a whole number of pixels with nearest neighbour, large ones are
shrunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from t2x.evaluation.lettering import Lettering, readable, wrap
from t2x.evaluation.side_by_side import ARMS

if TYPE_CHECKING:
    from t2x.evaluation.side_by_side import RewardColumn, SideBySide

PANEL = 528  # width of one arm
MARGIN = 40
GUTTER = 56
GAP = 16
SHOWN = 4  # pictures per arm
PROMPT_LINES = 4
SUMMARY_LINES = 2
ROW = 36  # height of a score bar with its name

INK = "#1f2328"
MUTED = "#6b7280"
PAPER = "#ffffff"
FRAME = "#d0d7de"
TRACK = "#e8ebef"
BETTER = "#1a7f37"
WORSE = "#c2272d"
COLORS = {"original": "#6b7280", "rewritten": "#2f6feb"}
TITLE = Lettering(26, INK, bold=True)
SUBTITLE = Lettering(17, MUTED)
PROMPT = Lettering(22, INK)
NAME = Lettering(18, INK)
SMALL = Lettering(15, MUTED)
SUMMARY = Lettering(22, INK, bold=True)

__all__ = ["draw_comparison", "fitted", "fitted_size"]


def draw_comparison(result: SideBySide) -> Image.Image:
    """Draw the comparison as one RGB picture, as high as prompts and rewards need."""
    texts = {arm: readable(_prompt(result, arm)) for arm in ARMS}
    lines = {arm: wrap(text, PROMPT, PANEL, PROMPT_LINES) for arm, text in texts.items()}
    grid = _grid(result)
    top = MARGIN + TITLE.line + SUBTITLE.line + GAP
    prompt_top = top + grid.bottom + GAP
    bars_top = prompt_top + max(map(len, lines.values())) * PROMPT.line + GAP
    summary_top = bars_top + len(result.rewards) * ROW + GAP + 8
    summary = wrap(readable(result.summary()), SUMMARY, 2 * PANEL + GUTTER, SUMMARY_LINES)
    height = summary_top + 16 + len(summary) * SUMMARY.line + SMALL.line + MARGIN
    sheet = Image.new("RGB", (2 * (MARGIN + PANEL) + GUTTER, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    for column, arm in enumerate(ARMS):
        left = MARGIN + column * (PANEL + GUTTER)
        _draw_title(draw, result, arm, left)
        _draw_pictures(sheet, result, arm, (left, top), grid)
        for i, line in enumerate(lines[arm]):
            PROMPT.draw(draw, (left, prompt_top + i * PROMPT.line), line)
        for i, reward in enumerate(result.rewards):
            _draw_bar(draw, reward, arm, (left, bars_top + i * ROW))
    _draw_footer(draw, result, summary, summary_top)
    return sheet


def _prompt(result: SideBySide, arm: str) -> str:
    if arm == "original":
        return result.prompt
    negative = result.rewrite.negative
    return result.rewrite.text + (f" (without: {negative})" if negative else "")


@dataclass(frozen=True)
class _Grid:
    """Where the pictures of an arm go: ``count`` cells in rows, each ``width`` by ``height`` pixels
    and a line for the seed."""

    count: int
    columns: int
    width: int
    height: int

    @property
    def bottom(self) -> int:
        return math.ceil(self.count / self.columns) * (self.height + SMALL.line + 6)

    def corner(self, index: int) -> tuple[int, int]:
        row, column = divmod(index, self.columns)
        return column * (self.width + GAP), row * (self.height + SMALL.line + 6)


def _grid(result: SideBySide) -> _Grid:
    """Lay out the first pictures, the same for both arms; rows are as high as the highest."""
    count = min(SHOWN, len(result.seeds))
    columns = math.ceil(math.sqrt(count))
    width = (PANEL - GAP * (columns - 1)) // columns
    shown = [image for arm in ARMS for image in result.pictures[arm][:count]]
    return _Grid(count, columns, width, max(fitted_size(image, width)[1] for image in shown))


def fitted_size(image: Image.Image, cell: int) -> tuple[int, int]:
    """Width and height of a picture enlarged by a whole number, or shrunk, to fit into a square."""
    longest = max(image.size)
    if longest <= cell:
        times = cell // longest
        return image.width * times, image.height * times
    return max(1, image.width * cell // longest), max(1, image.height * cell // longest)


def fitted(image: Image.Image, cell: int) -> Image.Image:
    """Enlarge with nearest neighbour, or shrink smoothly."""
    small = max(image.size) <= cell
    method = Image.Resampling.NEAREST if small else Image.Resampling.LANCZOS
    return image.convert("RGB").resize(fitted_size(image, cell), method)


def _draw_title(draw: ImageDraw.ImageDraw, result: SideBySide, arm: str, left: int) -> None:
    tag = 10
    draw.rounded_rectangle((left, MARGIN + 5, left + tag, MARGIN + TITLE.size + 3), 3, COLORS[arm])
    TITLE.draw(draw, (left + tag + 10, MARGIN), arm.capitalize())
    if arm == "original":
        text = "the user's own words"
    elif result.changed:
        text = f"by {result.rewrite.model_id}, {_checks(result)}"
    else:
        reasons = f": {'; '.join(result.reasons)}" if result.reasons else ""
        text = f"{result.rewrite.status}{reasons}"
    (line,) = wrap(readable(text), SUBTITLE, PANEL, 1)
    SUBTITLE.draw(draw, (left, MARGIN + TITLE.line + 2), line)


def _checks(result: SideBySide) -> str:
    count = len(result.rewrite.checks)
    passed = f" ({count} checks passed)" if count and not result.reasons else ""
    return f"{result.rewrite.status}{passed}"


def _draw_pictures(
    sheet: Image.Image, result: SideBySide, arm: str, at: tuple[int, int], grid: _Grid
) -> None:
    draw = ImageDraw.Draw(sheet)
    shown = zip(result.seeds, result.pictures[arm], strict=True)
    for index, (seed, image) in zip(range(grid.count), shown, strict=False):
        x, y = (a + b for a, b in zip(at, grid.corner(index), strict=True))
        picture = fitted(image, grid.width)
        x += (grid.width - picture.width) // 2
        sheet.paste(picture, (x, y))
        draw.rectangle((x - 1, y - 1, x + picture.width, y + picture.height), outline=FRAME)
        SMALL.draw(draw, (x, y + grid.height + 4), f"seed {seed}")


def _draw_bar(
    draw: ImageDraw.ImageDraw, reward: RewardColumn, arm: str, at: tuple[int, int]
) -> None:
    left, top = at
    middle = top + ROW // 2
    (name,) = wrap(readable(reward.name), NAME, 112, 1)
    NAME.draw(draw, (left, middle), name, anchor="lm")
    mean = reward.mean(arm)
    if math.isnan(mean):
        SMALL.draw(draw, (left + 120, middle), "not measured", anchor="lm")
        return
    start, end = left + 120, left + PANEL - 160

    def place(value: float) -> float:
        return start + (end - start) * reward.share(value)

    draw.rounded_rectangle((start, middle - 8, end, middle + 8), 4, TRACK)
    if place(mean) - start >= 1:
        draw.rounded_rectangle((start, middle - 8, place(mean), middle + 8), 4, COLORS[arm])
    if arm == "rewritten":
        before = place(reward.mean("original"))
        draw.line((before, middle - 12, before, middle + 12), INK, 2)
    NAME.draw(draw, (left + PANEL - 88, middle), _number(mean), anchor="rm")
    if arm == "rewritten":
        _draw_difference(draw, reward.difference, (left + PANEL, middle))


def _draw_difference(draw: ImageDraw.ImageDraw, change: float, at: tuple[int, int]) -> None:
    color = BETTER if change > 0 else WORSE if change < 0 else MUTED
    text = f"{'+' if change > 0 else ''}{_number(change)}" if change else "same"
    Lettering(18, color, bold=True).draw(draw, at, text, anchor="rm")


def _number(value: float) -> str:
    """Three digits that matter, without an exponent where a plain number is short."""
    if abs(value) >= 100:
        return f"{value:.0f}" if abs(value) < 1e5 else f"{value:.1e}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def _draw_footer(
    draw: ImageDraw.ImageDraw, result: SideBySide, summary: list[str], top: int
) -> None:
    draw.line((MARGIN, top, MARGIN + 2 * PANEL + GUTTER, top), FRAME)
    top += 16
    for line in summary:
        SUMMARY.draw(draw, (MARGIN, top), line)
        top += SUMMARY.line
    count = len(result.seeds)
    seeds = "the same seed" if count == 1 else f"the same {count} seeds"
    note = f"{result.generator}, {seeds} on both sides"
    if result.rewards:
        note += "; scores: means against the original prompt; black line: the original"
    if count > SHOWN:
        note += f"; first {SHOWN} seeds shown"
    (line,) = wrap(readable(note), SMALL, 2 * PANEL + GUTTER, 1)
    SMALL.draw(draw, (MARGIN, top), line)
