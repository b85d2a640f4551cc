"""Human-preference scores of CLIP form by HPS (Wu et al. 2023, arXiv 2303.14420 and 2306.09341).

    load_reward("hps")         the embedded emoji-hps
    load_reward("hpsv2")       HPSv2.0, of the hub's xswu/HPSv2 (Apache-2.0)
    load_reward("hpsv2.1")     HPSv2.1, the same; source="HPS_v2.1_compressed.pt" for a file

A CLIP fine-tuned on which of two pictures of one prompt people like better, so scores compare
pictures of the same prompt only, and v2.0 never with v2.1. Scales: ``cos`` (what the ``hpsv2``
package's score() gives), ``x100`` (what its benchmark prints), ``logit`` (the model's own
temperature; a softmax of it over pictures of one prompt is the odds of each being preferred).

Differs from the ``hpsv2`` package: no half precision, whose steps of 0.00024 make ties; pictures
with a longer side of exactly 224 are padded like all others (there they are not, and fail);
transparent pictures are laid on white (there they fail); 16 bits become 8 (there they turn white).

Parity: ``tests/parity/test_clip_parity.py``, against tgxs002/HPSv2. Not run on real weights.
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
from t2x.scoring.resize import Preprocess
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.state_files import SUFFIXES
from t2x.weight_files import find_weights

__all__ = [
    "HPS_FILES",
    "HPS_PREPROCESS",
    "SCALES",
    "load",
    "load_hpsv2",
    "load_hpsv2_1",
    "load_published",
]

SCALES: dict[str, tuple[float, float]] = {
    "cos": (-1.0, 1.0),
    "x100": (-100.0, 100.0),
    "logit": (-math.inf, math.inf),
}
# HPSv2 fits the longer side and pads with black, unlike the CLIP that it was tuned from. It resizes
# floats, so the filter's overshoot stays; antialiased, as torchvision >= 0.17 does.
HPS_PREPROCESS = Preprocess(
    size=(224, 224),
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
    mode="longest",
    cut=False,
)
HPS_FILES = {"hpsv2": "HPS_v2_compressed.pt", "hpsv2.1": "HPS_v2.1_compressed.pt"}


def load(
    source: str | Path | tuple[Any, Any] = "emoji-hps",
    *,
    scale: str = "cos",
    preprocess: Preprocess | None = None,
    name: str = "hps",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
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
        encoder = encoder.with_preprocess(preprocess)

    def head(features: Mapping[str, Features]) -> Tensor:
        clip = features["clip"]
        cos = cosine(clip["image"], clip["text"])
        factor = clip["logit_scale"].exp() if scale == "logit" else {"cos": 1, "x100": 100}[scale]
        return factor * cos

    return EncoderReward(
        name=name, encoders={"clip": encoder}, head=head, scale=scale, range=SCALES[scale]
    )


def load_published(
    source: str | Path | tuple[Any, Any] | None = None,
    *,
    version: str,
    name: str = "",
    architecture: str = "ViT-H-14",
    scale: str = "cos",
    preprocess: Preprocess = HPS_PREPROCESS,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load one of the published files into the architecture of open_clip's list that it fills;
    ``version``: a key of ``HPS_FILES``, also the name unless there is another; ``source``: in place
    of the hub's the file, a folder that holds it, OWNER/MODEL or OWNER/MODEL/FILE, pickle or
    safetensors, or what is loaded (``t2x.scoring.loaded``). Pickles are read under
    ``torch.load(weights_only=True)``.

    Other options and errors as in :func:`load`.
    """
    if source is None or isinstance(source, (str, Path)):
        usual = HPS_FILES[version]
        what = f"checkpoint {usual} of xswu/HPSv2"
        path = find_weights(
            source or "xswu/HPSv2", what=what, suffixes=(*SUFFIXES, ""), preferred=(usual,)
        )
        source = f"{architecture}:{path.absolute()}"
    name = name or version
    return load(source, scale=scale, preprocess=preprocess, name=name, device=device, dtype=dtype)


def load_hpsv2(source: str | Path | tuple[Any, Any] | None = None, **options: Any) -> EncoderReward:
    """HPSv2.0; options of :func:`load_published`."""
    return load_published(source, version="hpsv2", **options)


def load_hpsv2_1(
    source: str | Path | tuple[Any, Any] | None = None, **options: Any
) -> EncoderReward:
    """HPSv2.1; options of :func:`load_published`."""
    return load_published(source, version="hpsv2.1", **options)
