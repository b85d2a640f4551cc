"""Tiny real pipelines of all families, calls and sources for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.generators import DiffusionGenerator
from t2x.testing import (
    CALLS,
    DISTILLED,
    EDITING,
    EDITING_CALLS,
    FAMILIES,
    SOURCE_SIDES,
    VARIANTS,
)

__all__ = ["ALL", "PRESETS", "PROMPTS", "SEEDS", "TEXT", "Family", "pictures", "small_call"]

TEXT = {**FAMILIES, **DISTILLED, **VARIANTS}
ALL = {**TEXT, **EDITING}
PROMPTS = ["two red cats", "a dog"]
# What each family's sampling settings are from; others keep those of their small call.
PRESETS = {
    "sd15": "sd-1.5",
    "sdxl": "sdxl-base",
    "turbo": "sdxl-turbo",
    "lightning": "sdxl-lightning",
    "sd3": "sd-3.5-medium",
    "flux": "flux.1-dev",
    "schnell": "flux.1-schnell",
    "flux2": "flux.2-dev",
    "klein": "flux.2-klein-base-4b",
    "klein4": "flux.2-klein-4b",
    "sana": "sana-1.6b",
    "sprint": "sana-sprint-1.6b",
    "pixart": "pixart-sigma",
    "qwen": "qwen-image-base",
    "z": "z-image-turbo",
    "wan": "wan2.1-t2v-1.3b",
    "wan22": "wan2.2-t2v-a14b",
    "wan5b": "wan2.2-ti2v-5b",
    "cogvideox": "cogvideox-2b",
    "cogvideox15": "cogvideox-1.5-5b",
    "ltx": "ltx-video",
    "sd15-img2img": "sd-1.5",
    "sdxl-img2img": "sdxl-base",
    "flux2-edit": "flux.2-dev",
    "klein-edit": "flux.2-klein-base-4b",
    "qwen-edit": "qwen-image-edit",
    "qwen-edit-plus": "qwen-image-edit-2511",
    "wan-i2v": "wan2.1-i2v-14b-480p",
    "wan22-i2v": "wan2.2-i2v-a14b",
    "cogvideox-i2v": "cogvideox-5b-i2v",
    "ltx-condition": "ltx-video-13b-distilled",
}
SEEDS = [0, 1]


@dataclass(frozen=True)
class Family:
    """``folder`` holds the pipeline and, in t2x.json, a call that is small enough for it."""

    name: str
    folder: Path
    generator: DiffusionGenerator
    start: dict[str, Any] = field(default_factory=dict)  # sources, where it starts from a picture

    @cached_property
    def plain(self) -> Tensor:
        """What it draws of the prompts."""
        media = self.generator.generate(PROMPTS, seeds=SEEDS, **self.start)
        assert isinstance(media, Tensor)
        return media


def pictures(name: str) -> Tensor:
    """Two sources of random pixels, as large as a family needs them."""
    side = SOURCE_SIDES.get(name, 32)
    noise = torch.Generator().manual_seed(7)
    return torch.rand(2, 3, side, side, generator=noise).mul(255).round().div(255)


def small_call(name: str) -> Mapping[str, Any]:
    """A call of two steps of a family, without the scale of guidance where a preset has it."""
    call = EDITING_CALLS[name] if name in EDITING else CALLS[name]
    kept = {k: v for k, v in call.items() if name not in PRESETS or not k.endswith("scale")}
    return {"num_inference_steps": 2, **kept}
