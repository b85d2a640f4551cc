"""ImageReward and BLIP-ITM against image-reward 1.5 and salesforce/BLIP, which
``make_blip_goldens.py`` ran once on the same weights, pictures and prompts.

Errors are relative to the spread over pictures. Every departure that ports have made is run as a
control and must fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from t2x.functional.matching import IMAGE_REWARD_MEAN, IMAGE_REWARD_STD
from t2x.functional.scores import affine_chain
from t2x.media import from_pil
from t2x.registry import load_reward
from t2x.scoring import resize
from t2x.scoring.blip_encoder import BlipEncoder
from t2x.scoring.reward import EncoderReward
from t2x.scoring.state_files import affine_layers, read_state

from . import blip_cases as cases
from .blip_models import (
    BOUND,
    KINDS,
    head_scores,
    preparing,
    tokens,
    with_encoder,
    write_checkpoint,
)

GOLDENS = json.loads(Path(__file__).with_name("blip_goldens.json").read_text("utf-8"))
PICTURES = list(GOLDENS["imagereward"]["scores"])
FEW = ("square", "wide", "stripes")  # enough to show that something is wrong


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of either model in its authors' layout, and the vocabulary."""
    path = tmp_path_factory.mktemp("blip")
    cases.write_vocabulary(path)
    for name, file in (("imagereward", "ImageReward.pt"), ("blip-itm", "retrieval.pth")):
        write_checkpoint(GOLDENS[name], path / file)
    return path


@pytest.fixture(scope="module")
def rewards(folder: Path) -> dict[str, EncoderReward]:
    itm = {"source": folder / "retrieval.pth", "tokenizer": folder}
    scales = {s: load_reward("blip-itm", scale=s, **itm) for s in ("logit", "itc")}
    return {"imagereward": load_reward("imagereward", source=folder), **scales}


@pytest.fixture(scope="module")
def media() -> list[torch.Tensor]:
    return [from_pil([picture]) for picture in cases.pictures().values()]


def golden(kind: str, prompt: str, *, pictures: Sequence[str] = PICTURES) -> torch.Tensor:
    scores = GOLDENS["imagereward" if kind == "imagereward" else "blip-itm"]["scores"]
    return torch.tensor([KINDS[kind](scores[p][prompt]) for p in pictures])


def error(
    kind: str,
    prompt: str,
    reward: EncoderReward,
    media: list[torch.Tensor],
    *,
    pictures: Sequence[str] = PICTURES,
) -> float:
    """Largest error over ``pictures``, in spreads over all of them."""
    scores = head_scores(reward, prompt, [media[PICTURES.index(p)] for p in pictures])
    wanted = golden(kind, prompt, pictures=pictures)
    return ((scores - wanted).abs().max() / golden(kind, prompt).std()).item()


@pytest.mark.parametrize("prompt", cases.PROMPTS)
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_official_code(
    kind: str, prompt: str, rewards: dict[str, EncoderReward], media: list[torch.Tensor]
) -> None:
    spread = golden(kind, prompt).std().item()
    assert spread > (5e-3 if kind == "itc" else 3e-2)
    assert error(kind, prompt, rewards[kind], media) < BOUND


def test_the_reward_is_encoder_and_head(
    rewards: dict[str, EncoderReward], media: list[torch.Tensor]
) -> None:
    few = [PICTURES.index(p) for p in ("wide", "tiny", "exact")]
    prompts = [cases.PROMPTS[k] for k in ("short", "foreign", "empty")]
    scores = rewards["imagereward"].score(prompts, [media[i] for i in few])
    expected = [
        golden("imagereward", k)[i] for k, i in zip(("short", "foreign"), few, strict=False)
    ]
    assert torch.allclose(scores[:2], torch.stack(expected), atol=1e-4)
    assert scores[2].isnan()


