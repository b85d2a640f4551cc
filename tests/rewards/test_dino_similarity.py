"""DINO similarity on tiny networks of the real classes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BitImageProcessor,
    Dinov2Config,
    Dinov2Model,
    ViTConfig,
    ViTImageProcessor,
    ViTModel,
)

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.testing import fixed_weights
from t2x.types import Context

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
    "initializer_range": 0.2,
}


@pytest.fixture(scope="module", params=["dino", "dinov2"])
def network(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    with fixed_weights(0):
        if request.param == "dino":
            model = ViTModel(ViTConfig(**SIZES, intermediate_size=64), add_pooling_layer=False)
            return model.eval(), ViTImageProcessor(size={"height": 32, "width": 32}, resample=3)
        model = Dinov2Model(Dinov2Config(**SIZES)).eval()
    processor = BitImageProcessor(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, resample=3
    )
    return model, processor


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


def test_batches_gradients_and_missing_sources(
    network: tuple[Any, Any], pictures: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    reward = load_reward("dino", source=network)
    source = pictures.roll(1, 0)
    media = pictures.clone().requires_grad_()
    together = reward.score([""] * 3, media, context=Context(source=source))
    (gradient,) = torch.autograd.grad(together.sum(), media)
    assert torch.isfinite(gradient).all() and (gradient.flatten(1).norm(dim=1) > 0).all()
    apart = [
        reward.score([""], pictures[i : i + 1], context=Context(source=source[i : i + 1]))
        for i in range(3)
    ]
    assert torch.allclose(together, torch.cat(apart), atol=1e-5)
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
    with pytest.raises(T2XError, match="can't load the network"):
        load_reward("dino", source=tmp_path / "none")
