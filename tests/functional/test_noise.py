"""Initial noise: penalty, steps of its optimisation, neighbours, re-noising."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.noise import (
    clipped_gradient,
    near_noise,
    nesterov_step,
    noise_penalty,
    noised,
    time_travelled,
)


def test_penalty_by_hand() -> None:
    """e = (3, 4), d = 2: 0.01 (25 / 2 - log 5)."""
    got = noise_penalty(torch.tensor([[3.0, 4.0], [1.0, 0.0]]))
    assert got.tolist() == pytest.approx([0.01 * (12.5 - math.log(5)), 0.005])


def test_penalty_is_least_at_the_norm_of_noise() -> None:
    """d/dn (n^2 / 2 - (d - 1) log n) = n - (d - 1) / n: 0 at sqrt(d - 1)."""
    noise = torch.ones(1, 4, 4, 4)
    noise = (noise * math.sqrt(63) / 8).requires_grad_()
    (gradient,) = torch.autograd.grad(noise_penalty(noise).sum(), noise)
    assert gradient.abs().max().item() < 1e-8
    longer = noise_penalty(1.1 * noise).item()
    assert longer > noise_penalty(noise).item() < noise_penalty(0.9 * noise).item()


def test_penalty_is_finite_in_half_precision() -> None:
    """|e|^2 of 65,536 numbers is beyond float16's 65,504."""
    noise = torch.full((1, 65_536), 1.2, dtype=torch.float16)
    got = noise_penalty(noise)
    assert got.dtype == torch.float32 and bool(got.isfinite().all())
    assert got.item() == pytest.approx(noise_penalty(noise.double()).item(), rel=1e-5)


def test_penalty_gradcheck() -> None:
    noise = torch.randn(2, 3, 2, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(noise_penalty(noise).sum(), noise)
    norm = noise.flatten(1).norm(dim=1)[:, None, None]
    expected = 0.01 * (noise - 5 * noise / norm**2)
    assert torch.allclose(gradient, expected, atol=1e-6)


def test_clipping_is_per_sample() -> None:
    """Norms 5 and 0.05 at limit 0.1: the first becomes 0.1 long, the second stays."""
    gradient = torch.tensor([[3.0, 4.0], [0.03, 0.04]])
    got = clipped_gradient(gradient, 0.1)
    assert torch.allclose(got, torch.tensor([[0.06, 0.08], [0.03, 0.04]]), atol=1e-6)


def test_steps_are_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    value = torch.randn(2, 3, generator=generator)
    parameter = value.clone().requires_grad_()
    optimiser = torch.optim.SGD([parameter], lr=5.0, momentum=0.9, nesterov=True)
    velocity = torch.zeros_like(value)
    for _ in range(4):
        gradient = torch.randn(2, 3, generator=generator)
        parameter.grad = gradient.clone()
        optimiser.step()
        value, velocity = nesterov_step(value, gradient, velocity, rate=5.0)
        assert torch.allclose(value, parameter.detach(), atol=1e-5)


@pytest.mark.parametrize("distance", [0.0, 0.3, 1.0])
def test_neighbours_are_noise(distance: float) -> None:
    """Variance 1 at any distance; correlation with the pivot sqrt(1 - distance^2)."""
    pivot, noise = torch.randn(2, 400_000, generator=torch.Generator().manual_seed(1))
    near = near_noise(pivot, noise, distance)
    assert near.var().item() == pytest.approx(1, abs=0.01)
    expected = math.sqrt(1 - distance**2)
    assert (near * pivot).mean().item() == pytest.approx(expected, abs=0.01)


def test_noised() -> None:
    got = noised(torch.tensor([2.0]), torch.tensor([3.0]), 0.5, 0.1)
    assert got.item() == pytest.approx(1.3)


@pytest.mark.parametrize("levels", [((0.4, 0.6), (0.42, 0.58)), ((1.0, 2.0), (1.0, 1.9))])
def test_time_travel_keeps_the_level(levels: tuple[tuple[float, float], ...]) -> None:
    """Data N(0, 1.5^2) with the exact denoiser: one small step down and up keeps the marginal's
    variance, alpha^2 s^2 + sigma^2, but for the second-order error of the step down."""
    (alpha, sigma), _ = levels
    variance = 1.5**2
    total = alpha**2 * variance + sigma**2
    generator = torch.Generator().manual_seed(2)
    sample = math.sqrt(total) * torch.randn(300_000, generator=generator)
    noise = torch.randn(300_000, generator=generator)
    clean = alpha * variance / total * sample
    again = time_travelled(sample, clean, noise, levels)  # type: ignore[arg-type]
    assert again.var().item() == pytest.approx(total, rel=0.01)


def test_time_travel_by_hand() -> None:
    """x = 1, x0 = 2, levels (0.5, 0.5) to (0.75, 0.25): eps = 0, y = 1.5, up to 1 plus
    sqrt(0.25 - (2/3 * 1/4)^2) = 0.4714 of the noise."""
    arguments = (torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([1.0]))
    got = time_travelled(*arguments, ((0.5, 0.5), (0.75, 0.25)))
    assert got.item() == pytest.approx(1 + math.sqrt(0.25 - 1 / 36))
