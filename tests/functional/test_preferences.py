"""Closed forms of rewards that are learnt from choices."""

from __future__ import annotations

import math

import torch

from t2x.functional.preferences import (
    choices,
    ideal_point,
    ideal_point_reward,
    pair_features,
    uncertain_reward,
)
from t2x.functional.scores import cosine


def test_ideal_point_lies_between_the_prototypes() -> None:
    prototypes = torch.tensor([[0.0, 4.0], [8.0, 0.0]])
    weights = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    assert ideal_point(prototypes, weights).tolist() == [[0.0, 4.0], [6.0, 1.0]]


def test_ideal_point_reward_is_minus_the_distance() -> None:
    """From (3, 4) to the origin 5, to itself 0; the nearer item is the better one."""
    items = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.3, 0.4]])
    ideal = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    got = ideal_point_reward(items, ideal)
    assert torch.allclose(got, torch.tensor([-5.0, 0.0, -0.5]))


def test_pair_features_hold_the_cosine() -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator)
    head = torch.cat([torch.zeros(6), torch.ones(6)])
    features = pair_features(image, text)
    assert torch.allclose(features @ head, cosine(image, text), atol=1e-6)
    assert torch.allclose(features[:, :6].norm(dim=1), torch.ones(4))
    assert torch.allclose(pair_features(7 * image, 2 * text), features, atol=1e-6)


def test_choices_and_who_cannot_tell() -> None:
    first = torch.tensor([0.9, 0.1, 0.5, math.nan, 0.5])
    second = torch.tensor([0.1, 0.9, 0.55, 0.5, 0.4])
    assert choices(first, second, margin=0.1).tolist() == [0, 1, -1, -1, -1]
    assert choices(first, second, margin=0.0).tolist() == [0, 1, 1, -1, 0]


def test_uncertain_reward_has_relu_between_layers_only() -> None:
    """(2, -3) by the identity, -3 cut to 0, then mu = 2 * 2 - 5 = -1, which is not cut; sigma 0.5.

    The input itself is not cut either: (-2, 1) gives mu = -5 + 0 and sigma = 0.5 + 1.
    """
    layers = [
        (torch.eye(2), torch.zeros(2)),
        (torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([-5.0, 0.5])),
    ]
    got = uncertain_reward(torch.tensor([[2.0, -3.0], [-2.0, 1.0]]), layers)
    assert got.tolist() == [[-1.0, 0.5], [-5.0, 1.5]]
    turned = [(torch.tensor([[-1.0]]), torch.zeros(1)), (torch.ones(2, 1), torch.zeros(2))]
    assert uncertain_reward(torch.tensor([[-3.0]]), turned).tolist() == [[3.0, 3.0]]


def test_gradients() -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (
        torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(2)
    )
    assert torch.autograd.gradcheck(ideal_point_reward, (a, b))
    assert torch.autograd.gradcheck(pair_features, (a, b))
