"""Closed forms, identities and gradients of the score equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from t2x.functional.scores import (
    aesthetic_score,
    bradley_terry_loss,
    clip_s,
    cosine,
    goal_baseline_score,
    hps_preference_loss,
    match_probability,
    scaled_cosine,
    sigmoid_pair_loss,
)


def test_cosine_of_known_angles() -> None:
    # (3, 4) against (1, 0): 3/5; against itself times -2: -1; against (-4, 3): 0.
    image = torch.tensor([[3.0, 4.0]] * 3)
    text = torch.tensor([[1.0, 0.0], [-6.0, -8.0], [-4.0, 3.0]])
    assert torch.allclose(cosine(image, text), torch.tensor([0.6, -1.0, 0.0]), atol=1e-7)


def test_cosine_of_half_precision_is_reduced_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    image, text = (torch.randn(8, 512, generator=generator).half() for _ in range(2))
    exact = F.cosine_similarity(image.double(), text.double())
    assert cosine(image, text).dtype == torch.float32
    assert torch.allclose(cosine(image, text).double(), exact, atol=1e-6)


def test_clip_s_is_two_and_a_half_times_the_positive_part() -> None:
    assert clip_s(torch.tensor([0.3, -0.2])).tolist() == pytest.approx([0.75, 0.0])


def test_scaled_cosine_takes_the_logarithm() -> None:
    value = scaled_cosine(torch.tensor([0.21]), math.log(100))
    assert value.tolist() == pytest.approx([21.0], rel=1e-6)


def test_bradley_terry_closed_form() -> None:
    # -log sigmoid(0) = log 2; -log sigmoid(log 3) = -log(3/4)
    loss = bradley_terry_loss(torch.tensor([1.0, math.log(3)]), torch.tensor([1.0, 0.0]))
    assert loss.tolist() == pytest.approx([math.log(2), math.log(4 / 3)])


def test_certain_preference_is_bradley_terry_and_order_is_told_apart() -> None:
    scores = torch.tensor([[2.0, -1.0], [0.5, 0.7]])
    loss = hps_preference_loss(scores, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    expected = bradley_terry_loss(torch.tensor([2.0, 0.7]), torch.tensor([-1.0, 0.5]))
    assert torch.allclose(loss, expected)
    turned = hps_preference_loss(scores.flip(1), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    assert not torch.allclose(loss, turned)


def test_even_preference_is_least_at_equal_scores() -> None:
    half = torch.tensor([[0.5, 0.5]])
    even = hps_preference_loss(torch.tensor([[1.0, 1.0]]), half)
    assert even.item() == pytest.approx(math.log(2))
    assert hps_preference_loss(torch.tensor([[1.0, 1.1]]), half).item() > even.item()


def test_sigmoid_pair_loss_closed_form() -> None:
    loss = sigmoid_pair_loss(torch.tensor([math.log(3), math.log(3)]), torch.tensor([True, False]))
    assert loss.tolist() == pytest.approx([math.log(4 / 3), math.log(4)])


def test_match_probability_closed_form() -> None:
    """exp(log 2) * 0.5 - 1 = 0, whose sigmoid is 1/2; 2 * 1 - 1 = 1; 2 * (-1) - 1 = -3."""
    value = match_probability(torch.tensor([0.5, 1.0, -1.0]), math.log(2), -1.0)
    expected = [0.5, 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(3))]
    assert value.tolist() == pytest.approx(expected)


def test_goal_baseline_score_closed_form() -> None:
    """g = (0, 1), b = (1, 0), s = (3, 4)/5: s - g = (0.6, -0.2), along d = (-1, 1) it is
    (0.4, -0.4). alpha 0: 1 - 0.40/2, the cosine; 1: 1 - 0.32/2; 1/2: 1 - (0.5^2 + 0.3^2)/2.
    """
    s, g, b = torch.tensor([[3.0, 4.0]]), torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])
    for alpha, expected in ((0.0, 0.8), (0.5, 0.83), (1.0, 0.84)):
        assert goal_baseline_score(s, g, b, alpha=alpha).tolist() == pytest.approx([expected])


def test_goal_baseline_score_is_the_projection_matrix_of_the_paper() -> None:
    """((s - g) M) with M = alpha d d^T / |d|^2 + (1 - alpha) I, in float64, also for a goal that
    is a mean of unit vectors and so shorter than one.
    """
    generator = torch.Generator().manual_seed(3)
    image, goal, base = (
        F.normalize(torch.randn(5, 8, generator=generator, dtype=torch.float64), dim=-1)
        for _ in range(3)
    )
    goal, base = (goal + base) / 2, base[0]
    for alpha in (0.0, 0.3, 1.0):
        rows = []
        for s, g in zip(image, goal, strict=True):
            d = g - base
            matrix = alpha * torch.outer(d, d) / d.dot(d) + (1 - alpha) * torch.eye(8).double()
            rows.append(1 - ((s - g) @ matrix).square().sum() / 2)
        score = goal_baseline_score(5 * image, goal, base, alpha=alpha)
        assert torch.allclose(score, torch.stack(rows), atol=1e-12)


def test_goal_baseline_score_identities() -> None:
    generator = torch.Generator().manual_seed(4)
    s, g, b = (F.normalize(torch.randn(6, 8, generator=generator), dim=-1) for _ in range(3))
    assert torch.allclose(goal_baseline_score(s, g, b, alpha=0.0), cosine(s, g), atol=1e-6)
    assert torch.allclose(goal_baseline_score(g, g, b, alpha=0.7), torch.ones(6), atol=1e-6)
    assert goal_baseline_score(s, g, g, alpha=0.5).isnan().all()
    assert torch.allclose(goal_baseline_score(s, g, g, alpha=0.0), cosine(s, g), atol=1e-6)


def test_aesthetic_score_normalises_and_is_affine_without_activation() -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 6, generator=generator)
    first = (torch.randn(4, 6, generator=generator), torch.randn(4, generator=generator))
    last = (torch.randn(1, 4, generator=generator), torch.randn(1, generator=generator))
    score = aesthetic_score(x, [first, last])
    assert torch.allclose(score, aesthetic_score(37 * x, [first, last]), atol=1e-5)
    folded = (last[0] @ first[0], last[0] @ first[1] + last[1])
    assert torch.allclose(score, aesthetic_score(x, [folded]), atol=1e-5)
    assert not torch.allclose(score, aesthetic_score(x, [first, last], relu=True), atol=1e-3)


def test_gradients() -> None:
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(cosine, (draw(3, 5), draw(3, 5)))
    assert torch.autograd.gradcheck(
        lambda s, g, b: goal_baseline_score(s, g, b, alpha=0.4), (draw(3, 5), draw(3, 5), draw(5))
    )
    assert torch.autograd.gradcheck(match_probability, (draw(4), draw(4), draw(4)))
    assert torch.autograd.gradcheck(bradley_terry_loss, (draw(4), draw(4)))
    even = torch.full((3, 2), 0.5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: hps_preference_loss(s, even), (draw(3, 2),))
    layers = [(draw(4, 5), draw(4)), (draw(1, 4), draw(1))]
    assert torch.autograd.gradcheck(lambda x: aesthetic_score(x, layers, relu=True), (draw(3, 5),))
