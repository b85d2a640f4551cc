"""How every reward of the registry is built for tests: with its embedded weights, or over a tiny
model of the real class; in either precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.registry import import_attr, load_reward
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.grounding import Found, GroundedReward
from t2x.scoring.region import RegionReward
from t2x.scoring.reward import EncoderReward, encode_all
from t2x.testing import (
    fixed_weights,
    tiny_blip,
    tiny_open_clip,
    tiny_siglip,
    tiny_transformers_clip,
)
from t2x.types import Context, Media, RewardModel

from .blip_checkpoint import image_reward_state, save
from .hps_checkpoint import narrow_hps
from .tiny_networks import lpips_files, tiny_dino
from .tiny_vlms import pictures, qwen

WORDS = ["a red cat", "two dogs", "a blue bus", "a cat and a dog"]
N = len(WORDS)


@dataclass(frozen=True)
class Case:
    """``build`` gives the reward in a precision, with a folder to write to. ``size``: pictures that
    its network takes as they are; ``context``: what it needs beside them; ``cuts``: how many words
    of its prompts it reads, None if it reads all or none; ``step`` and ``tolerance``: of
    differences in float64; ``slope_tolerance``: of those that the contract takes in float32 in
    steps of 1e-3, infinite where the score has kinks at every such step.
    """

    build: Callable[[torch.dtype, Path], Any]
    size: tuple[int, int] = (64, 64)
    context: Callable[[Tensor], Context] | None = None
    prompts: Sequence[str] = tuple(WORDS)
    frames: int = 0
    cuts: int | None = None
    step: float = 1e-6
    tolerance: float = 1e-4
    slope_tolerance: float = 0.05
    off: float = 0.1
    """How far rounding may turn a gradient, relative to that of the smooth path."""

    def media(self, size: tuple[int, int] | None = None, *, seed: int = 0) -> Tensor:
        """Soft pictures or videos away from 0 and 1, where nothing is cut, with a little noise, so
        that no two pixels are equal.
        """
        height, width = size or self.size
        count = N * max(self.frames, 1)
        soft = 0.2 + 0.6 * pictures(count, height, width, seed=seed)
        soft += 0.02 * torch.rand(soft.shape, generator=torch.Generator().manual_seed(seed))
        return soft.unflatten(0, (N, self.frames)) if self.frames else soft

    def context_of(self, media: Tensor) -> Context | None:
        return None if self.context is None else self.context(media)


class Wide:
    """A reward of encoders that does not round its scores to float32."""

    def __init__(self, reward: EncoderReward) -> None:
        self.reward = reward
        for name in ("name", "modality", "scale", "range", "differentiable"):
            setattr(self, name, getattr(reward, name))

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        features = encode_all([self.reward], prompts, media, context=context)
        roles = self.reward.encoders.items()
        return self.reward.head({role: features[e.key] for role, e in roles})


def exact(reward: Any) -> Any:
    """The same reward with scores as they come out of its head."""
    if isinstance(reward, RegionReward):
        return RegionReward(exact(reward.reward), mode=reward.mode, reduce=reward.reduce)
    if isinstance(reward, GroundedReward):
        return GroundedReward(exact(reward.reward), reward.finder, phrases=reward.phrases)
    return Wide(getattr(reward, "_reward", reward))


def _named(name: str, **options: Any) -> Callable[[torch.dtype, Path], RewardModel]:
    return lambda dtype, folder: load_reward(name, dtype=dtype, **options)


def _over(
    name: str, model: Callable[[], Any], **options: Any
) -> Callable[[torch.dtype, Path], RewardModel]:
    """Over a fresh ``model``, since another precision changes it in place."""
    return lambda dtype, folder: load_reward(name, source=model(), dtype=dtype, **options)


def _published(name: str) -> Callable[[torch.dtype, Path], RewardModel]:
    return lambda dtype, folder: load_reward(name, **narrow_hps(folder)[0], dtype=dtype)


def _laion(name: str, *widths: int) -> Callable[[torch.dtype, Path], RewardModel]:
    def build(dtype: torch.dtype, folder: Path) -> RewardModel:
        generator = torch.Generator().manual_seed(0)
        weights = {}
        for i, (a, b) in enumerate(zip((16, *widths), widths, strict=False)):
            weights[f"layers.{i}.weight"] = torch.randn(b, a, generator=generator) / a**0.5
            weights[f"layers.{i}.bias"] = torch.full((b,), 3.0 if b == 1 else 0.0)
        torch.save(weights, folder / "head.pth")
        source, encoder = folder / "head.pth", tiny_open_clip()
        return load_reward(name, source=source, encoder=encoder, dtype=dtype)

    return build


def _image_reward(dtype: torch.dtype, folder: Path) -> RewardModel:
    return load_reward(
        "imagereward", source=save(image_reward_state(), folder / "ImageReward.pt"), dtype=dtype
    )


def _lpips(dtype: torch.dtype, folder: Path) -> RewardModel:
    return load_reward("lpips", **lpips_files(folder), dtype=dtype)


def _pal(dtype: torch.dtype, folder: Path) -> RewardModel:
    width = load_clip("emoji-clip").encode_image(torch.zeros(1, 3, 64, 64)).shape[1]
    generator = torch.Generator().manual_seed(0)
    model = import_attr("t2x.rewards.pal:PalModel")(
        torch.randn(width, 4, generator=generator),
        torch.randn(2, 4, generator=generator),
        {"ann": torch.tensor([0.3, 0.7]), "bob": torch.tensor([1.0, 0.0])},
        "emoji-clip",
    )
    return load_reward("pal", source=model, dtype=dtype)


def _learned_choice(dtype: torch.dtype, folder: Path) -> RewardModel:
    first, second = pictures(N, seed=8), pictures(N, seed=9)
    fit = import_attr("t2x.rewards.learned_choice:fit")
    return load_reward("rl-vlm-f", source=fit(WORDS, first, second, [0, 1, 1, 0]), dtype=dtype)


@lru_cache(maxsize=1)
def _hpsv3_parts() -> tuple[Any, Any, Any]:
    """Qwen2-VL with one token more, and a head."""
    model, processor = copy.deepcopy(qwen("qwen2_vl"))
    with fixed_weights(1):
        model.resize_token_embeddings(len(processor.tokenizer) + 1)
        widths = (48, 32, 16, 2)
        layers = [(torch.randn(b, a) / a**0.5, torch.randn(b)) for a, b in pairwise(widths)]
    return model, processor, layers


def _hpsv3(dtype: torch.dtype, folder: Path) -> RewardModel:
    return load_reward(
        "hpsv3",
        source=copy.deepcopy(_hpsv3_parts()),
        instruction="How good is this as {text_prompt}?\nOverall: <|Reward|>",
        max_prompt_tokens=24,
        dtype=dtype,
    )


def _read(picture: Any) -> list[str]:
    """As much of a word as the picture is bright."""
    red, _, _ = picture.resize((1, 1)).getpixel((0, 0))
    return ["caterpillar"[: red // 16]]


def _sources(media: Tensor) -> Context:
    return Context(source=media.float().roll(1, 0))


class _Everywhere:
    """A finder to whom every thing is the whole picture: no box jumps while pixels change."""

    def find(self, pictures: Sequence[Tensor], phrases: Sequence[str]) -> Found:
        boxes = torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(len(phrases), 1)
        return Found(boxes, torch.ones(len(phrases)))


def _grounded(dtype: torch.dtype, folder: Path) -> RewardModel:
    return load_reward(
        "grounded", finder=_Everywhere(), phrases=lambda p: [p] if p.strip() else [], dtype=dtype
    )


def _boxes(media: Tensor) -> Context:
    return Context(boxes=torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(len(media), 1, 1))


def _users(media: Tensor) -> Context:
    return Context(user=["ann", "bob", "ann", "bob"][: len(media)])


def _quoted(count: int) -> list[str]:
    return [f'a sign "caterpillar" {i}' for i in range(count)]


_VLM = {"max_prompt_tokens": 24}
# Their image processors compute in float32: measured 7e-4 at this step.
_COARSE = {"step": 1e-3, "tolerance": 5e-3}
CASES: dict[str, Case] = {
    "aesthetic": Case(_named("aesthetic")),
    "align": Case(_named("align", **_VLM), cuts=24, **_COARSE),
    "blip-itm": Case(_over("blip-itm", tiny_blip), (32, 32), cuts=33),
    "clip": Case(_named("clip"), cuts=46),
    "critique": Case(_named("critique", **_VLM), cuts=24),
    "dino": Case(_over("dino", tiny_dino), (36, 36), _sources),
    "grounded": Case(_grounded, cuts=46),
    "hps": Case(_named("hps"), cuts=46),
    "hpsv2": Case(_published("hpsv2"), (224, 224), cuts=75),
    "hpsv2.1": Case(_published("hpsv2.1"), (224, 224), cuts=75),
    "hpsv3": Case(_hpsv3, (448, 448), cuts=24, **_COARSE),
    "imagereward": Case(_image_reward, (32, 32), cuts=33),
    "laion-v1": Case(_laion("laion-v1", 1)),
    "laion-v2": Case(_laion("laion-v2", 8, 4, 1)),
    "lpips": Case(_lpips, context=_sources, step=1e-7, slope_tolerance=0.3),
    "motion": Case(lambda dtype, folder: load_reward("motion"), frames=3),
    "ocr": Case(lambda dtype, folder: load_reward("ocr", engine=_read), prompts=_quoted(N)),
    "pal": Case(_pal, context=_users),
    "pickscore": Case(_over("pickscore", tiny_transformers_clip), (32, 32), cuts=75),
    "promptecho": Case(_named("promptecho", **_VLM), cuts=24, **_COARSE),
    # Its gradient passes through the one pixel that is the median.
    "quality": Case(
        lambda dtype, folder: load_reward("quality"), step=1e-8, slope_tolerance=math.inf
    ),
    "questions": Case(_named("questions", **_VLM), cuts=24, **_COARSE),
    "region": Case(_named("region"), context=_boxes, cuts=46),
    "rl-vlm-f": Case(_learned_choice, cuts=46),
    "siglip": Case(_over("siglip", tiny_siglip), (32, 32), cuts=15),
    "temporal-consistency": Case(_named("temporal-consistency"), frames=3),
    "vlm-rm": Case(_named("vlm-rm"), cuts=46),
    "vqa": Case(_named("vqa", **_VLM), cuts=24, **_COARSE),
    "yes-no": Case(_named("yes-no", **_VLM), cuts=24, **_COARSE),
}
