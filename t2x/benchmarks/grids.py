"""Several pictures of one prompt in one file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

__all__ = ["grid", "same_size"]


def same_size(pictures: Sequence[Tensor]) -> bool:
    """Whether all pictures (3, H, W) have one size."""
    return len({picture.shape for picture in pictures}) == 1


def grid(pictures: Sequence[Tensor], *, columns: int) -> Image:
    """Lay pictures (3, H, W) of one size side by side, row by row, without a margin; one row if
    there are no more than ``columns``. What the last row lacks is black."""
    from PIL import Image as Images

    from t2x.media import to_pil

    tiles = [to_pil(picture.unsqueeze(0))[0] for picture in pictures]
    width, height = tiles[0].size
    rows = -(-len(tiles) // columns)
    sheet = Images.new("RGB", (width * min(columns, len(tiles)), height * rows))
    for i, tile in enumerate(tiles):
        sheet.paste(tile, (i % columns * width, i // columns * height))
    return sheet
