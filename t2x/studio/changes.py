"""What an edit changed, and how well it kept the rest: measured in pixels, by no model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

VISIBLE = 0.1  # of the range of a channel: less is what coding a picture into latents does
_FADED = 0.25  # part of what did not change, in the map

__all__ = ["VISIBLE", "Change", "measured_change"]


@dataclass(frozen=True)
class Change:
    """An edited picture beside its source.

    ``share`` of the pixels, in [0, 1], differ by more than ``VISIBLE`` in a channel. ``kept``: peak
    signal to noise ratio in decibels (``masked_psnr``) outside the region that was allowed to
    change, of the whole picture without a region; NaN where nothing is outside. ``map``: the edited
    picture, RGB, with what did not change faded.
    """

    share: float
    kept: float
    map: Image

    @property
    def kept_all(self) -> bool:
        """Whether nothing changed where nothing was to."""
        from t2x.functional.psnr import MAX_PSNR

        return self.kept >= MAX_PSNR


def measured_change(
    source: Tensor, edited: Tensor, region: Sequence[float] | None = None
) -> Change | None:
    """Compare (3, H, W) in [0, 1] with what was made of it; None if it has another size.

    ``region``: left, top, right, bottom in [0, 1], as ``t2x.edit`` takes it as a mask.
    """
    if source.shape != edited.shape:
        return None
    from t2x.functional.psnr import masked_psnr
    from t2x.guidance.edit_plans import region_mask
    from t2x.media import to_pil

    before, after = source.unsqueeze(0), edited.unsqueeze(0).to(source)
    outside = before.new_ones(1, 1, *before.shape[-2:])
    if region is not None:
        left, top, right, bottom = region
        outside = outside - region_mask((left, top, right, bottom), before)
    visible = ((after - before).abs().amax(1, keepdim=True) > VISIBLE).to(before)
    kept = float(masked_psnr(before, after, outside)) if outside.any() else math.nan
    seen = visible + (1 - visible) * _FADED
    faded = after * seen + (1 - seen)  # towards white
    return Change(float(visible.mean()), kept, to_pil(faded)[0])
