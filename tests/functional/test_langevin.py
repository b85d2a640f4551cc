"""Equations of guided Langevin sampling: closed forms, identities, gradients."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from t2x.functional.langevin import (
    AncestralSplit,
    ancestral_split,
    clean_shift,
    corrector_step,
    damped_strength,
    langevin_update,
    logistic_step,
    posterior_variance,
    trade_noise,
)


def wide(*shape: int, seed: int = 0) -> Tensor:
    found = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return found.requires_grad_()


def test_logistic_step() -> None:
    """At the target half way; log 3 / steepness below it 3/4 of the way; ends at low and high."""
    rewards = torch.tensor([0.5, 0.5 - math.log(3) / 4, 1e4, -1e4], dtype=torch.float64)
    found = logistic_step(rewards, low=1.0, high=3.0, steepness=4.0, target=0.5)
    assert torch.allclose(found, torch.tensor([2.0, 2.5, 1.0, 3.0], dtype=torch.float64))
    assert gradcheck(
        lambda r: logistic_step(r, low=1.0, high=3.0, steepness=4.0, target=0.5), wide(5)
    )


@pytest.mark.parametrize(
    ("alpha", "sigma", "variance", "expected"),
    [
        (0.0, 1.0, 0.25, 0.25),  # nothing seen: the prior's
        (1.0, 0.0, 0.25, 0.0),  # all seen
        (1.0, 0.5, 0.25, 0.125),  # as much noise as signal: half
        (0.6, 0.8, 4.0, 4 * 0.64 / (1.44 + 0.64)),
    ],
)
def test_posterior_variance(alpha: float, sigma: float, variance: float, expected: float) -> None:
    assert posterior_variance(alpha, sigma, variance) == pytest.approx(expected)


@pytest.mark.parametrize("strength", [0.0, 0.5, 20.0])
def test_damping_gives_the_mean_of_the_tilted_posterior(strength: float) -> None:
    """N(m, v) tilted by exp(-l (x - c)^2) has mean (m / v + 2 l c) / (1 / v + 2 l), which is
    m + v l' (-2) (m - c) with the damped l'."""
    m, v, c = 0.3, 0.7, -1.1
    exact = (m / v + 2 * strength * c) / (1 / v + 2 * strength)
    assert m + v * damped_strength(strength, v) * -2 * (m - c) == pytest.approx(exact)


def test_clean_shift_is_the_score_plus_the_gradient() -> None:
    """x0_hat' = (x + sigma^2 (s + g)) / alpha."""
    x, s, g = wide(2, 3), wide(2, 3, seed=1), wide(2, 3, seed=2)
    clean = (x + 0.64 * s) / 0.6
    expected = (x + 0.64 * (s + g)) / 0.6
    assert torch.allclose(clean + clean_shift(g, 0.6, 0.8), expected)
    assert gradcheck(lambda g: clean_shift(g, 0.6, 0.8), g)


@pytest.mark.parametrize("sigma", [0.4, 2.0, 157.0, math.inf])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 1.0])
def test_ancestral_split_keeps_the_noise(sigma: float, gamma: float) -> None:
    kept, new = ancestral_split(sigma, 0.3, gamma)
    assert kept**2 + new**2 == pytest.approx(0.09)
    assert gamma > 0 or (kept, new) == (pytest.approx(0.3), 0.0)


def test_ancestral_split_of_the_posterior() -> None:
    """gamma = 1 is the variance of x' given x and x0: sigma = 2, sigma' = 1: 1 * (4 - 1) / 4; from
    infinite noise, all is new."""
    assert ancestral_split(2.0, 1.0, 1.0) == pytest.approx((0.5, math.sqrt(0.75)))
    assert ancestral_split(math.inf, 1.0, 1.0) == pytest.approx((0.0, 1.0))
    assert ancestral_split(2.0, 0.0, 1.0) == (0.0, 0.0)


def test_ancestral_split_is_ddims_eta() -> None:
    """DDIM's eq. 16 with eta^2 = gamma, times 1 / alpha'^2 to be in the space x / alpha."""
    bar, after, eta = 0.3, 0.6, 0.7
    variance = eta**2 * (1 - after) / (1 - bar) * (1 - bar / after)
    ratio, then = math.sqrt((1 - bar) / bar), math.sqrt((1 - after) / after)
    assert ancestral_split(ratio, then, eta**2).new ** 2 == pytest.approx(variance / after)


def test_trading_noise_leaves_the_marginal() -> None:
    """x' = a x0 + a sigma' eps becomes a x0 + a (kept eps + new z), of the same law."""
    x0, eps, z = wide(4, 5), wide(4, 5, seed=1), wide(4, 5, seed=2)
    split = AncestralSplit(0.3, 0.4)
    found = trade_noise(0.8 * x0 + 0.8 * 0.5 * eps, eps, z, split, 0.8)
    assert torch.allclose(found, 0.8 * (x0 + 0.3 * eps + 0.4 * z))
    assert gradcheck(lambda x, e: trade_noise(x, e, z, split, 0.8), (x0, eps))


def test_corrector_step() -> None:
    """|z| = 5, |s| = 10, r = 0.2: 2 * (0.2 / 2)^2 = 0.02; and 0.08 where |s| = 5."""
    score = torch.tensor([[[6.0, 8.0]], [[3.0, 4.0]]], dtype=torch.float64)
    noise = torch.tensor([[[0.0, 5.0]], [[4.0, 3.0]]], dtype=torch.float64)
    found = corrector_step(score, noise, ratio=0.2)
    assert torch.allclose(found, torch.tensor([0.02, 0.08], dtype=torch.float64))
    assert torch.allclose(corrector_step(score, noise, ratio=0.2, scale=0.5), found / 2)
    assert torch.equal(corrector_step(score[1:], noise[1:], ratio=0.2), found[1:])
    assert gradcheck(lambda s: corrector_step(s, wide(3, 4, seed=1), ratio=0.2), wide(3, 4))


def test_langevin_update() -> None:
    """x + e s + sqrt(2 e) z, each sample with its own e: 1 - 0.5 * 2 + 1 * 3 = 3; e = 0: stays."""
    x, s, z = torch.ones(2, 1), torch.full((2, 1), -2.0), torch.full((2, 1), 3.0)
    found = langevin_update(x, s, z, torch.tensor([0.5, 0.0]))
    assert found.flatten().tolist() == [3.0, 1.0]
    step = torch.tensor([0.5, 0.1], dtype=torch.float64)
    assert gradcheck(lambda x, s: langevin_update(x, s, wide(2, 3), step), (wide(2, 3), wide(2, 3)))


def test_the_chain_is_too_wide_by_ratio_squared() -> None:
    """Of N(0, 1), s = -x: v' = (1 - e)^2 v + 2 e has the fixed point 1 / (1 - e / 2), and e is
    2 r^2: 1 / (1 - r^2). A step whose drift is left out grows without bound."""
    noise, ratio = torch.Generator().manual_seed(0), 0.3
    x = torch.randn(1, 200_000, generator=noise)
    for _ in range(60):
        z = torch.randn(x.shape, generator=noise)
        x = langevin_update(x, -x, z, corrector_step(-x, z, ratio=ratio))
    # e follows the sample's own norm: 2 r^2 |z|^2 / |x|^2 = 2 r^2 / v, so v = 1 + e / 2 v = 1 + r^2
    assert x.var().item() == pytest.approx(1 + ratio**2, rel=0.01)
