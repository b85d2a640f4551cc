"""LPIPS against the package lpips 0.1.4, which ``make_lpips_goldens.py`` ran on equal weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from t2x.media import from_pil
from t2x.registry import load_reward
from t2x.scoring.reward import EncoderReward
from t2x.types import Context

from . import blip_cases as cases

GOLDENS = json.loads(Path(__file__).with_name("lpips_goldens.json").read_text("utf-8"))
BOUND = 1e-3


@pytest.fixture(scope="module", params=["alex", "vgg"])
def net(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def reward(net: str, tmp_path_factory: pytest.TempPathFactory) -> EncoderReward:
    folder = tmp_path_factory.mktemp(net)
    weights = cases.tensors(GOLDENS[net]["tensors"])
    assert cases.checksum(weights) == pytest.approx(GOLDENS[net]["checksum"], rel=1e-9)
    state = {n: torch.from_numpy(w) for n, w in weights.items()}
    torch.save({n: t for n, t in state.items() if n.startswith("lin")}, folder / "lin.pth")
    trunk = {n: t for n, t in state.items() if n.startswith("features.")}
    classifier = {"classifier.1.weight": torch.zeros(1)}  # of torchvision's file, not used
    torch.save({**trunk, **classifier}, folder / "trunk.pth")
    return load_reward("lpips", net=net, weights=folder / "lin.pth", trunk=folder / "trunk.pth")


def scores(reward: EncoderReward, **changes: float) -> torch.Tensor:
    """Of all pairs; media times ``gain`` plus ``shift``."""
    found = [[from_pil([p]) for p in pair] for pair in cases.pairs().values()]
    media, source = (list(pictures) for pictures in zip(*found, strict=True))
    gain, shift = changes.get("gain", 1.0), changes.get("shift", 0.0)
    context = Context(source=[s * gain + shift for s in source])
    return reward.score([""] * len(media), [m * gain + shift for m in media], context=context)


def error(net: str, found: torch.Tensor) -> float:
    wanted = -torch.tensor([GOLDENS[net]["distances"][k] for k in cases.pairs()])
    return ((found - wanted).abs().max() / wanted.std()).item()


def test_equals_the_package(net: str, reward: EncoderReward) -> None:
    assert error(net, scores(reward)) < BOUND


def test_pixels_in_another_range_fail(net: str, reward: EncoderReward) -> None:
    """What comes of feeding [0, 1] to a network that takes [-1, 1]."""
    assert error(net, scores(reward, gain=0.5, shift=0.5)) > 10 * BOUND


def test_the_other_way_round_is_the_same(net: str, reward: EncoderReward) -> None:
    a, b = (from_pil([p]) for p in cases.pairs()["shifted"])
    there, back = (reward.score([""], x, context=Context(source=y)) for x, y in ((a, b), (b, a)))
    assert torch.allclose(there, back, rtol=1e-4)
