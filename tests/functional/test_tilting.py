"""Tilted laws against quadrature and identities."""

from __future__ import annotations

import pytest
import torch

from t2x.functional.tilting import Mixture, mixture_moments, tilted_gaussian, tilted_mixture

MIXTURE = Mixture(
    torch.tensor([0.3, 0.7], dtype=torch.float64),
    torch.tensor([[-1.0, 0.5], [1.2, -0.4]], dtype=torch.float64),
    torch.tensor([[[0.3, 0.1], [0.1, 0.2]], [[0.15, -0.05], [-0.05, 0.4]]], dtype=torch.float64),
)
TARGET = torch.tensor([-0.5, 0.8], dtype=torch.float64)


def test_the_case_of_the_literature() -> None:
    """N(0, 1/4), c = 1, lambda = 2: precision 4 + 4, mean 4 / 8, variance 1 / 8."""
    mean, variance = tilted_gaussian(torch.zeros(()), torch.tensor(0.25), strength=2.0, target=1.0)
    assert (mean.item(), variance.item()) == (0.5, 0.125)


def test_no_strength_changes_nothing_and_two_tilts_add() -> None:
    law = (torch.tensor([0.2, -3.0]), torch.tensor([0.5, 2.0]))
    same = tilted_gaussian(*law, strength=0.0, target=9.0)
    assert all(torch.equal(a, b) for a, b in zip(same, law, strict=True))
    once = tilted_gaussian(*law, strength=1.5, target=0.7)
    twice = tilted_gaussian(
        *tilted_gaussian(*law, strength=1.0, target=0.7), strength=0.5, target=0.7
    )
    assert all(torch.allclose(a, b) for a, b in zip(once, twice, strict=True))


@pytest.mark.parametrize("strength", [0.0, 0.4, 3.0])
def test_a_tilted_mixture_by_quadrature(strength: float) -> None:
    axis = torch.linspace(-6, 6, 801, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(-1, 2)
    density = torch.zeros(len(grid), dtype=torch.float64)
    share = torch.zeros(2, dtype=torch.float64)
    parts = []
    for weight, mean, covariance in zip(*MIXTURE, strict=True):
        law = torch.distributions.MultivariateNormal(mean, covariance)
        parts.append(weight * law.log_prob(grid).exp())
    reward = (-strength * (grid - TARGET).square().sum(1)).exp()
    share = torch.stack([(part * reward).sum() for part in parts])
    density = sum(parts) * reward
    density = density / density.sum()
    mean = density @ grid
    covariance = torch.einsum("n,ni,nj->ij", density, grid - mean, grid - mean)
    tilted = tilted_mixture(MIXTURE, strength=strength, target=TARGET)
    assert torch.allclose(tilted.weights, share / share.sum(), atol=1e-6)
    found = mixture_moments(tilted)
    assert torch.allclose(found[0], mean, atol=1e-6)
    assert torch.allclose(found[1], covariance, atol=1e-6)


def test_a_mixture_of_one_is_the_gaussian() -> None:
    one = Mixture(
        torch.ones(1), torch.tensor([[0.3, -0.2]]), torch.diag(torch.tensor([0.5, 2.0]))[None]
    )
    tilted = tilted_mixture(one, strength=0.9, target=torch.tensor([1.0, 2.0]))
    mean, variance = tilted_gaussian(
        one.means[0],
        one.covariances[0].diagonal(),
        strength=0.9,
        target=torch.tensor([1.0, 2.0]),
    )
    assert torch.allclose(tilted.means[0], mean)
    assert torch.allclose(tilted.covariances[0].diagonal(), variance)
