"""The sprite sheet: one 64x64 RGBA picture per class, made once from the Noto Color Emoji font.

``python -m t2x.world.sprites FONT`` draws ``sprites.png`` anew. The font is licensed under the SIL
Open Font License 1.1, see ``SPRITES-LICENSE.txt`` beside the sheet.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from t2x.world.scene import CLASSES, EMOJI

__all__ = ["SPRITE_SIZE", "build_sheet", "load_sprites"]

SPRITE_SIZE = 64
_COLUMNS = 9
_FONT_SIZE = 109  # the one size at which the font holds bitmaps
_SHEET = Path(__file__).parent / "sprites.png"


def build_sheet(font_path: str) -> Image.Image:
    """Draw every class of the world from an emoji font into one RGBA sheet."""
    font = ImageFont.truetype(font_path, _FONT_SIZE)
    rows = -(-len(CLASSES) // _COLUMNS)
    sheet = Image.new("RGBA", (_COLUMNS * SPRITE_SIZE, rows * SPRITE_SIZE))
    for index, cls in enumerate(CLASSES):
        canvas = Image.new("RGBA", (160, 160))
        ImageDraw.Draw(canvas).text((8, 8), EMOJI[cls], font=font, embedded_color=True)
        glyph = canvas.crop(canvas.getbbox())
        side = max(glyph.size)
        square = Image.new("RGBA", (side, side))
        square.paste(glyph, ((side - glyph.width) // 2, (side - glyph.height) // 2))
        sprite = square.resize((SPRITE_SIZE, SPRITE_SIZE), Image.Resampling.LANCZOS)
        row, column = divmod(index, _COLUMNS)
        sheet.paste(sprite, (column * SPRITE_SIZE, row * SPRITE_SIZE))
    return sheet


@lru_cache(maxsize=1)
def load_sprites() -> dict[str, NDArray[np.float32]]:
    """Read the shipped sheet: class -> (64, 64, 4) float32 RGBA in [0, 1], not premultiplied."""
    sheet = np.asarray(Image.open(_SHEET).convert("RGBA"), dtype=np.float32) / np.float32(255)
    sprites: dict[str, NDArray[np.float32]] = {}
    for index, cls in enumerate(CLASSES):
        row, column = divmod(index, _COLUMNS)
        y, x = row * SPRITE_SIZE, column * SPRITE_SIZE
        sprites[cls] = sheet[y : y + SPRITE_SIZE, x : x + SPRITE_SIZE]
    return sprites


if __name__ == "__main__":
    build_sheet(sys.argv[1]).save(_SHEET, optimize=True)
