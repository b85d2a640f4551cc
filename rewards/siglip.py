"""SigLIP: how well a picture and a prompt fit, as the probability that they belong together (Zhai
et al. 2023, arXiv 2303.15343).

    load_reward("siglip")                               google/siglip-so400m-patch14-384
    load_reward("siglip", source="owner/model")         any SigLIP of transformers or open_clip

Scales: ``probability``, sigmoid(exp(scale) cos + bias); ``logit``, what stands inside the sigmoid,
better for gradients where the probability is close to 0 or 1; ``cos``. None compares with
CLIPScore. Pictures are squashed to a square, texts padded to 64 tokens, as the model was trained;
the tokenizer ignores case and, in the first version, punctuation.

Weights Apache-2.0, 878 M parameters; the tokenizer of the first version needs the packages
sentencepiece and protobuf. Not run on real weights.
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
from t2x.functional.scores import cosine, match_probability, scaled_cosine
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.reward import EncoderReward, Features

__all__ = ["SCALES", "load"]

SCALES: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], tuple[float, float]]] = {
    "probability": (match_probability, (0.0, 1.0)),
    "logit": (lambda cos, scale, bias: scaled_cosine(cos, scale) + bias, (-math.inf, math.inf)),
    "cos": (lambda cos, scale, bias: cos, (-1.0, 1.0)),
}


def load(
    source: str | Path | tuple[Any, Any] = "google/siglip-so400m-patch14-384",
    *,
    scale: str = "probability",
    name: str = "siglip",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.clip_encoder.load_clip`, ``scale`` a key
    of ``SCALES``.

    Raises ``T2XError`` for an unknown scale, a source that can't be loaded, or a CLIP that is no
    SigLIP.
    """
    if scale not in SCALES:
        raise T2XError(f"unknown scale {scale!r}; allowed: {', '.join(SCALES)}")
    to_scale, limits = SCALES[scale]
    encoder = load_clip(source, device=device, dtype=dtype)
    if getattr(encoder.model, "logit_bias", None) is None:
        raise T2XError(
            f"{encoder.key} has no logit bias, so it is no SigLIP; score it as the reward clip"
        )

    def head(features: Mapping[str, Features]) -> Tensor:
        clip = features["clip"]
        cos = cosine(clip["image"], clip["text"])
        return to_scale(cos, clip["logit_scale"], clip["logit_bias"])

    return EncoderReward(
        name=name, encoders={"clip": encoder}, head=head, scale=scale, range=limits
    )
