"""A question of Adaptive Prompt Elicitation as one picture: the row, with a letter under each."""

from __future__ import annotations

import string
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from t2x.evaluation.lettering import readable, wrap
from t2x.evaluation.picture import FRAME, GAP, MARGIN, NAME, PAPER, TITLE, fitted
from t2x.media import to_pil

if TYPE_CHECKING:
    from t2x.asking.records import Question

__all__ = ["draw_question"]

_CELL = 256
_LABEL_LINES = 2


def draw_question(question: Question) -> Image.Image:
    """Draw the pictures of a question side by side, (RGB), with its words above; without pictures
    the labels alone."""
    pictures = [] if question.pictures is None else to_pil(question.pictures)
    shown = [fitted(picture, _CELL) for picture in pictures]
    tall = max((picture.height for picture in shown), default=0)
    width = 2 * MARGIN + len(question.options) * (_CELL + GAP) - GAP
    height = 2 * MARGIN + TITLE.line + GAP + tall + GAP + _LABEL_LINES * NAME.line
    sheet = Image.new("RGB", (width, height), PAPER)
    draw = ImageDraw.Draw(sheet)
    (title,) = wrap(readable(question.text), TITLE, width - 2 * MARGIN, 1)
    TITLE.draw(draw, (MARGIN, MARGIN), title)
    top = MARGIN + TITLE.line + GAP
    for at, label in enumerate(question.options):
        left = MARGIN + at * (_CELL + GAP)
        if shown:
            picture = shown[at]
            x = left + (_CELL - picture.width) // 2
            sheet.paste(picture, (x, top))
            box = (x - 1, top - 1, x + picture.width, top + picture.height)
            draw.rectangle(box, outline=FRAME)
        lines = wrap(readable(f"{string.ascii_lowercase[at]}: {label}"), NAME, _CELL, _LABEL_LINES)
        for number, line in enumerate(lines):
            NAME.draw(draw, (left, top + tall + GAP // 2 + number * NAME.line), line)
    return sheet