def _enc(encoder: BlipEncoder) -> None:
    plain = BlipEncoder.tokenize

    def tokenize(prompts: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = plain(encoder, prompts)
        ids[:, 0] = cases.vocabulary_size() - 1
        return ids, mask

    encoder.tokenize = tokenize


CONTROLS: dict[str, tuple[str, Callable[[BlipEncoder], None]]] = {
    "bilinear": ("short", preparing(filter="bilinear")),
    "without rounding to 8 bits": ("short", preparing(rounded=False)),
    "wrong mean": ("short", preparing(mean=(0.5, 0.5, 0.5))),
    "ENC for CLS": ("short", _enc),
    "77 tokens": ("long", tokens(77)),
    "34 tokens": ("long", tokens(34)),
}


@pytest.mark.parametrize("control", [*CONTROLS, "squash or crop"])
@pytest.mark.parametrize("kind", ["imagereward", "logit"])
def test_a_departure_fails(
    kind: str, control: str, rewards: dict[str, EncoderReward], media: list[torch.Tensor]
) -> None:
    other = preparing(mode="squash" if kind == "imagereward" else "shortest")
    prompt, change = CONTROLS.get(control, ("short", other))
    changed = with_encoder(rewards[kind], change)
    assert error(kind, prompt, changed, media, pictures=FEW) > BOUND


@pytest.mark.parametrize("kind", ["imagereward", "logit", "itc"])
def test_no_antialias_fails(
    kind: str,
    rewards: dict[str, EncoderReward],
    media: list[torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def aliased(pictures: torch.Tensor, size: tuple[int, int], *, filter: str) -> torch.Tensor:
        return F.interpolate(pictures, size, mode=filter, align_corners=False).clamp(0, 1)

    monkeypatch.setattr(resize, "pil_resize", aliased)
    assert error(kind, "short", rewards[kind], media, pictures=FEW) > 10 * BOUND


@pytest.mark.parametrize(
    ("activation", "least"), [(torch.nn.ReLU(), 10 * BOUND), (torch.nn.GELU("tanh"), 1e-5)]
)
def test_another_activation_in_the_towers_is_seen(
    activation: torch.nn.Module,
    least: float,
    rewards: dict[str, EncoderReward],
    media: list[torch.Tensor],
) -> None:
    """The tanh form is nearly the same function: its error is over what rounding gives, 5e-6, and
    may lie below the bound.
    """

    def change(encoder: BlipEncoder) -> None:
        encoder.vision = deepcopy(encoder.vision)
        for layer in encoder.vision.encoder.layers:
            layer.mlp.activation_fn = activation

    changed = with_encoder(rewards["imagereward"], change)
    assert error("imagereward", "short", changed, media, pictures=FEW) > least


def test_heads_of_another_width_fail(
    rewards: dict[str, EncoderReward], media: list[torch.Tensor]
) -> None:
    """transformers' default for the text tower is 8 heads, whatever its width."""

    def change(encoder: BlipEncoder) -> None:
        encoder.text = deepcopy(encoder.text)
        for layer in encoder.text.encoder.layer:
            layer.attention.self.attention_head_size = 96
            layer.crossattention.self.attention_head_size = 96

    changed = with_encoder(rewards["imagereward"], change)
    assert error("imagereward", "short", changed, media, pictures=FEW) > 10 * BOUND


def test_relu_in_the_head_fails(
    folder: Path, rewards: dict[str, EncoderReward], media: list[torch.Tensor]
) -> None:
    state = read_state(folder / "ImageReward.pt")
    mlp = {n.removeprefix("mlp."): t for n, t in state.items() if n.startswith("mlp.")}
    layers = affine_layers(mlp, source="ImageReward.pt")
    assert [tuple(w.shape) for w, _ in layers] == [
        (1024, 768),
        (128, 1024),
        (64, 128),
        (16, 64),
        (1, 16),
    ]

    def head(features: Any) -> torch.Tensor:
        value = affine_chain(features["blip"]["fused"], layers, relu=True)
        return (value - IMAGE_REWARD_MEAN) / IMAGE_REWARD_STD

    changed = replace(rewards["imagereward"], head=head)
    assert error("imagereward", "short", changed, media, pictures=FEW) > 10 * BOUND


@pytest.mark.parametrize(
    ("kind", "differ"),
    [("imagereward", ("clear", "palette", "sixteen")), ("logit", ("clear", "sixteen"))],
)
def test_where_the_official_code_reads_a_picture_in_another_way(
    kind: str, differ: tuple[str, ...], rewards: dict[str, EncoderReward]
) -> None:
    """It drops transparency, which lays bare whatever colour lies below it; cuts 16 bits off at
    255; and image-reward resizes the numbers of a palette's colours, without a filter. We lay
    transparent pictures on white, scale 16 bits, and turn palettes into RGB first.
    """
    name = "imagereward" if kind == "imagereward" else "blip-itm"
    spread = golden(kind, "short").std().item()
    for picture in cases.UNLIKE:
        as_is = KINDS[kind](GOLDENS[name]["as is"][picture])
        ours = golden(kind, "short", pictures=[picture]).item()
        assert (abs(as_is - ours) > 5 * BOUND * spread) == (picture in differ), picture


def test_where_the_goldens_come_from() -> None:
    assert GOLDENS["made with"]["image-reward"] == "1.5"
    assert GOLDENS["imagereward"]["module"] == "ImageReward.ImageReward.ImageReward"
    assert GOLDENS["blip-itm"]["module"] == "models.blip_itm.BLIP_ITM"
