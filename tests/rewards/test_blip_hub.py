"""With a hub: the published checkpoints fit the classes, tensor by tensor, and tell texts apart."""

from __future__ import annotations

import pytest
import torch

from t2x.registry import load_reward
from t2x.types import Context


@pytest.mark.hub
@pytest.mark.parametrize("name", ["imagereward", "blip-itm"])
def test_a_red_picture_is_red(name: str) -> None:
    red = torch.zeros(2, 3, 256, 256)
    red[:, 0] = 1
    scores = load_reward(name).score(["a plain red picture", "a photo of a brown dog"], red)
    assert torch.isfinite(scores).all()
    assert scores[0] > scores[1]


@pytest.mark.hub
@pytest.mark.parametrize("source", ["facebook/dinov2-base", "facebook/dino-vits16"])
def test_a_picture_is_like_itself(source: str) -> None:
    picture = torch.rand(1, 3, 256, 256, generator=torch.Generator().manual_seed(0))
    scores = load_reward("dino", source=source).score([""], picture, context=Context(picture))
    assert scores.item() == pytest.approx(1, abs=1e-4)
