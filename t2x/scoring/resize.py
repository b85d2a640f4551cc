"""One tensor path from media to a network's input, differentiable, equal to what the weights' own
PIL preprocessing gives.

PIL's bicubic filter is antialiased and its result is cut to 8 bits after each direction; the tensor
path is antialiased and cut to [0, 1] at the same places, so the two differ by rounding alone. Which
size, crop, padding, mean and deviation apply is read from the weights' own configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = ["Preprocess", "resize"]

_MODES = ("shortest", "longest", "squash")
_FILTERS = ("bicubic", "bilinear")


def resize(pictures: Tensor, size: tuple[int, int], *, filter: str = "bicubic") -> Tensor:
    """Resize (N, C, H, W) in [0, 1] to ``size`` (height, width) with antialiasing. No-op at the
    same size.

    Like PIL: first along rows, then along columns, and what overshoots is cut to [0, 1] after each.
    Pillow 13 turns the order for some tall pictures whose aspect changes, which shows at sharp
    edges alone; the older order is kept here for all.
    """
    for target in ((pictures.shape[-2], size[1]), size):
        if tuple(pictures.shape[-2:]) != target:
            pictures = F.interpolate(
                pictures, size=target, mode=filter, align_corners=False, antialias=True
            ).clamp(0, 1)
    return pictures


@dataclass(frozen=True)
class Preprocess:
    """From media in [0, 1] to (N, 3, ``size``) normalised by ``mean`` and ``std``.

    ``mode``: *shortest* (shorter side to size, centre crop), *longest* (longer side to size, padded
    by ``fill``, in [0, 1] per channel) or *squash* (both sides to size).
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    mode: str = "shortest"
    filter: str = "bicubic"
    fill: tuple[float, ...] = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise T2XError(f"unknown resize mode {self.mode!r}; allowed: {', '.join(_MODES)}")
        if self.filter not in _FILTERS:
            raise T2XError(f"unknown filter {self.filter!r}; allowed: {', '.join(_FILTERS)}")

    @staticmethod
    def from_open_clip(config: Mapping[str, Any]) -> Preprocess:
        """Read the ``preprocess_cfg`` that open_clip keeps with its weights."""
        size = config["size"]
        fill = config.get("fill_color", 0)
        return Preprocess(
            (size, size) if isinstance(size, int) else (size[0], size[1]),
            tuple(config["mean"]),
            tuple(config["std"]),
            config.get("resize_mode", "shortest"),
            config.get("interpolation", "bicubic"),
            tuple(v / 255 for v in ([fill] * 3 if isinstance(fill, int) else fill)),
        )

    def __call__(self, media: Media, *, dtype: torch.dtype | None = None) -> Tensor:
        """Prepare (N, 3, H, W), or a list of (1, 3, H, W): (N, 3, height, width), computed in the
        media's own precision.
        """
        if isinstance(media, list):
            return torch.cat([self(item, dtype=dtype) for item in media])
        if media.dtype in (torch.float16, torch.bfloat16):
            media = media.float()
        fitted = self._fit(media)
        mean, std = (fitted.new_tensor(v).view(-1, 1, 1) for v in (self.mean, self.std))
        out = (fitted - mean) / std
        return out if dtype is None else out.to(dtype)

    def _fit(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        target_h, target_w = self.size
        if self.mode == "squash":
            return resize(x, self.size, filter=self.filter)
        ratios = (height / target_h, width / target_w)
        if self.mode == "longest":
            ratio = max(ratios)
            x = resize(x, (round(height / ratio), round(width / ratio)), filter=self.filter)
            return self._pad(x)
        x = resize(x, self._shortest(height, width), filter=self.filter)
        top = round((x.shape[-2] - target_h) / 2)
        left = round((x.shape[-1] - target_w) / 2)
        return x[..., top : top + target_h, left : left + target_w]

    def _shortest(self, height: int, width: int) -> tuple[int, int]:
        """Size after the shorter side has been fitted: torchvision cuts the longer one down, timm's
        helper for oblongs rounds.
        """
        target_h, target_w = self.size
        if target_h == target_w:
            short, long = min(height, width), max(height, width)
            other = int(target_h * long / short)
            return (target_h, other) if height <= width else (other, target_w)
        ratio = min(height / target_h, width / target_w)
        return round(height / ratio), round(width / ratio)

    def _pad(self, x: Tensor) -> Tensor:
        missing_h, missing_w = self.size[0] - x.shape[-2], self.size[1] - x.shape[-1]
        top, left = missing_h // 2, missing_w // 2
        fill = x.new_tensor(self.fill).view(1, -1, 1, 1)
        sides = (left, missing_w - left, top, missing_h - top)
        return F.pad(x - fill, sides) + fill
