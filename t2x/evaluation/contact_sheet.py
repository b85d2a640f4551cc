"""Scored pictures side by side, the best first: as one PNG, and as a page that works offline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from t2x.evaluation.html import data_url, escaped, fill_page
from t2x.evaluation.lettering import readable, wrap
from t2x.evaluation.picture import FRAME, GAP, MARGIN, NAME, PAPER, SMALL, SUBTITLE, TITLE
from t2x.evaluation.scores import THUMBNAIL, Row, ranked

COLUMNS = 5
PROMPT_LINES = 2

__all__ = ["draw_contact_sheet", "draw_sheet", "scores_page"]


def draw_contact_sheet(rows: Sequence[Row], by: str) -> Image.Image:
    """Draw the rows that were scored, sorted by the reward ``by``, with prompts and all scores.

    Rows need thumbnails. Those that failed are only counted.
    """
    shown = ranked(rows, by)
    return draw_sheet(shown, f"{len(shown)} scored by {by}", _summary(rows, by))


def draw_sheet(shown: Sequence[Row], title: str, subtitle: str) -> Image.Image:
    """Draw rows with thumbnails in their order, ``COLUMNS`` in a line, with prompts and scores."""
    columns = max(1, min(COLUMNS, len(shown)))
    names = list(shown[0].scores) if shown else []
    text = NAME.line + PROMPT_LINES * SMALL.line + len(names) * SMALL.line
    cell_w, cell_h = THUMBNAIL + GAP, THUMBNAIL + text + 2 * GAP
    top = MARGIN + TITLE.line + SUBTITLE.line + GAP
    width = max(2 * MARGIN + columns * cell_w - GAP, 480)
    height = top + math.ceil(len(shown) / columns) * cell_h + MARGIN
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    TITLE.draw(draw, (MARGIN, MARGIN), readable(title))
    (line,) = wrap(readable(subtitle), SUBTITLE, width - 2 * MARGIN, 1)
    SUBTITLE.draw(draw, (MARGIN, MARGIN + TITLE.line), line)
    for i, row in enumerate(shown):
        at = (MARGIN + i % columns * cell_w, top + i // columns * cell_h)
        _draw_cell(sheet, row, i + 1, at)
    return sheet


def scores_page(rows: Sequence[Row], by: str) -> str:
    """Write the page: the contact sheet, sorted by ``by``, and what failed with the reason."""
    failed = [row for row in rows if row.error]
    items = "\n".join(
        f"<tr><td>{escaped(row.item.picture)}</td><td>{escaped(row.error)}</td></tr>"
        for row in failed
    )
    table = (
        '<h2>Not scored</h2>\n<div class="scroll"><table><thead><tr><th>file</th><th>why</th></tr>'
        f"</thead><tbody>\n{items}\n</tbody></table></div>"
    )
    return fill_page(
        "scores.html",
        title=escaped(f"t2x score: sorted by {by}"),
        summary=escaped(_summary(rows, by)),
        cards="\n".join(_card(row, i) for i, row in enumerate(ranked(rows, by), 1)),
        failures=table if failed else "",
    )


def _summary(rows: Sequence[Row], by: str) -> str:
    failed = sum(bool(row.error) for row in rows)
    missing = sum(not row.error and math.isnan(row.scores[by]) for row in rows)
    parts = [f"{len(rows) - failed} of {len(rows)} files scored, higher is better"]
    if missing:
        parts.append(f"{missing} not measured by {by}, at the end")
    return "; ".join(parts)


def _draw_cell(sheet: Image.Image, row: Row, rank: int, at: tuple[int, int]) -> None:
    draw = ImageDraw.Draw(sheet)
    x, y = at
    if (small := row.thumbnail) is not None:
        left, top = x + (THUMBNAIL - small.width) // 2, y + (THUMBNAIL - small.height) // 2
        sheet.paste(small, (left, top))
        box = (left - 1, top - 1, left + small.width, top + small.height)
        draw.rectangle(box, outline=FRAME)
    y += THUMBNAIL + GAP // 2
    (name,) = wrap(readable(f"{rank}. {Path(row.item.picture).name}"), NAME, THUMBNAIL, 1)
    NAME.draw(draw, (x, y), name)
    y += NAME.line
    for line in wrap(readable(row.item.prompt), SMALL, THUMBNAIL, PROMPT_LINES):
        SMALL.draw(draw, (x, y), line)
        y += SMALL.line
    for label, value in row.scores.items():
        SMALL.draw(draw, (x, y), wrap(readable(label), SMALL, THUMBNAIL - 90, 1)[0])
        SMALL.draw(draw, (x + THUMBNAIL, y), _number(value), anchor="ra")
        y += SMALL.line


def _card(row: Row, rank: int) -> str:
    shot = ""
    if row.thumbnail is not None:
        name = escaped(Path(row.item.picture).name)
        shot = f'<figure><img class="shot" alt="{name}" src="{data_url(row.thumbnail)}"></figure>'
    scores = "\n".join(
        f'<tr><td>{escaped(name)}</td><td class="n">{_number(value)}</td></tr>'
        for name, value in row.scores.items()
    )
    return (
        f'<div class="pair"><h3>{rank}. {escaped(row.item.picture)}</h3>\n{shot}\n'
        f'<p class="prompt">{escaped(row.item.prompt)}</p>\n'
        f"<table><tbody>\n{scores}\n</tbody></table></div>"
    )


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "not measured"
