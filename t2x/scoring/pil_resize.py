"""PIL's resize on tensors, to the last bit, with the gradient of the filter.

PIL resizes 8-bit pictures with weights of 22 binary digits, first along rows, then along columns,
and rounds to 8 bits after each. Scorers were trained and published behind it, so their numbers
depend on that rounding: on smooth pictures by up to a hundredth of the spread between pictures.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["pil_resize"]

_SCALE = 1 << 22
_DOUBT = 4e-3
"""Distance from a half, in levels, below which a sum is taken again."""
_RADIUS = {"bilinear": 1.0, "bicubic": 2.0}


def pil_resize(pictures: Tensor, size: tuple[int, int], *, filter: str = "bicubic") -> Tensor:
    """Resize (N, C, H, W) in [0, 1] to ``size`` (height, width) as Pillow before 13 does: values
    are k / 255, those of the input too. No-op at the same size.

    ``filter``: *bicubic* or *bilinear*. The gradient is that of the filter; it passes the rounding
    as if it were not there, and ends where a value overshoots [0, 1].
    """
    if tuple(pictures.shape[-2:]) == tuple(size):
        return pictures
    levels = pictures * 255
    levels = _to_levels(levels, (levels.detach() + 0.5).floor())
    for target in ((pictures.shape[-2], size[1]), size):
        if tuple(levels.shape[-2:]) != tuple(target):
            smooth = F.interpolate(
                levels, size=target, mode=filter, align_corners=False, antialias=True
            )
            levels = _to_levels(smooth, _rounded(levels.detach(), smooth.detach(), filter))
    return levels / 255


def _to_levels(smooth: Tensor, rounded: Tensor) -> Tensor:
    """``rounded`` cut to [0, 255], with the gradient of ``smooth`` cut likewise."""
    inside = smooth.clamp(0, 255)
    return inside + (rounded.clamp(0, 255) - inside).detach()


def _rounded(levels: Tensor, smooth: Tensor, filter: str) -> Tensor:
    """``smooth``, which is ``levels`` resized along one dimension, rounded with halves upwards.

    What lies so near to a half that floating-point sums can't tell is summed exactly, from whole
    numbers below 2^40 in float64.
    """
    rounded = (smooth + 0.5).floor()
    doubtful = (smooth + 0.5 - rounded - 0.5).abs() > 0.5 - _DOUBT
    if not bool(doubtful.any()):
        return rounded
    if levels.shape[-2] != smooth.shape[-2]:
        return _rounded(levels.mT, smooth.mT, filter).mT
    *rows, column = torch.nonzero(doubtful, as_tuple=True)
    indices, weights = _taps(levels.shape[-1], smooth.shape[-1], filter)
    place = "cpu" if levels.device.type == "mps" else levels.device  # there is no float64 there
    near = indices.to(levels.device)[column]  # (doubtful, taps)
    values = levels[(*(r[:, None] for r in rows), near)].to(place).double()
    exact = (values * weights.to(place)[column.to(place)]).sum(1)
    rounded[doubtful] = (exact + 0.5).floor().to(rounded)
    return rounded


@lru_cache(maxsize=128)
def _taps(old: int, new: int, filter: str) -> tuple[Tensor, Tensor]:
    """Source positions and weights (``new``, taps) of every output position."""
    scale = old / new
    stretch = max(scale, 1.0)
    support = _RADIUS[filter] * stretch
    centre = (torch.arange(new, dtype=torch.float64)[:, None] + 0.5) * scale
    first = (centre - support + 0.5).clamp(min=0).long()
    last = (centre + support + 0.5).long().clamp(max=old)
    indices = first + torch.arange(2 * math.ceil(support) + 1)  # (new, taps)
    kernel = _KERNELS[filter]((indices - centre + 0.5) / stretch)
    kernel = torch.where(indices < last, kernel, torch.zeros_like(kernel))
    weights = kernel / kernel.sum(1, keepdim=True)
    fixed = (weights.abs() * _SCALE + 0.5).floor() * weights.sign() / _SCALE
    return indices.clamp(max=old - 1), fixed


def _bilinear(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _bicubic(x: Tensor) -> Tensor:
    """Keys' cubic convolution with a = -1/2."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


_KERNELS = {"bilinear": _bilinear, "bicubic": _bicubic}
