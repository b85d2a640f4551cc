"""Editing: closed forms on Gaussians."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from t2x.functional.editing import displaced, focus, tethered
from t2x.functional.noise import noised

FLOW = [(1 - t, t) for t in torch.linspace(1, 0, 9).tolist()]
PRESERVING = [(math.cos(a), math.sin(a)) for a in torch.linspace(1.5, 0, 9).tolist()]
SCALED = [(1.0, s) for s in (10.0, 3.0, 1.0, 0.3, 0.0)]


def _clean(x, mean, variance, alpha, sigma):
    """E[x0 | x] for data N(mean, variance)."""
    gain = alpha * variance / (alpha**2 * variance + sigma**2)
    return mean + gain * (x - alpha * mean)


@pytest.mark.parametrize("levels", [FLOW, PRESERVING, SCALED])
def test_between_gaussians_of_one_width_an_edit_is_their_shift(levels):
    """The exact map from N(1, s^2) to N(3, s^2) adds 2. D = 2 alpha solves the equation: the
    difference of the estimates is 2 (1 - k alpha) + k D = 2, and D' = 2 alpha'. Started there, the
    edit is exact at any number of steps."""
    x0 = torch.tensor([0.3, 1.7], dtype=torch.float64)
    noise = torch.tensor([-1.0, 0.5], dtype=torch.float64)
    found = torch.full_like(x0, 2.0 * levels[0][0])
    for now, after in pairwise(levels):
        source = noised(x0, noise, *now)
        difference = _clean(source + found, 3.0, 0.25, *now) - _clean(source, 1.0, 0.25, *now)
        found = displaced(found, difference, now, after)
    assert torch.allclose(found, torch.full_like(x0, 2.0))


def test_is_flowedits_step_of_velocities():
    """v = (x - x0) / t: D + (t' - t) (v_target - v_source) with x_target - x_source = D."""
    d, x0_source, x0_target = torch.tensor(0.4), torch.tensor(-1.0), torch.tensor(2.0)
    t, after, x = 0.8, 0.5, torch.tensor(0.7)
    velocity = ((x + d) - x0_target) / t - (x - x0_source) / t
    found = displaced(d, x0_target - x0_source, (1 - t, t), (1 - after, after))
    assert torch.allclose(found, d + (after - t) * velocity)


def test_equal_estimates_of_undisplaced_samples_change_nothing():
    assert displaced(torch.zeros(3), torch.zeros(3), (0.2, 0.8), (0.5, 0.5)).eq(0).all()


def test_focus():
    """Distances 5, 2.5, 1.5 and 0 of two samples; at a threshold of 0.3 the mask rises from 1.5 to
    3: 2.5 gives 2 / 3. A sample does not depend on another."""
    one = torch.tensor([[[3.0, 1.5, 0.9, 0.0], [4.0, 2.0, 1.2, 0.0]]])
    wanted = torch.tensor([[[1.0, 2 / 3, 0.0, 0.0]]])
    assert torch.allclose(
        focus(torch.cat([one, 100 * one]), 0.3), wanted.expand(2, 1, 4), atol=1e-5
    )
    assert focus(torch.zeros(1, 2, 4), 0.3).eq(0).all()


def test_ends_of_the_tether():
    clean, source = torch.randn(4), torch.randn(4)
    assert torch.equal(tethered(clean, source, 0.0, 0.7), clean)
    assert torch.allclose(tethered(clean, source, math.inf, 0.7), source, atol=1e-6)
    assert torch.allclose(tethered(clean, source, 2.0, 0.5), (clean + source) / 2)


@pytest.mark.parametrize("precision", [0.0, 1.0, 20.0])
def test_tethered_sampling_gives_the_tethered_gaussian(precision):
    """N(1, 0.25) with a tether of precision p at 3 is N(m, 1 / (4 + p)), m = (4 + 3 p) / (4 + p):
    the tethered x0_hat is the exact one of that law, so the ODE from N(0, 1) ends there."""
    mean, variance, source, steps = 1.0, 0.25, torch.tensor(3.0, dtype=torch.float64), 2000
    x = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)
    times = torch.linspace(0.9999, 0, steps + 1, dtype=torch.float64).tolist()
    for t, after in pairwise(times):
        level, spread = (1 - t, t), variance * t**2 / ((1 - t) ** 2 * variance + t**2)
        clean = tethered(_clean(x, mean, variance, *level), source, precision, spread)
        x = x + (after - t) * (x - clean) / t
    wanted = (4 + 3 * precision) / (4 + precision)
    width = (4 + precision) ** -0.5
    assert torch.allclose(x, wanted + width * torch.tensor([-1.0, 0, 1]).double(), atol=3e-3)


def test_gradients_pass():
    inputs = tuple(torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: tethered(a, b, 2.0, 0.3), inputs)
    assert torch.autograd.gradcheck(lambda a, b: displaced(a, b, (0.2, 0.8), (0.5, 0.5)), inputs)
