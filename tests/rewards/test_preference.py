"""Preference scores: scales, softmax over two pictures, replaced preprocessing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.scores import hps_preference_loss
from t2x.registry import load_reward
from t2x.scoring.resize import Preprocess


@pytest.fixture
def pictures() -> torch.Tensor:
    """Two pictures that are not square."""
    return torch.rand(2, 3, 40, 80, generator=torch.Generator().manual_seed(0))


def test_scales(clip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    score = {
        s: load_reward("hps", source=clip, scale=s).score(["a cat"] * 2, pictures)
        for s in ("cos", "x100", "logit")
    }
    assert torch.allclose(score["x100"], 100 * score["cos"], rtol=1e-5)
    temperature = clip[0].logit_scale.exp()
    assert torch.allclose(score["logit"], temperature * score["cos"], rtol=1e-5)


def test_logits_of_two_pictures_are_the_odds_of_preference(
    clip: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    logits = load_reward("hps", source=clip, scale="logit").score(["a cat"] * 2, pictures)
    loss = hps_preference_loss(logits[None], torch.tensor([[1.0, 0.0]]))
    assert torch.allclose((-loss).exp(), logits.softmax(0)[:1])


def test_preprocessing_can_be_replaced_without_touching_the_shared_encoder(
    clip: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    padded = Preprocess((64, 64), (0.5,) * 3, (0.5,) * 3, mode="longest")
    reward = load_reward("hps", source=clip, preprocess=padded)
    plain = load_reward("hps", source=clip)
    assert reward.encoders["clip"].key != plain.encoders["clip"].key
    scores = reward.score(["a cat"] * 2, pictures)
    assert (scores - plain.score(["a cat"] * 2, pictures)).abs().max() > 1e-3
    bars = torch.zeros(2, 3, 80, 80)
    bars[:, :, 20:60] = pictures
    assert torch.allclose(scores, reward.score(["a cat"] * 2, bars), atol=1e-3)


def test_unknown_scale_lists_the_known_ones(clip: tuple[Any, Any]) -> None:
    with pytest.raises(T2XError, match="cos, x100, logit"):
        load_reward("hps", source=clip, scale="clipscore")
