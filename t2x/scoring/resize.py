"""One tensor path from media to a network's input, differentiable, equal to what the weights' own
PIL preprocessing gives.

PIL's bicubic filter is antialiased and its result is cut to 8 bits after each direction; the tensor
path is antialiased and cut to [0, 1] at the same places, so the two differ by rounding alone, and
not at all where the weights' preprocessing asks for rounding as well (``rounded``). Which size,
crop, padding, mean and deviation apply is read from the weights' own configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.errors import T2XError
from t2x.scoring.pil_resize import pil_resize

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = ["CLIP_MEAN", "CLIP_STD", "Preprocess", "resize"]

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

_MODES = ("shortest", "longest", "squash")
_FILTERS = ("bicubic", "bilinear")
_CENTRES = ("round", "floor")


def resize(
    pictures: Tensor,
    size: tuple[int, int],
    *,
    filter: str = "bicubic",
    cut: bool = True,
    rounded: bool = False,
) -> Tensor:
    """Resize (N, C, H, W) in [0, 1] to ``size`` (height, width) with antialiasing. No-op at the
    same size.

    Like PIL: first along rows, then along columns, and what overshoots is cut to [0, 1] after each;
    not with ``cut`` off, which is what torchvision makes of float tensors. With ``rounded`` it is
    also rounded to 8 bits after each, which makes it equal to PIL's
    (:func:`t2x.scoring.pil_resize.pil_resize`). Pillow 13 turns the order for some tall pictures
    whose aspect changes, which shows at sharp edges alone; the older order is kept here for all.
    """
    if rounded:
        return pil_resize(pictures, size, filter=filter)
    for target in ((pictures.shape[-2], size[1]), size):
        if tuple(pictures.shape[-2:]) != target:
            pictures = F.interpolate(
                pictures, size=target, mode=filter, align_corners=False, antialias=True
            )
            pictures = pictures.clamp(0, 1) if cut else pictures
    return pictures


@dataclass(frozen=True)
class Preprocess:
    """From media in [0, 1] to (N, 3, ``size``) normalised by ``mean`` and ``std``.

    ``mode``: *shortest* (shorter side to size, or to ``shorter`` pixels, then centre crop),
    *longest* (longer side to size, padded by ``fill``, in [0, 1] per channel) or *squash* (both
    sides to size). ``centre``: where the crop begins if an odd number of pixels goes, *round* (half
    to even, as in torchvision) or *floor* (as in transformers). ``cut``: whether the filter's
    overshoot is cut to [0, 1], as PIL does, or left, as torchvision does with float tensors.
    ``rounded``: to 8 bits after each direction, as PIL does; the gradient is as without.
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    mode: str = "shortest"
    filter: str = "bicubic"
    fill: tuple[float, ...] = (0.0, 0.0, 0.0)
    shorter: int | None = None
    centre: str = "round"
    cut: bool = True
    rounded: bool = False

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise T2XError(f"unknown resize mode {self.mode!r}; allowed: {', '.join(_MODES)}")
        if self.filter not in _FILTERS:
            raise T2XError(f"unknown filter {self.filter!r}; allowed: {', '.join(_FILTERS)}")
        if self.centre not in _CENTRES:
            raise T2XError(f"unknown centre {self.centre!r}; allowed: {', '.join(_CENTRES)}")

    @staticmethod
    def of_clip(size: int, *, mode: str = "shortest", rounded: bool = False) -> Preprocess:
        """To a square of ``size``, with the mean and deviation of CLIP's first weights."""
        return Preprocess((size, size), CLIP_MEAN, CLIP_STD, mode, rounded=rounded)

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

    @staticmethod
    def from_transformers(config: Mapping[str, Any]) -> Preprocess:
        """Read the ``preprocessor_config.json`` that transformers keeps with its weights.

        Raises ``T2XError`` for a way of resizing that it can't follow.
        """
        size, crop = config.get("size"), config.get("crop_size")
        size = {"shortest_edge": size} if isinstance(size, int) and crop else size
        size, crop = (_sides(v) for v in (size, crop if config.get("do_center_crop") else None))
        filter = {2: "bilinear", 3: "bicubic"}.get(config.get("resample", 3))
        steps = all(config.get(f"do_{step}", True) for step in ("resize", "rescale", "normalize"))
        bytes_to_one = abs(config.get("rescale_factor", 1 / 255) * 255 - 1) < 1e-3
        if filter is None or size is None or not (steps and bytes_to_one):
            raise T2XError(
                f"can't follow the picture processor {dict(config)}; it must resize to a height "
                "and width or to a shortest edge, bilinear (2) or bicubic (3), rescale by 1/255 "
                "and normalise"
            )
        short = size[0] if len(size) == 1 else None
        mean, std = tuple(config["image_mean"]), tuple(config["image_std"])
        if short is None and crop in (None, size):
            return Preprocess((size[0], size[1]), mean, std, "squash", filter)
        if short is None or crop is None or max(crop) > short:
            raise T2XError(
                f"can't follow the picture processor {dict(config)}; a shortest edge needs a "
                "centre crop no larger, and a height and width must not be cropped"
            )
        target = (crop[0], crop[-1])
        return Preprocess(target, mean, std, "shortest", filter, shorter=short, centre="floor")

    @staticmethod
    def from_torchvision(transform: Any) -> Preprocess:
        """Read the steps of a composed transform of pictures, as ``create_model_and_transforms`` of
        open_clip gives it beside the model.

        Raises ``T2XError`` for a step that it can't follow, as those that draw at random.
        """
        steps = {type(step).__name__: step for step in getattr(transform, "transforms", ())}
        resize_step = steps.pop("Resize", None) or steps.pop("ResizeKeepRatio", None)
        crop = steps.pop("CenterCrop", None) or steps.pop("CenterCropOrPad", None)
        normal = steps.pop("Normalize", None)
        odd = set(steps) - {"function", "ToTensor", "MaybeToTensor", "MaybeConvertMode"}
        if odd or resize_step is None or normal is None:
            raise T2XError(
                f"can't follow the transform of pictures {type(transform).__name__} ("
                f"{', '.join(sorted(odd)) or 'no Resize or no Normalize'}); give the one of "
                "validation, or (model, tokenizer) alone"
            )
        longest = bool(getattr(resize_step, "longest", 0))
        squash = crop is None
        sides = _pair(resize_step.size if squash else crop.size)
        short = None if squash or longest or resize_step.size == min(sides) else resize_step.size
        filter = str(getattr(resize_step.interpolation, "value", resize_step.interpolation))
        fill = getattr(crop, "fill", 0)
        return Preprocess(
            sides,
            tuple(float(v) for v in normal.mean),
            tuple(float(v) for v in normal.std),
            "squash" if squash else "longest" if longest else "shortest",
            filter,
            tuple(v / 255 for v in ([fill] * 3 if isinstance(fill, int) else fill)),
            shorter=short,
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
            return self._resize(x, self.size)
        if self.mode == "longest":
            ratio = max(height / target_h, width / target_w)
            fitted = (max(round(height / ratio), 1), max(round(width / ratio), 1))
            return self._pad(self._resize(x, fitted))
        x = self._resize(x, self._shortest(height, width))
        top = self._start(x.shape[-2] - target_h)
        left = self._start(x.shape[-1] - target_w)
        return x[..., top : top + target_h, left : left + target_w]

    def _resize(self, x: Tensor, size: tuple[int, int]) -> Tensor:
        return resize(x, size, filter=self.filter, cut=self.cut, rounded=self.rounded)

    def _start(self, missing: int) -> int:
        """First row or column of the crop when ``missing`` of them go."""
        return missing // 2 if self.centre == "floor" else round(missing / 2)

    def _shortest(self, height: int, width: int) -> tuple[int, int]:
        """Size after the shorter side has been fitted: torchvision cuts the longer one down, timm's
        helper for oblongs rounds.
        """
        target_h, target_w = self.size
        if target_h == target_w or self.shorter:
            target = self.shorter or target_h
            short, long = min(height, width), max(height, width)
            other = int(target * long / short)
            return (target, other) if height <= width else (other, target)
        ratio = min(height / target_h, width / target_w)
        return round(height / ratio), round(width / ratio)

    def _pad(self, x: Tensor) -> Tensor:
        missing_h, missing_w = self.size[0] - x.shape[-2], self.size[1] - x.shape[-1]
        top, left = missing_h // 2, missing_w // 2
        fill = x.new_tensor(self.fill).view(1, -1, 1, 1)
        sides = (left, missing_w - left, top, missing_h - top)
        return F.pad(x - fill, sides) + fill


def _sides(size: object) -> tuple[int, ...] | None:
    """(height, width), or (shortest edge,), of the ways in which transformers writes a size."""
    if isinstance(size, int):
        return size, size
    if isinstance(size, Mapping):
        keys = ("shortest_edge",) if "shortest_edge" in size else ("height", "width")
        if all(isinstance(size.get(k), int) for k in keys) and "longest_edge" not in size:
            return tuple(int(size[k]) for k in keys)
    return None


def _pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[-1]))
