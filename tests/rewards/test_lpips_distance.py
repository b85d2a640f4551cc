"""LPIPS on a random trunk: sources, sizes, gradients, files; its numbers are in tests/parity."""

from __future__ import annotations

import logging
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch

from t2x.errors import MissingDependencyError, T2XError
from t2x.registry import load_reward
from t2x.rewards import lpips_distance
from t2x.scoring.reward import EncoderReward
from t2x.types import Context

from .tiny_networks import lpips_files, lpips_layers


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return lpips_files(tmp_path_factory.mktemp("lpips"))


@pytest.fixture(scope="module")
def reward(files: dict[str, Path]) -> EncoderReward:
    return load_reward("lpips", **files)


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.rand(4, 3, 40, 48, generator=torch.Generator().manual_seed(0))


def test_equal_pictures_are_at_0_and_others_below(
    reward: EncoderReward, pictures: torch.Tensor
) -> None:
    same = reward.score([""] * 4, pictures, context=Context(source=pictures))
    assert same.tolist() == [0.0] * 4
    near = (pictures + 0.02 * torch.randn(pictures.shape)).clamp(0, 1)
    far = pictures.roll(1, 0)
    by = [reward.score(["x"] * 4, m, context=Context(source=pictures)) for m in (near, far)]
    assert by[0].shape == (4,) and by[0].dtype == torch.float32
    assert (by[0] < 0).all() and (by[1] < by[0]).all()


def test_the_prompt_plays_no_part(reward: EncoderReward, pictures: torch.Tensor) -> None:
    context = Context(source=pictures.roll(1, 0))
    scores = reward.score(["", " ", "x", "y"], pictures, context=context)
    assert torch.equal(scores, reward.score(["a"] * 4, pictures, context=context))
    assert not scores.isnan().any()


def test_a_missing_source_is_nan_and_logged(
    reward: EncoderReward, pictures: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    for context in (None, Context()):
        with caplog.at_level(logging.WARNING):
            assert reward.score([""] * 4, pictures, context=context).isnan().all()
        assert "no source pictures, 4 samples" in caplog.text
        caplog.clear()
    source = pictures.roll(1, 0)
    source[2] = torch.nan
    with caplog.at_level(logging.WARNING):
        scores = reward.score([""] * 4, pictures, context=Context(source=source))
    assert scores.isnan().tolist() == [False, False, True, False]
    assert "1 of 4 samples" in caplog.text


def test_too_small_pictures_are_nan(reward: EncoderReward) -> None:
    sizes = (31, 30, 1)
    media = [torch.rand(1, 3, s, 40) for s in sizes]
    source = [torch.rand(1, 3, s, 40) for s in sizes]
    scores = reward.score([""] * 3, media, context=Context(source=source))
    assert scores.isnan().tolist() == [False, True, True]


def test_other_numbers_and_sizes_are_refused(reward: EncoderReward, pictures: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="4 media and 3 source"):
        reward.score([""] * 4, pictures, context=Context(source=pictures[:3]))
    with pytest.raises(ValueError, match="resize one"):
        reward.score([""] * 4, pictures, context=Context(source=pictures[..., :40]))


def test_gradient_pulls_towards_the_source(reward: EncoderReward, pictures: torch.Tensor) -> None:
    """Finite also on a flat picture, where many features are 0."""
    source = pictures.roll(1, 0)
    media = pictures.clone()
    media[0] = 0.0
    media.requires_grad_()
    scores = reward.score([""] * 4, media, context=Context(source=source))
    (gradient,) = torch.autograd.grad(scores.sum(), media)
    assert torch.isfinite(gradient).all()
    norms = gradient.flatten(1).norm(dim=1)
    assert (norms > 0).all()
    with torch.no_grad():
        step = 0.05 * gradient / norms.view(-1, 1, 1, 1)
        assert (reward.score([""] * 4, media + step, context=Context(source=source)) > scores).all()


def test_the_weights_of_the_package_are_found_without_importing_it(
    files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lpips_distance, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"t2x\[lpips\]"):
        load_reward("lpips", trunk=files["trunk"])
    spec = ModuleSpec("lpips", None)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(lpips_distance, "find_spec", lambda name: spec)
    (tmp_path / "weights" / "v0.1").mkdir(parents=True)
    torch.save(lpips_layers(), tmp_path / "weights" / "v0.1" / "alex.pth")
    assert load_reward("lpips", trunk=files["trunk"]).name == "lpips"
    assert "lpips" not in sys.modules


def test_files_that_do_not_fit_are_said(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(T2XError, match="alex, vgg"):
        load_reward("lpips", net="resnet", **files)
    with pytest.raises(T2XError, match="no alexnet of torchvision"):
        load_reward("lpips", weights=files["weights"], trunk=files["weights"])
    with pytest.raises(T2XError, match="LPIPS weights of alex"):
        load_reward("lpips", weights=files["trunk"], trunk=files["trunk"])
    with pytest.raises(T2XError, match="there is no file"):
        load_reward("lpips", weights=tmp_path / "none", trunk=files["trunk"])
