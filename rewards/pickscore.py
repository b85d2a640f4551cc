"""PickScore: which of several pictures of a prompt people would pick, by a CLIP that was tuned on
their picks (Kirstain et al. 2023, arXiv 2305.01569).

    load_reward("pickscore")                            v1 of the hub (code MIT, 986 M parameters)
    load_reward("pickscore", source=FOLDER, processor=FOLDER)

Scales: ``logit``, exp(logit_scale) cos, about 15 to 26, whose softmax over pictures of one prompt
is the odds of each being picked; ``cos``. Values compare pictures of the same prompt only. Some
trainers divide by 26 to land near 1: do that with a weight in the ensemble.

The checkpoint has no processor of its own; it takes that of the CLIP which it was tuned from.
Parity: ``tests/parity/test_clip_parity.py``, against the repository's own inference code in
transformers 4.27. Not run on real weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.scores import cosine
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.reward import EncoderReward, Features

__all__ = ["PROCESSOR", "SCALES", "load"]

PROCESSOR = "laion/CLIP-ViT-H-14-laion2B-s32B-b79K"
SCALES = {"logit": (-math.inf, math.inf), "cos": (-1.0, 1.0)}


def load(
    source: str | Path | tuple[Any, Any] = "yuvalkirstain/PickScore_v1",
    *,
    processor: str | Path = PROCESSOR,
    scale: str = "logit",
    name: str = "pickscore",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``source``: hub id, folder or ``(model, processor)`` of a ``CLIPModel``,
    ``processor``: hub id or folder of what prepares its input, ``scale``: a key of ``SCALES``.

    Raises ``T2XError`` for an unknown scale or a source that can't be loaded.
    """
    if scale not in SCALES:
        raise T2XError(f"unknown scale {scale!r}; allowed: {', '.join(SCALES)}")
    encoder = load_clip(source, processor=processor, device=device, dtype=dtype)

    def head(features: Mapping[str, Features]) -> Tensor:
        clip = features["clip"]
        cos = cosine(clip["image"], clip["text"])
        return clip["logit_scale"].exp() * cos if scale == "logit" else cos

    return EncoderReward(
        name=name, encoders={"clip": encoder}, head=head, scale=scale, range=SCALES[scale]
    )
