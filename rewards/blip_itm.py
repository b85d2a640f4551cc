"""BLIP's image-text matching: does the picture show the prompt (Li et al. 2022, arXiv 2201.12086).

    load_reward("blip-itm")                               Salesforce/blip-itm-base-coco
    load_reward("blip-itm", source="retrieval_coco.pth")  the authors' own file

Scales: ``logit`` (of matching, before the softmax; the probability is flat near 0 and 1, where a
reward must still tell pictures apart), ``itm`` (its probability, what BLIP's own demo prints),
``itc`` (cosine of picture and prompt, each read alone). 35 text tokens, pictures squashed to a
square. Equal to the authors' code on the same weights (``tests/parity``). Not run on real weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from t2x.devices import Device, loading_dtype, move_loaded, present_device
from t2x.errors import T2XError
from t2x.failures import reading
from t2x.functional.matching import match_logit
from t2x.functional.scores import cosine
from t2x.scoring.blip_encoder import BlipEncoder, bert_tokenizer
from t2x.scoring.blip_weights import blip_towers, linear_head
from t2x.scoring.loaded import PROCESSOR_FORMS, loaded_objects
from t2x.scoring.resize import Preprocess
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.state_files import SUFFIXES, read_state
from t2x.weight_files import find_weights

__all__ = ["SCALES", "load"]

SCALES: dict[str, tuple[float, float]] = {
    "logit": (-math.inf, math.inf),
    "itm": (0.0, 1.0),
    "itc": (-1.0, 1.0),
}
_TOKENIZER = "google-bert/bert-base-uncased"
_HEADS = {"itm": "itm_head", "image_embed": "vision_proj", "text_embed": "text_proj"}
_loaded: WeakValueDictionary[str, BlipEncoder] = WeakValueDictionary()


def load(
    source: str | Path | tuple[Any, Any] = "Salesforce/blip-itm-base-coco",
    *,
    scale: str = "logit",
    tokenizer: str | Path | None = None,
    name: str = "blip-itm",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward from a hub id or folder of ``BlipForImageTextRetrieval``, the authors' own
    file (``.pth``), or a loaded ``(model, processor)``; ``scale`` is a key of ``SCALES``.

    ``tokenizer``, for the authors' file alone: a folder or hub id of BERT's. Rewards of one source
    share its encoder. Raises ``T2XError`` for an unknown scale or a source that can't be loaded.
    """
    if scale not in SCALES:
        raise T2XError(f"unknown scale {scale!r}; allowed: {', '.join(SCALES)}")
    encoder = _encoder(source, tokenizer, device, dtype)

    def head(features: Mapping[str, Features]) -> Tensor:
        blip = features["blip"]
        if scale == "itc":
            return cosine(blip["image_embed"], blip["text_embed"])
        logit = match_logit(blip["itm"])
        return logit.sigmoid() if scale == "itm" else logit

    read = {"image_embed", "text_embed"} if scale == "itc" else {"itm"}
    return EncoderReward(
        name=name,
        encoders={"blip": encoder},
        head=head,
        scale=scale,
        range=SCALES[scale],
        parts=frozenset({"text", *read}),
    )


def _encoder(
    source: str | Path | Sequence[Any],
    tokenizer: str | Path | None,
    device: Device | None,
    dtype: torch.dtype | None,
) -> BlipEncoder:
    objects = loaded_objects(source, what="BLIP", forms=PROCESSOR_FORMS)
    if objects is not None:
        # Of the part that the encoder holds, whose id no other object can get meanwhile.
        key = f"blip-itm object {id(objects[0].vision_model)}"
        move_loaded(objects[0], device, dtype)
        return _remembered(key, lambda: _from_model(*objects, key=key))
    assert isinstance(source, (str, Path))
    place = present_device(device)
    if Path(source).suffix in SUFFIXES:
        source = find_weights(source, what="BLIP checkpoint", suffixes=SUFFIXES)
        words, number = tokenizer or _TOKENIZER, dtype or torch.float32
        key = f"blip-itm {source} {words} {place} {number}"
        return _remembered(key, lambda: _from_file(Path(source), words, key, place, number))
    saved = loading_dtype(dtype, place)
    key = f"blip-itm {source} {place} {saved}"

    def load() -> BlipEncoder:
        model, processor = _from_pretrained(str(source), saved)
        return _from_model(model.requires_grad_(False).to(place), processor, key=key)

    return _remembered(key, load)


def _remembered(key: str, load: Callable[[], BlipEncoder]) -> BlipEncoder:
    encoder = _loaded.get(key) or load()
    _loaded[key] = encoder
    return encoder


def _from_model(model: Any, processor: Any, *, key: str) -> BlipEncoder:
    return BlipEncoder(
        model.vision_model,
        model.text_encoder,
        processor.tokenizer,
        key=key,
        preprocess=replace(
            Preprocess.from_transformers(processor.image_processor.to_dict()), rounded=True
        ),
        heads={role: getattr(model, attribute) for role, attribute in _HEADS.items()},
    )


def _from_file(
    path: Path, tokenizer: str | Path, key: str, device: torch.device, dtype: torch.dtype
) -> BlipEncoder:
    state = read_state(path)
    vision, text = blip_towers(state, source=path)
    heads = {role: linear_head(state, stem, source=path) for role, stem in _HEADS.items()}
    return BlipEncoder(
        vision.to(device, dtype),
        text.to(device, dtype),
        bert_tokenizer(tokenizer),
        key=key,
        preprocess=Preprocess.of_clip(vision.config.image_size, mode="squash", rounded=True),
        heads={role: head.to(device, dtype) for role, head in heads.items()},
    )


def _from_pretrained(source: str, dtype: torch.dtype | str) -> tuple[Any, Any]:
    from transformers import BlipForImageTextRetrieval, BlipProcessor

    advice = (
        "give a folder or hub id of BlipForImageTextRetrieval, such as "
        "Salesforce/blip-itm-base-coco, or the authors' .pth file"
    )
    with reading(source, "the BLIP", advice=advice):
        model = BlipForImageTextRetrieval.from_pretrained(source, dtype=dtype)
        processor = BlipProcessor.from_pretrained(source)
    return model, processor
