"""DINO similarity: the cosine of a picture and its source in a self-supervised network, which sees
what an object is more than where its pixels are. The prompt plays no part.

    load_reward("dino")                                 facebook/dinov2-base
    load_reward("dino", source="facebook/dino-vits16")  DINO-I of DreamBooth (Ruiz et al. 2022,
                                                        arXiv 2208.12242, section 4.1)

Any ``AutoModel`` of ViT form whose first position is [CLS] (DINO, DINOv2, DINOv3). Pictures are
prepared as the weights' own processor says; numbers of two networks do not compare. Not run on real
weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.scores import cosine
from t2x.scoring.resize import Preprocess
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.source import SourceEncoder

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = ["load"]


def load(
    source: str | Path | tuple[Any, Any] = "facebook/dinov2-base",
    *,
    name: str = "dino",
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> EncoderReward:
    """Load the reward from a hub id, a folder or a loaded ``(model, image processor)``.

    Scores are in [-1, 1]; NaN without a source in the context. Sizes of picture and source may
    differ. Raises ``T2XError`` for a source that can't be loaded.
    """
    loaded = source if isinstance(source, tuple) else _from_pretrained(str(source))
    model = loaded[0].to(device, dtype).eval().requires_grad_(False)
    preprocess = replace(Preprocess.from_transformers(loaded[1].to_dict()), rounded=True)
    label = f"object {id(model)}" if isinstance(source, tuple) else str(source)

    def embed(media: Media) -> Tensor:
        pixels = preprocess(media, dtype=dtype).to(device)
        first: Tensor = model(pixel_values=pixels).last_hidden_state[:, 0]
        return first

    def compare(media: Media, others: Media) -> Tensor:
        return cosine(embed(media), embed(others))

    def head(values: Mapping[str, Features]) -> Tensor:
        return values["source"]["value"]

    return EncoderReward(
        name=name,
        encoders={"source": SourceEncoder(compare, key=f"dino {label} {device} {dtype}")},
        head=head,
        scale="cos",
        range=(-1.0, 1.0),
        parts=frozenset({"value"}),
    )


def _from_pretrained(source: str) -> tuple[Any, Any]:
    from transformers import AutoImageProcessor, AutoModel

    try:
        return AutoModel.from_pretrained(source), AutoImageProcessor.from_pretrained(source)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise T2XError(
            f"can't load the network {source!r}: {reason}; give a folder that holds a checkpoint, "
            "or a hub id owner/model while the hub can be reached"
        ) from error
