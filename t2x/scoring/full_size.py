"""Every reward on a network of its published size, with random weights: what it costs, not what it
says. One entry per registered reward, in ``FULL_SIZE``; the networks are those of
:mod:`t2x.scoring.random_towers`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from t2x.registry import REWARD_PARTS, import_attr, load_reward
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.grounding import ClipPatchFinder
from t2x.scoring.random_towers import (
    HPSV3,
    blip_itm,
    blip_reward,
    dinov2_base,
    lpips_files,
    open_clip_tower,
    qwen2_vl,
    random_affine,
)
from t2x.world.key_points import emoji_key_points

if TYPE_CHECKING:
    from t2x.scoring.reward import EncoderReward
    from t2x.types import RewardModel

__all__ = ["FULL_SIZE", "TOWERS", "FullSize", "fitted"]

L14 = "ViT-L-14-quickgelu"
H14 = "ViT-H-14"
SIGLIP = "ViT-SO400M-14-SigLIP-384"
CRITIQUE_TOKENS = 16
# As long as the published one, of 368 words.
INSTRUCTION = "Rate it. " * 184 + "{text_prompt}\n<|Reward|>"


@dataclass(frozen=True)
class FullSize:
    """How a reward is made from a tower of ``TOWERS`` on a device; ``note``: in what it is less
    than the whole.
    """

    tower: str
    load: Callable[[Any, str], RewardModel]
    note: str = ""


# Each takes the name of a device. "" is for rewards without a network.
TOWERS: Mapping[str, Callable[[str], Any]] = {
    L14: lambda device: open_clip_tower(L14, device=device),
    H14: lambda device: open_clip_tower(H14, device=device),
    SIGLIP: lambda device: open_clip_tower(SIGLIP, device=device),
    "BLIP base, 384 pixels": lambda device: blip_itm(device=device),
    "BLIP large": lambda device: blip_reward(device=device),
    "DINOv2 base": lambda device: dinov2_base(device=device),
    "Qwen2-VL-2B": lambda device: qwen2_vl("2B", device=device),
    "Qwen2-VL-7B": lambda device: qwen2_vl("7B", device=device),
    "": lambda device: None,
}


def fitted(name: str, encoder: Any, device: str = "cpu") -> RewardModel:
    """The reward ``pal`` or ``rl-vlm-f`` with random weights on a CLIP, as if it had been fitted;
    PAL's one user is "a".
    """
    width = int(load_clip(encoder, device=device).model.visual.output_dim)
    if name == "pal":
        ((project, _),) = random_affine(width, 8)
        ((points, _),) = random_affine(8, 4)
        users = {"a": torch.full((4,), 0.25)}
        model = import_attr(REWARD_PARTS["pal-model"])(project.T, points, users, encoder)
    else:
        ((weight, _),) = random_affine(2 * width, 1)
        model = import_attr(REWARD_PARTS["choice-model"])(weight[0], encoder)
    return load_reward(name, source=model, device=device)


def _named(name: str, **options: Any) -> Callable[[Any, str], RewardModel]:
    return lambda tower, device: load_reward(name, source=tower, device=device, **options)


def _alone(name: str) -> Callable[[Any, str], RewardModel]:
    return lambda tower, device: load_reward(name)


def _laion(name: str, *widths: int) -> Callable[[Any, str], RewardModel]:
    """An aesthetic head of LAION's layout on the tower's embedding."""

    def make(tower: Any, device: str) -> RewardModel:
        layers = random_affine(int(tower[0].visual.output_dim), *widths)
        weights = {f"layers.{i}.weight": w for i, (w, _) in enumerate(layers)}
        weights |= {f"layers.{i}.bias": b for i, (_, b) in enumerate(layers)}
        with tempfile.TemporaryDirectory() as folder:
            torch.save(weights, path := Path(folder) / "head.pth")
            loaded = load_reward("aesthetic", source=path, encoder=tower, device=device)
        return cast("RewardModel", replace(cast("EncoderReward", loaded), name=name))

    return make


def _lpips(net: str) -> Callable[[Any, str], RewardModel]:
    def make(tower: Any, device: str) -> RewardModel:
        builder, _, ends, _ = import_attr(REWARD_PARTS["lpips-nets"])[net]
        trunk, layers = lpips_files(builder, ends)
        with tempfile.TemporaryDirectory() as folder:
            torch.save(trunk, first := Path(folder) / "trunk.pth")
            torch.save(layers, second := Path(folder) / "lpips.pth")
            return load_reward("lpips", net=net, trunk=first, weights=second, device=device)

    return make


def _critique(tower: Any, device: str) -> RewardModel:
    known = import_attr(REWARD_PARTS["critique-dimensions"])
    one = dict(list(known.items())[:1])
    return load_reward(
        "critique", source=tower, device=device, dimensions=one, max_new_tokens=CRITIQUE_TOKENS
    )


def _grounded(tower: Any, device: str) -> RewardModel:
    return load_reward("grounded", finder=ClipPatchFinder(tower), source=tower, device=device)


def _hpsv3(tower: Any, device: str) -> RewardModel:
    source = (*tower, random_affine(*HPSV3))
    return load_reward(
        "hpsv3", source=source, instruction=INSTRUCTION, device=device, dtype=torch.float32
    )


V2_WIDTHS = (1024, 128, 64, 16, 1)
_ON_L14: dict[str, Callable[[Any, str], RewardModel]] = {
    "clip": _named("clip"),
    "laion-v1": _laion("laion-v1", 1),
    "laion-v2": _laion("laion-v2", *V2_WIDTHS),
    "vlm-rm": _named("vlm-rm"),
    "aesthetic": _laion("aesthetic", *V2_WIDTHS),
    "pal": lambda tower, device: fitted("pal", tower, device),
    "region": _named("region"),
    "rl-vlm-f": lambda tower, device: fitted("rl-vlm-f", tower, device),
    "grounded": _grounded,
    "temporal-consistency": _named("temporal-consistency"),
}
_VLM = "Qwen2-VL-2B"

# A key may be a name and a variant, "lpips vgg".
FULL_SIZE: Mapping[str, FullSize] = {
    "motion": FullSize("", _alone("motion")),
    "quality": FullSize("", _alone("quality")),
    "ocr": FullSize("", _alone("ocr"), "RapidOCR's own models"),
    "lpips": FullSize("", _lpips("alex"), "AlexNet"),
    "lpips vgg": FullSize("", _lpips("vgg"), "VGG-16"),
    "dino": FullSize("DINOv2 base", _named("dino")),
    **{name: FullSize(L14, load) for name, load in _ON_L14.items()},
    "blip-itm": FullSize("BLIP base, 384 pixels", _named("blip-itm")),
    "imagereward": FullSize("BLIP large", _named("imagereward")),
    **{name: FullSize(H14, _named(name)) for name in ("hps", "hpsv2", "hpsv2.1", "pickscore")},
    "siglip": FullSize(SIGLIP, _named("siglip")),
    "vqa": FullSize(_VLM, _named("vqa")),
    "yes-no": FullSize(_VLM, _named("yes-no")),
    "promptecho": FullSize(_VLM, _named("promptecho")),
    "align": FullSize(_VLM, _named("align", find=emoji_key_points), "key points by text rules"),
    "questions": FullSize(_VLM, _named("questions"), "primitives by text rules"),
    "critique": FullSize(_VLM, _critique, f"one dimension in {CRITIQUE_TOKENS} tokens"),
    "hpsv3": FullSize("Qwen2-VL-7B", _hpsv3),
}
