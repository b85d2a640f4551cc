"""Checks that every reward makes of its (prompt, media) pairs: N with N, one range, one number of
channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality

__all__ = [
    "check_pairs",
    "context_rows",
    "device_of",
    "finite",
    "measurable",
    "wants_gradient",
]

_OVERSHOOT = 0.5  # a guided picture may leave [0, 1] for a moment; another range goes further
_DIMENSIONS = {"image": 4, "video": 5}
_SHAPES = {"image": "(N, 3, H, W)", "video": "(N, F, 3, H, W)"}


def check_pairs(
    prompts: Sequence[str], media: Media, *, modality: Modality = "image", name: str = "reward"
) -> int:
    """Give N of N prompts and N media.

    Raises ``TypeError`` for a bare string or media that are no tensors, ``ValueError`` for a length
    mismatch, wrong dimensions, wrong channels, no pixels, integer pixels, or pixels of another
    range.
    """
    if isinstance(prompts, str) or not all(isinstance(p, str) for p in prompts):
        raise TypeError(f"{name}: prompts must be a list of strings, got {type(prompts).__name__}")
    if len(prompts) != len(media):
        raise ValueError(
            f"{name}: got {len(prompts)} prompts and {len(media)} media; N pairs need N of each "
            "(repeat the prompt to score several media against it)"
        )
    for item in media if isinstance(media, list) else [media]:
        _check_item(item, modality, name)
        if isinstance(media, list) and len(item) != 1:
            raise ValueError(f"{name}: each item of a list must hold one sample, got {len(item)}")
    return len(prompts)


def _check_item(item: object, modality: Modality, name: str) -> None:
    if not isinstance(item, Tensor):
        raise TypeError(
            f"{name}: media must be tensors, got {type(item).__name__}; PIL pictures go through "
            "t2x.from_pil"
        )
    if item.ndim != _DIMENSIONS[modality] or item.shape[-3] != 3:
        raise ValueError(
            f"{name} scores {modality}s of shape {_SHAPES[modality]}, got {tuple(item.shape)}; "
            "t2x.from_pil turns grey, palette and transparent pictures into RGB"
        )
    if not all(item.shape[1:]):
        raise ValueError(
            f"{name}: media have no frames or no pixels, got {tuple(item.shape)}; leave out "
            "samples without any"
        )
    if not item.is_floating_point():
        raise ValueError(
            f"{name}: media must be floats in [0, 1], got {item.dtype}; divide bytes by 255"
        )
    if item.numel():
        low, high = item.detach().nan_to_num(0.5, 0.5, 0.5).aminmax()
        if low < -_OVERSHOOT or high > 1 + _OVERSHOOT:
            raise ValueError(
                f"{name}: pixels lie between {float(low):.3g} and {float(high):.3g}, allowed is "
                "[0, 1]; divide 0..255 by 255, and move -1..1 there by (x + 1) / 2"
            )


def device_of(media: Media) -> torch.device:
    """Where media are, and so where their scores go; the CPU for an empty list."""
    items = media if isinstance(media, list) else [media]
    return items[0].device if items else torch.device("cpu")


def measurable(prompts: Sequence[str], media: Media, *, needs_text: bool = True) -> Tensor:
    """Which of N pairs can be scored, (N,) bool: pixels are finite and the prompt is not blank."""
    pixels = [bool(torch.isfinite(item.detach()).all()) for item in media]
    texts = [bool(p.strip()) or not needs_text for p in prompts]
    return torch.tensor([a and b for a, b in zip(pixels, texts, strict=True)], dtype=torch.bool)


def finite(media: Media) -> Media:
    """The same media with zeros in place of samples that hold NaN or infinity."""
    if isinstance(media, list):
        return [m if bool(torch.isfinite(m).all()) else torch.zeros_like(m) for m in media]
    good = torch.isfinite(media).flatten(1).all(1)
    if bool(good.all()):
        return media
    return torch.where(good.view(-1, *[1] * (media.ndim - 1)), media, torch.zeros_like(media))


def wants_gradient(media: Media) -> bool:
    """Whether a graph is to be built: the caller asks for it, and gradients are switched on."""
    items = media if isinstance(media, list) else [media]
    return torch.is_grad_enabled() and any(item.requires_grad for item in items)


def context_rows(context: Context | None, rows: Sequence[int]) -> Context | None:
    """The context of some samples, which may repeat; what holds for all of them stays."""
    if context is None:
        return None
    changes: dict[str, Any] = {}
    for field in fields(context):
        value = getattr(context, field.name)
        if isinstance(value, torch.Tensor):
            changes[field.name] = value[
                torch.tensor(list(rows), dtype=torch.long, device=value.device)
            ]
        elif value is not None and not isinstance(value, float | int):
            changes[field.name] = [value[i] for i in rows]
    return replace(context, **changes)
