"""Lettering for pictures: text in the one font that Pillow carries, broken into lines that fit.

Accents are dropped and signs that the font lacks are drawn as boxes, since no text may stop a
picture.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from PIL import ImageFont

if TYPE_CHECKING:
    from PIL import ImageDraw

_PLAIN = {"–": "-", "—": "-", "−": "-", "‐": "-", "→": "->", "←": "<-", "×": "x", "ß": "ss"}
_PLAIN |= {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "æ": "ae", "œ": "oe", "≥": ">="}
_INVISIBLE = ("Mn", "Me", "Cf", "Cc")
_NO_GLYPH = "\U000f0000"  # a private code point: the font answers with its box

__all__ = ["Lettering", "readable", "wrap"]


@dataclass(frozen=True)
class Lettering:
    """Text of one size and colour; ``bold`` thickens the only weight that there is."""

    size: int
    color: str = "#000000"
    bold: bool = False

    @property
    def font(self) -> Any:
        return _font(self.size)

    @property
    def line(self) -> int:
        return round(self.size * 1.35)

    def width(self, text: str) -> float:
        return float(self.font.getlength(text)) + self.bold

    def draw(
        self, draw: ImageDraw.ImageDraw, at: tuple[float, float], text: str, *, anchor: str = "la"
    ) -> None:
        draw.text(at, text, self.color, self.font, anchor)
        if self.bold:
            draw.text((at[0] + 0.5, at[1]), text, self.color, self.font, anchor)


def readable(text: str) -> str:
    """Give text in one line that the font can draw: accents dropped, unknown signs kept as they
    are (they become boxes), invisible ones left out."""
    return " ".join("".join(map(_drawn, text)).split())


def wrap(text: str, style: Lettering, width: float, max_lines: int) -> list[str]:
    """Break text into at most ``max_lines`` lines of ``width`` pixels; what is left out becomes
    "..."."""
    lines: list[str] = []
    line = ""
    for word in _pieces(text, style, width):
        longer = f"{line} {word}" if line else word
        if style.width(longer) <= width:
            line = longer
            continue
        if len(lines) == max_lines - 1:
            return [*lines, _shortened(line, style, width)]
        lines.append(line)
        line = word
    return [*lines, line] if line or not lines else lines


def _pieces(text: str, style: Lettering, width: float) -> Iterator[str]:
    """Give the words, those that are wider than a line in pieces."""
    for word in text.split():
        piece = ""
        for char in word:
            if piece and style.width(piece + char) > width:
                yield piece
                piece = ""
            piece += char
        yield piece


def _shortened(line: str, style: Lettering, width: float) -> str:
    while line and style.width(f"{line}...") > width:
        line = line[:-1]
    return f"{line.rstrip()}..."


@lru_cache(maxsize=32)
def _font(size: int) -> Any:
    return ImageFont.load_default(size)


@lru_cache(maxsize=4096)
def _has_glyph(char: str) -> bool:
    mask, box = (_font(24).getmask(c) for c in (char, _NO_GLYPH))
    return bool(mask.size != box.size or bytes(mask) != bytes(box))


@lru_cache(maxsize=4096)
def _drawn(char: str) -> str:
    """What is drawn for one character of a text."""
    if char.isspace():
        return " "
    kind = unicodedata.category(char)
    if kind in _INVISIBLE:
        return ""
    if kind == "Cs":  # half of a pair: no text at all
        return _NO_GLYPH
    if _has_glyph(char):
        return char
    if char in _PLAIN:
        return _PLAIN[char]
    parts = [c for c in unicodedata.normalize("NFKD", char) if unicodedata.category(c) != "Mn"]
    return "".join(parts) if parts and all(map(_has_glyph, parts)) else char
