"""What rewards of encoders refuse and take; the contract is in tests/rewards/test_contract.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from t2x.media import from_pil
from t2x.registry import load_reward
from t2x.types import RewardModel

from .conftest import PROMPTS


@pytest.fixture
def reward(tiny_clip: Path) -> RewardModel:
    return load_reward("clip", source=tiny_clip)


def test_is_a_reward_model(reward: RewardModel) -> None:
    assert isinstance(reward, RewardModel)
    assert reward.scale == "cos"
    assert reward.range == (-1.0, 1.0)


def test_mismatch_and_wrong_types_are_refused(reward: RewardModel, pictures: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="2 prompts and 6 media"):
        reward.score(PROMPTS[:2], pictures)
    with pytest.raises(TypeError, match="list of strings"):
        reward.score("a cat", pictures[:1])
    with pytest.raises(TypeError, match="from_pil"):
        reward.score(["a"], [Image.new("RGB", (8, 8))])
    with pytest.raises(ValueError, match="from_pil"):
        reward.score(["a"], torch.rand(1, 4, 8, 8))
    with pytest.raises(ValueError, match="floats"):
        reward.score(["a"], torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match="between 0 and 255, allowed"):
        reward.score(["a"], torch.linspace(0, 255, 192).reshape(1, 3, 8, 8))
    with pytest.raises(ValueError, match="between -1 and 1"):
        reward.score(["a"], torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8))
    for shape in [(1, 3, 0, 5), (1, 3, 5, 0)]:
        with pytest.raises(ValueError, match="no pixels"):
            reward.score(["a"], torch.rand(shape))
    slightly = torch.linspace(-0.1, 1.1, 192).reshape(1, 3, 8, 8)  # as in the midst of guidance
    assert bool(reward.score(["a"], slightly).isfinite())
    with pytest.raises(ValueError, match="images of shape"):
        reward.score(["a"], torch.rand(1, 2, 3, 8, 8))


def test_grey_and_transparent_pictures_go_through_from_pil(reward: RewardModel) -> None:
    grey = Image.new("L", (40, 40), 128)
    clear = Image.new("RGBA", (40, 40), (255, 0, 0, 0))
    plain = [Image.new("RGB", (40, 40), (128,) * 3), Image.new("RGB", (40, 40), "white")]
    scores = reward.score(["a cat"] * 2, from_pil([grey, clear]))
    assert torch.allclose(scores, reward.score(["a cat"] * 2, from_pil(plain)), atol=1e-6)


def test_pictures_of_several_sizes(reward: RewardModel, pictures: torch.Tensor) -> None:
    media = [pictures[:1], pictures[1:2, :, :, :40]]
    scores = reward.score(PROMPTS[:2], media)
    assert torch.allclose(scores[0], reward.score(PROMPTS[:1], pictures[:1])[0], atol=1e-6)
