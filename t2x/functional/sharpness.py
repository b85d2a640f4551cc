"""Classical measures of one picture without a reference: blur and noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["blur_effect", "luma", "noise_level"]

_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
_LENGTH = 9
_NORMAL = 0.6744898  # median of |x| of a standard normal


def luma(pictures: Tensor) -> Tensor:
    """Brightness, 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601): (..., 3, H, W) -> (..., H, W)."""
    weights = pictures.new_tensor(_LUMA).view(3, 1, 1)
    return (pictures * weights).sum(-3)


def blur_effect(grey: Tensor, *, length: int = _LENGTH) -> Tensor:
    """How little a picture changes when it is blurred again (Crete et al. 2007, The blur effect:
    perception and estimation with a new no-reference perceptual blur metric, SPIE 6492): (N, H, W)
    -> (N,) in [0, 1], 0 sharp, 1 blurred.

    Along each axis: D are differences of neighbours, D' those after a mean over ``length`` pixels,
    V = max(0, |D| - |D'|), b = (sum |D| - sum V) / sum |D|; the larger b counts. An isolated step
    between two levels gives 1 / length. NaN for a picture of one colour, or less than 2 pixels
    wide or high: it has no edge to be sharp or blurred.

    Differs from the paper: borders are repeated outwards so that the size is kept.
    """
    axes = [_blur_along(grey, length), _blur_along(grey.transpose(-1, -2), length)]
    both = torch.stack(axes)  # NaN where an axis holds no edge: the other one counts
    worst = both.nan_to_num(-1.0).amax(0)
    return torch.where(both.isnan().all(0), torch.nan, worst)


def _blur_along(grey: Tensor, length: int) -> Tensor:
    """b of the last axis, NaN if nothing changes along it."""
    before, after = (length - 1) // 2, length // 2
    padded = F.pad(grey[:, None], (before, after, 0, 0), mode="replicate")
    smooth = F.avg_pool2d(padded, (1, length), stride=1)[:, 0]
    sharp = grey.diff(dim=-1).abs()
    lost = (sharp - smooth.diff(dim=-1).abs()).clamp(min=0).sum((-2, -1))
    total = sharp.sum((-2, -1))
    edges = total > 1e-4  # less than a tenth of one grey level of 8 bits in the whole picture
    return torch.where(edges, (total - lost) / torch.where(edges, total, 1.0), torch.nan)


def noise_level(grey: Tensor) -> Tensor:
    """Standard deviation of pixel noise, median |d| / 0.6745 over the finest diagonal details
    (Donoho & Johnstone 1994, Biometrika 81, 425-455): (N, H, W) -> (N,), in units of grey.

    d = (a - b - c + e) / 2 over blocks of 2 x 2 pixels, the Haar wavelet. The median looks past
    edges as long as these are in less than half of the blocks. NaN below 2 x 2 pixels.
    """
    if min(grey.shape[-2:]) < 2:
        return grey.new_full(grey.shape[:1], torch.nan)
    a, b = grey[:, :-1:2, :-1:2], grey[:, :-1:2, 1::2]
    c, e = grey[:, 1::2, :-1:2], grey[:, 1::2, 1::2]
    height, width = e.shape[-2:]
    d = (a[:, :height, :width] - b[:, :height, :width] - c[:, :height, :width] + e) / 2
    return d.abs().flatten(1).median(-1).values / _NORMAL
