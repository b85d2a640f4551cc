"""CLIPScore: how well a picture and a prompt fit, by the cosine of their CLIP embeddings (Hessel et
al. 2021, arXiv 2104.08718).

    load_reward("clip")                                 the embedded emoji-clip
    load_reward("clip", source="owner/model")           any CLIP of open_clip or transformers
    load_reward("clip", source="ViT-B-32:openai", scale="clipscore", prefix="A photo depicts ")

Toolkits disagree about what "CLIPScore" is, so the scale is named: ``cos`` (raw), ``clipscore``
(2.5 max(cos, 0), the paper's, whose captions also get the prefix "A photo depicts "), ``x100`` (100
cos; differs from torchmetrics, which clamps the mean at 0), ``logit`` (the model's own temperature,
exp(logit_scale) cos). Rewards of one model share one picture pass, whatever their scale and prefix.

Parity: ``tests/parity/test_clip_parity.py``, against jmhessel/clipscore. Not run on real weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.scores import clip_s, cosine, scaled_cosine
from t2x.scoring.clip_encoder import load_clip, text_part
from t2x.scoring.reward import EncoderReward, Features

__all__ = ["SCALES", "load"]

SCALES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[float, float]]] = {
    "cos": (lambda cos, logit_scale: cos, (-1.0, 1.0)),
    "clipscore": (lambda cos, logit_scale: clip_s(cos), (0.0, 2.5)),
    "x100": (lambda cos, logit_scale: scaled_cosine(cos, math.log(100)), (-100.0, 100.0)),
    "logit": (lambda cos, logit_scale: logit_scale.exp() * cos, (-math.inf, math.inf)),
}


def load(
    source: str | Path | tuple[Any, Any] = "emoji-clip",
    *,
    scale: str = "cos",
    prefix: str = "",
    name: str = "clip",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.clip_encoder.load_clip`, ``scale`` a key
    of ``SCALES``, ``prefix`` goes before every prompt.

    Raises ``T2XError`` for an unknown scale or a source that can't be loaded.
    """
    if scale not in SCALES:
        raise T2XError(f"unknown scale {scale!r}; allowed: {', '.join(SCALES)}")
    to_scale, limits = SCALES[scale]
    encoder = load_clip(source, device=device, dtype=dtype)
    text = text_part(prefix)

    def head(features: Mapping[str, Features]) -> Tensor:
        clip = features["clip"]
        return to_scale(cosine(clip["image"], clip[text]), clip["logit_scale"])

    return EncoderReward(
        name=name,
        encoders={"clip": encoder},
        head=head,
        parts=frozenset({"image", text}),
        scale=scale,
        range=limits,
    )
