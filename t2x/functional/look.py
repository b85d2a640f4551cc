"""How a picture looks, in a few numbers that say nothing of what it shows."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["LOOK", "picture_look"]

LOOK = (
    "red", "green", "blue", "spread of red", "spread of green", "spread of blue", "colourfulness",
    "detail",
)  # fmt: skip
_SIDE = 64  # pixels that are looked at in each direction, so that the size of a picture has no say
_TINY = 1e-8


def picture_look(pixels: Tensor) -> Tensor:
    """(N, 3, H, W) in [0, 1] -> (N, 8), named by ``LOOK``: mean and standard deviation of each
    channel, the mean over pixels of the largest channel minus the smallest, and the mean change of
    brightness (the mean of the channels) from a pixel to the next, down plus right.
    """
    wide = pixels.to(torch.promote_types(pixels.dtype, torch.float32))
    small = F.adaptive_avg_pool2d(wide, _SIDE)  # (N, 3, 64, 64)
    mean = small.mean((-1, -2))
    spread = (small.var((-1, -2), correction=0) + _TINY).sqrt()
    colour = (small.amax(1) - small.amin(1)).mean((-1, -2))
    light = small.mean(1)
    down = (light[:, 1:] - light[:, :-1]).abs().mean((-1, -2))
    right = (light[..., 1:] - light[..., :-1]).abs().mean((-1, -2))
    return torch.cat([mean, spread, colour[:, None], (down + right)[:, None]], 1)
