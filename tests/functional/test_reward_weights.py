"""Adaptive weights in closed form, and the traps of the released code."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.reward_weights import faults_of_rewards, satisfied_weights


def test_weights_by_hand() -> None:
    """Weights 1 and 2, dissatisfaction log 4 and 0 at temperature 1: 4 against 2, of a sum of 3."""
    got = satisfied_weights(
        torch.tensor([[1.0, 2.0]]), torch.tensor([[math.log(4), 0.0]]), temperature=1.0
    )
    assert torch.allclose(got, torch.tensor([[2.0, 1.0]]))


def test_equal_satisfaction_changes_nothing() -> None:
    weights = torch.tensor([[0.3, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert torch.allclose(satisfied_weights(weights, torch.full((2, 3), 0.7)), weights)


def test_what_is_not_measured_counts_as_the_mean() -> None:
    """0 and 1 measured, the third is 1/2: odds of 1 : e : e^(1/2)."""
    got = satisfied_weights(torch.ones(1, 3), torch.tensor([[0.0, 1.0, math.nan]]), temperature=1.0)
    odds = torch.tensor([[1.0, math.e, math.exp(0.5)]])
    assert torch.allclose(got, 3 * odds / odds.sum())
    assert torch.allclose(
        satisfied_weights(torch.ones(1, 2), torch.full((1, 2), math.nan)), torch.ones(1, 2)
    )


def test_weights_are_constants_and_never_negative() -> None:
    """The released code differentiates through its softmax: the lower of 0.12 and 0.27 is then
    pushed down. Here the gradient of the weighed sum is the weights themselves.
    """
    values = torch.tensor([[0.12, 0.27]], requires_grad=True)
    weights = satisfied_weights(torch.ones(1, 2), 1 - values, temperature=1e-3)
    assert not weights.requires_grad
    (slope,) = torch.autograd.grad((weights * values).sum(), values)
    assert torch.equal(slope, weights) and bool((weights >= 0).all())
    assert weights[0, 0] > weights[0, 1]  # to the one that is worse
    assert weights.sum() == pytest.approx(2.0)
    with pytest.raises(ValueError, match="at least 0"):
        satisfied_weights(torch.tensor([[-1.0, 1.0]]), torch.zeros(1, 2))


def test_rows_are_apart() -> None:
    weights, faults = torch.rand(2, 4), torch.rand(2, 4)
    both = satisfied_weights(weights, faults)
    each = [satisfied_weights(weights[i : i + 1], faults[i : i + 1]) for i in range(2)]
    assert torch.allclose(both, torch.cat(each))


def test_faults_of_rewards_by_hand() -> None:
    """Kinds half wrong, not asked, all right: a reward that serves the first wholly has 0.5 / 2,
    one that serves the others alone none. Nothing asked: not known.
    """
    wrong = torch.tensor([[0.5, math.nan, 0.0], [math.nan] * 3])
    got = faults_of_rewards(wrong, torch.tensor([[1.0, 0.9, 0.3], [0.0, 1.0, 1.0]]))
    assert got[0].tolist() == [0.25, 0.0]
    assert got[1].isnan().all()
