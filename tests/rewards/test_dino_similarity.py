"""DINO similarity on tiny networks of the real classes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.types import Context

from .tiny_networks import tiny_dino


@pytest.fixture(scope="module", params=["dino", "dinov2"])
def network(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return tiny_dino(request.param)


@pytest.fixture
def pictures() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(3, 3, 48, 64, generator=generator).mul(255).round() / 255


def test_equals_the_network_behind_its_own_processor(
    network: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    model, processor = network
    source = pictures.roll(1, 0)
    scores = load_reward("dino", source=network).score(
        [""] * 3, pictures, context=Context(source=source)
    )

    def embed(media: torch.Tensor) -> torch.Tensor:
        images = [(p * 255).byte() for p in media]
        with torch.no_grad():
            return model(**processor(images=images, return_tensors="pt")).last_hidden_state[:, 0]

    expected = torch.nn.functional.cosine_similarity(embed(pictures), embed(source))
    assert torch.allclose(scores, expected, atol=0.02)
    assert expected.std() > 0.05


def test_a_picture_is_like_itself_at_any_size(
    network: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    reward = load_reward("dino", source=network)
    same = reward.score(["x"] * 3, pictures, context=Context(source=pictures))
    assert torch.allclose(same, torch.ones(3), atol=1e-6)
    large = torch.nn.functional.interpolate(pictures, scale_factor=2, mode="nearest")
    assert reward.score([""] * 3, large, context=Context(source=pictures)).shape == (3,)


def test_missing_sources_are_nan_and_logged(
    network: tuple[Any, Any], pictures: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    reward = load_reward("dino", source=network)
    with caplog.at_level(logging.WARNING):
        assert reward.score([""] * 3, pictures).isnan().all()
    assert "no source pictures" in caplog.text


def test_a_saved_folder_loads(
    network: tuple[Any, Any], pictures: torch.Tensor, tmp_path: Path
) -> None:
    for part in network:
        part.save_pretrained(tmp_path)
    context = Context(source=pictures.roll(1, 0))
    by_folder = load_reward("dino", source=tmp_path).score([""] * 3, pictures, context=context)
    loaded = load_reward("dino", source=network).score([""] * 3, pictures, context=context)
    assert torch.allclose(by_folder, loaded, atol=1e-6)
    with pytest.raises(T2XError, match="cannot load the network"):
        load_reward("dino", source=tmp_path / "none")
