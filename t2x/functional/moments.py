"""Running mean and deviation of several rewards: parts are counted apart and merged."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Moments", "merge_moments", "moments", "spread", "standardise"]

# Scores are float32: a deviation below this share of their size is rounding, not a difference.
ROUNDING = 1e-6


class Moments(NamedTuple):
    """Statistics of K rewards, each (K,) float64: how many were ``measured`` and how many
    ``missing`` (NaN), their mean, and ``m2``, the sum of squared deviations from it.

    Plain tensors, so ``torch.save`` of ``_asdict()`` keeps them and ``Moments(**loaded)`` goes on.
    """

    measured: Tensor
    missing: Tensor
    mean: Tensor
    m2: Tensor


def moments(scores: Tensor) -> Moments:
    """Statistics of (N, K) scores; NaN leaves the mean and is counted. N may be 0."""
    wide = scores.detach().double()
    measured = ~wide.isnan()
    count = measured.sum(0).double()
    mean = wide.nan_to_num(0.0).sum(0) / count.clamp(min=1)
    deviation = torch.where(measured, wide - mean, 0.0)
    return Moments(count, (~measured).sum(0).double(), mean, deviation.square().sum(0))


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Statistics of both parts together (the pairwise formula of Chan, Golub & LeVeque 1983, The
    American Statistician 37, 242-247).

    n = n_a + n_b, d = mean_b - mean_a, mean = mean_a + d n_b / n, m2 = m2_a + m2_b + d^2 n_a n_b /
    n. A part counts by its number of values; an empty one changes nothing.
    """
    count = a.measured + b.measured
    share = b.measured / count.clamp(min=1)
    gap = torch.where(a.measured > 0, b.mean - a.mean, b.mean)
    mean = torch.where(a.measured > 0, a.mean, 0.0) + gap * torch.where(a.measured > 0, share, 1.0)
    m2 = a.m2 + b.m2 + torch.where(a.measured > 0, gap, 0.0).square() * a.measured * share
    return Moments(count, a.missing + b.missing, mean, m2)


def spread(variance: Tensor, largest: Tensor, *, floor: float = 0.0) -> Tensor:
    """What deviations are divided by: the standard deviation, at least ``floor``; infinite where it
    is none or no more than the rounding of float32 scores up to ``largest`` in size.

    So that a reward without spread gives 0 and not amplified rounding. Any shape; differentiable.
    """
    flat = variance <= (ROUNDING * largest) ** 2
    deviation = torch.where(flat, 1.0, variance).sqrt().clamp(min=floor)
    return torch.where(flat, torch.inf, deviation)


def standardise(scores: Tensor, running: Moments, *, floor: float = 0.0) -> Tensor:
    """(score - mean) / deviation of each reward by its running statistics: (N, K) -> (N, K).

    NaN stays NaN. A reward that never varied gives 0; one of fewer than two values NaN, since no
    deviation is known. ``floor`` is the least deviation, what seeds alone make for instance: noise
    below it is not blown up. Depends on ``running`` alone, so a batch equals its singles.
    """
    variance = running.m2 / (running.measured - 1).clamp(min=1)
    divisor = spread(variance, running.mean.abs(), floor=floor)
    known = torch.where(running.measured > 1, running.mean, torch.nan)
    return ((scores.double() - known) / divisor).to(scores.dtype)
