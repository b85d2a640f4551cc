"""Closed forms of the losses on pairs."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.preference_losses import dpo_loss, rebel_loss, sem_dpo_loss, sem_dpo_weight


def test_dpo_at_equal_ratios_is_log_two_and_falls_with_the_margin() -> None:
    """A margin of log(3) / beta leaves the loser a share of 1 / 4: -log(3 / 4)."""
    chosen, rejected = torch.tensor([2.0, math.log(3) / 0.1]), torch.tensor([2.0, 0.0])
    got = dpo_loss(chosen, rejected, beta=0.1)
    assert torch.allclose(got, torch.tensor([math.log(2), -math.log(0.75)]), atol=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
def test_weight_of_same_orthogonal_and_opposite_texts(alpha: float) -> None:
    prompt = torch.tensor([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    chosen = torch.tensor([[3.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    expected = torch.tensor([1.0, math.exp(-alpha), math.exp(-2 * alpha)])
    assert torch.allclose(sem_dpo_weight(prompt, chosen, alpha=alpha), expected)


def test_weight_falls_with_the_angle_and_never_passes_one() -> None:
    angles = torch.linspace(0, math.pi, 50)
    turned = torch.stack([angles.cos(), angles.sin()], dim=-1)
    weights = sem_dpo_weight(turned[:1].expand(50, 2), turned, alpha=2.0)
    assert (weights.diff() < 0).all()
    assert weights.max() <= 1
    vector = torch.randn(1000, 33, generator=torch.Generator().manual_seed(0))
    assert sem_dpo_weight(vector, 3 * vector, alpha=50.0).max() <= 1  # cosines round above 1


def test_weighted_loss_at_weight_one_is_that_of_dpo() -> None:
    chosen, rejected = torch.tensor([0.3, -2.0]), torch.tensor([-0.1, 1.0])
    plain = dpo_loss(chosen, rejected, beta=0.2)
    assert torch.equal(sem_dpo_loss(chosen, rejected, torch.ones(2), beta=0.2), plain)
    weighted = sem_dpo_loss(chosen, rejected, torch.tensor([0.5, 0.0]), beta=0.2)
    assert torch.allclose(weighted, plain * torch.tensor([0.5, 0.0]))


def test_rebel_is_zero_at_its_solution_and_symmetric() -> None:
    """The solution of a round is pi = pi_t exp(eta r) / Z: l = eta r - log Z, whatever Z is."""
    eta, log_z = 0.5, 1.7
    first, second = torch.tensor([0.9, -1.0, 0.2]), torch.tensor([0.1, 2.0, 0.2])
    l1, l2 = eta * first - log_z, eta * second - log_z
    assert torch.allclose(rebel_loss(l1, l2, first, second, eta=eta), torch.zeros(3), atol=1e-6)
    # No ratio yet: the squared difference of the rewards.
    zero = torch.zeros(3)
    at_start = rebel_loss(zero, zero, first, second, eta=eta)
    assert torch.allclose(at_start, torch.tensor([0.64, 9.0, 0.0]))
    assert torch.allclose(rebel_loss(zero, zero, second, first, eta=eta), at_start)
    # (1 - 0) / 0.5 - (3 - 2) = 1, and (4 - 0) / 0.5 - 1 = 7
    l1, r1, r2 = torch.tensor([1.0, 4.0]), torch.tensor([3.0, 3.0]), torch.tensor([2.0, 2.0])
    assert rebel_loss(l1, torch.zeros(2), r1, r2, eta=0.5).tolist() == [1.0, 49.0]
    assert rebel_loss(l1, torch.zeros(2), r1, r2 * math.nan, eta=0.5).isnan().all()


def test_gradients() -> None:
    generator = torch.Generator().manual_seed(1)
    a, b, c, d = (
        torch.randn(3, generator=generator, dtype=torch.float64, requires_grad=True)
        for _ in range(4)
    )
    assert torch.autograd.gradcheck(lambda x, y: dpo_loss(x, y, beta=0.3), (a, b))
    assert torch.autograd.gradcheck(lambda x, y, w: sem_dpo_loss(x, y, w, beta=0.3), (a, b, c))
    assert torch.autograd.gradcheck(
        lambda w, x, y, z: rebel_loss(w, x, y, z, eta=0.7), (a, b, c, d)
    )
