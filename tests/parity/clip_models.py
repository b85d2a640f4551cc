"""CLIPs with the weights of the goldens, what a reward makes of the goldens' pictures, and controls
that change one thing. Shared by the parity tests of reduced and of full size.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
from torch import Tensor, nn

from t2x.media import load_picture
from t2x.scoring.reward import EncoderReward

from . import clip_cases as cases

TOLERANCE = 1e-3


@dataclass
class Material:
    """Pictures by name, and a folder with what the rewards are loaded from."""

    folder: Path
    media: dict[str, Tensor]

    @staticmethod
    def write(folder: Path) -> Material:
        media = {}
        for name, picture in cases.pictures().items():
            picture.save(folder / f"{name}.png", compress_level=1)
            media[name] = load_picture(folder / f"{name}.png")
        return Material(folder, media)

    def embed(self, reward: EncoderReward, names: Sequence[str]) -> Tensor:
        encoder: Any = reward.encoders["clip"]
        with torch.no_grad():
            image: Tensor = encoder.encode_image([self.media[n] for n in names])
        return image

    def scores(
        self, reward: EncoderReward, prompts: Sequence[str], names: Sequence[str]
    ) -> list[Tensor]:
        """What the head gives for each prompt, before blank prompts become NaN."""
        image = self.embed(reward, names)
        return [head_scores(reward, prompt, image) for prompt in prompts]


def head_scores(reward: EncoderReward, prompt: str, image: Tensor) -> Tensor:
    """What the head makes of image embeddings and a prompt."""
    encoder: Any = reward.encoders["clip"]
    parts = reward.parts - {"image"}
    with torch.no_grad():
        features = encoder.encode([prompt] * len(image), [], parts=parts)
        return reward.head({"clip": {**features, "image": image}})


def error(ours: Tensor, theirs: Tensor) -> float:
    """Largest error in units of the spread over pictures."""
    return float((ours.double() - theirs).abs().max() / theirs.std())


def fill(tag: str, model: nn.Module) -> None:
    """Give a model the weights of the goldens."""
    with torch.no_grad():
        for key, value in model.state_dict().items():
            value.copy_(torch.from_numpy(np.array(cases.weight(tag, key, value.shape))))


def write_clip(tag: str, config: dict[str, Any], path: Path) -> None:
    """Write a state dict for open_clip's configuration as the published files are: of halves, which
    lose nothing, but for the temperature.
    """
    with torch.device("meta"):
        empty = open_clip.CLIP(**config).state_dict()
    state = {}
    for key, value in empty.items():
        tensor = torch.from_numpy(np.array(cases.weight(tag, key, value.shape)))
        state[key] = tensor if key == "logit_scale" else tensor.half()
    torch.save({"state_dict": state}, path)


def write_head(name: str, path: Path) -> None:
    """Write one of LAION's heads."""
    head = cases.weights(name, cases.HEADS[name])
    torch.save({k: torch.from_numpy(v) for k, v in head.items()}, path)


def transformers_clip(tag: str, config: dict[str, Any]) -> tuple[Any, Any]:
    """(CLIPModel, CLIPProcessor) on OpenAI's vocabulary."""
    from transformers import (
        CLIPConfig,
        CLIPImageProcessor,
        CLIPModel,
        CLIPProcessor,
        CLIPTokenizer,
    )

    model = CLIPModel(CLIPConfig(**json.loads(json.dumps(config))))  # which changes its arguments
    fill(tag, model)
    bpe = open_clip.tokenizer.SimpleTokenizer()
    names = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
    vocabulary = {names.get(piece, piece): number for piece, number in bpe.encoder.items()}
    merges = sorted(bpe.bpe_ranks, key=bpe.bpe_ranks.__getitem__)
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=77)
    types = ("feature_extractor_type", "image_processor_type")
    settings = {k: v for k, v in cases.CLIP_PROCESSOR.items() if k not in types}
    return model, CLIPProcessor(image_processor=CLIPImageProcessor(**settings), tokenizer=tokenizer)


@contextmanager
def changed(encoder: Any, **attributes: Any) -> Iterator[None]:
    """The encoder with other attributes and an empty cache."""
    before = {key: getattr(encoder, key) for key in attributes}
    cache, encoder.cache = encoder.cache, type(encoder.cache)()
    try:
        for key, value in attributes.items():
            setattr(encoder, key, value)
        yield
    finally:
        encoder.cache = cache
        for key, value in before.items():
            setattr(encoder, key, value)


def preprocessing(**changes: Any) -> Callable[[EncoderReward], Any]:
    """A control: other settings of the preprocessing."""

    def control(reward: EncoderReward) -> Any:
        encoder: Any = reward.encoders["clip"]
        return changed(encoder, preprocess=replace(encoder.preprocess, **changes))

    return control


@contextmanager
def other_gelu(reward: EncoderReward) -> Iterator[None]:
    """A control: QuickGELU where there is GELU, GELU where there is QuickGELU."""
    encoder: Any = reward.encoders["clip"]
    with changed(encoder), swapped_gelu(encoder.model):
        yield


@contextmanager
def swapped_gelu(*networks: nn.Module) -> Iterator[None]:
    """Networks with QuickGELU where they have GELU, and the other way round."""
    found = [
        (parent, name, layer)
        for network in networks
        for parent in network.modules()
        for name, layer in parent.named_children()
        if "GELU" in type(layer).__name__
    ]
    assert found
    for parent, name, layer in found:
        quick = "Quick" in type(layer).__name__
        setattr(parent, name, nn.GELU() if quick else open_clip.transformer.QuickGELU())
    try:
        yield
    finally:
        for parent, name, layer in found:
            setattr(parent, name, layer)
