"""Human-preference scores of CLIP form: HPS (Wu et al. 2023, arXiv 2306.09341) and PickScore
(Kirstain et al. 2023, arXiv 2305.01569).

    load_reward("hps")                                    the embedded emoji-hps
    load_reward("hps", source="ViT-H-14:/models/HPS_v2.1_compressed.pt", preprocess=HPS_PREPROCESS)

A CLIP fine-tuned on which of two pictures of one prompt people like better, so scores compare
pictures of the same prompt only. Scales: ``cos`` (what the ``hpsv2`` package's score() gives),
``x100`` (what its benchmark prints), ``logit`` (PickScore; a softmax of it over pictures of one
prompt is the odds of each being preferred).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.scores import cosine
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.resize import Preprocess
from t2x.scoring.reward import EncoderReward, Features

__all__ = ["HPS_PREPROCESS", "SCALES", "load"]

SCALES: dict[str, tuple[float, float]] = {
    "cos": (-1.0, 1.0),
    "x100": (-100.0, 100.0),
    "logit": (-math.inf, math.inf),
}
# HPSv2 fits the longer side and pads with black, unlike the CLIP that it was tuned from;
# antialiased, as torchvision >= 0.17 does.
HPS_PREPROCESS = Preprocess(
    size=(224, 224),
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    mode="longest",
)


def load(
    source: str | Path | tuple[Any, Any] = "emoji-hps",
    *,
    scale: str = "cos",
    preprocess: Preprocess | None = None,
    name: str = "hps",
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> EncoderReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.clip_encoder.load_clip`, ``scale`` a key
    of ``SCALES``.

    ``preprocess`` replaces what the weights' configuration says. Raises ``T2XError`` for an unknown
    scale.
    """
    if scale not in SCALES:
        raise T2XError(f"unknown scale {scale!r}; allowed: {', '.join(SCALES)}")
    encoder = load_clip(source, device=device, dtype=dtype)
    if preprocess is not None:
        encoder = copy(encoder)
        encoder.preprocess, encoder.key = preprocess, f"{encoder.key} {preprocess}"

    def head(features: Mapping[str, Features]) -> Tensor:
        clip = features["clip"]
        cos = cosine(clip["image"], clip["text"])
        factor = clip["logit_scale"].exp() if scale == "logit" else {"cos": 1, "x100": 100}[scale]
        return factor * cos

    return EncoderReward(
        name=name, encoders={"clip": encoder}, head=head, scale=scale, range=SCALES[scale]
    )
