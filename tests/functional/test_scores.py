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
    hps_preference_loss,
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
    assert torch.autograd.gradcheck(bradley_terry_loss, (draw(4), draw(4)))
    even = torch.full((3, 2), 0.5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda s: hps_preference_loss(s, even), (draw(3, 2),))
    layers = [(draw(4, 5), draw(4)), (draw(1, 4), draw(1))]
    assert torch.autograd.gradcheck(lambda x: aesthetic_score(x, layers, relu=True), (draw(3, 5),))
