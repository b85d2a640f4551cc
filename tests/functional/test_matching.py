"""ImageReward's head and BLIP's matching head in closed form."""

from __future__ import annotations

import pytest
import torch

from t2x.functional.matching import (
    IMAGE_REWARD_MEAN,
    IMAGE_REWARD_STD,
    image_reward,
    match_logit,
)
from t2x.functional.scores import affine_chain


def test_image_reward_is_affine_and_standardised() -> None:
    """Layers 2x + 1 and 3y - 4 on one number: 6x - 1."""
    layers = [
        (torch.tensor([[2.0]]), torch.tensor([1.0])),
        (torch.tensor([[3.0]]), torch.tensor([-4.0])),
    ]
    x = torch.tensor([[-1.0], [0.0], [2.0]])
    expected = (torch.tensor([-7.0, -1.0, 11.0]) - IMAGE_REWARD_MEAN) / IMAGE_REWARD_STD
    assert torch.allclose(image_reward(x, layers), expected)
    assert image_reward(x.bfloat16(), layers).dtype == torch.float32


def test_relu_lies_between_layers_alone() -> None:
    layers = [
        (torch.tensor([[2.0]]), torch.tensor([1.0])),
        (torch.tensor([[3.0]]), torch.tensor([-4.0])),
    ]
    x = torch.tensor([[-1.0], [0.0]])
    assert affine_chain(x, layers, relu=True).tolist() == [-4.0, -1.0]
    assert affine_chain(x, layers).tolist() == [-7.0, -1.0]


def test_a_raw_output_at_the_mean_is_zero() -> None:
    layers = [(torch.zeros(1, 3), torch.tensor([IMAGE_REWARD_MEAN]))]
    assert image_reward(torch.rand(2, 3), layers).abs().max() < 1e-7


def test_match_logit_is_the_softmax_s() -> None:
    logits = torch.tensor([[0.0, 0.0], [1.0, 3.0], [-40.0, 60.0]])
    assert match_logit(logits).tolist() == [0.0, 2.0, 100.0]
    assert torch.allclose(match_logit(logits).sigmoid(), logits.softmax(1)[:, 1])


def test_it_tells_apart_what_the_probability_does_not() -> None:
    logits = torch.tensor([[0.0, 20.0], [0.0, 40.0]])
    assert match_logit(logits).diff().item() == pytest.approx(20.0)
    assert logits.softmax(1)[:, 1].diff().item() == 0
