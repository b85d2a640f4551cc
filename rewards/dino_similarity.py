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

from t2x.devices import Device, loading_dtype, move_loaded, present_device
from t2x.failures import UNUSED, reading
from t2x.functional.scores import cosine
from t2x.scoring.frozen import frozen
from t2x.scoring.loaded import loaded_objects
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
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward from a hub id, a folder or a loaded ``(model, image processor)``.

    Scores are in [-1, 1]; NaN without a source in the context. Sizes of picture and source may
    differ. A loaded network stays where and as it is unless ``device`` or ``dtype`` say otherwise.
    Raises ``T2XError`` for a source that can't be loaded.
    """
    objects = loaded_objects(source, what="DINO", forms=(("model", "image processor"),))
    if objects is not None:
        model, processor = move_loaded(objects[0], device, dtype), objects[1]
        label = f"object {id(model)}"
    else:
        place = present_device(device)
        number = loading_dtype(dtype, place)
        model, processor = _from_pretrained(str(source), number)
        model = model.requires_grad_(False).to(place)
        label = f"{source} {place} {number}"
    preprocess = replace(Preprocess.from_transformers(processor.to_dict()), rounded=True)

    def embed(media: Media) -> Tensor:
        pixels = preprocess(media, dtype=model.dtype).to(model.device)
        with frozen(model):
            first: Tensor = model(pixel_values=pixels).last_hidden_state[:, 0]
        return first

    def compare(media: Media, others: Media) -> Tensor:
        return cosine(embed(media), embed(others))

    def head(values: Mapping[str, Features]) -> Tensor:
        return values["source"]["value"]

    return EncoderReward(
        name=name,
        encoders={"source": SourceEncoder(compare, key=f"dino {label}")},
        head=head,
        scale="cos",
        range=(-1.0, 1.0),
        parts=frozenset({"value"}),
    )


def _from_pretrained(source: str, dtype: torch.dtype | str) -> tuple[Any, Any]:
    from transformers import AutoImageProcessor, AutoModel

    with reading(source, "the network", unused=UNUSED):
        model = AutoModel.from_pretrained(source, dtype=dtype)
        return model, AutoImageProcessor.from_pretrained(source)
