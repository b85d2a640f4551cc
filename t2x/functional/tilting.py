"""Laws p(x) exp(strength r(x)) in closed form, for the reward r(x) = -|x - target|^2.

What guidance should sample from, to test it against. In these laws a Gaussian stays a Gaussian and
a mixture of M Gaussians one of M.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Mixture", "mixture_moments", "tilted_gaussian", "tilted_mixture"]


def tilted_gaussian(
    mean: Tensor, variance: Tensor, *, strength: float, target: Tensor | float
) -> tuple[Tensor, Tensor]:
    """Mean and variance of N(mean, variance) tilted by exp(-strength (x - target)^2); any shape.

    The precision grows by 2 strength: v' = v / (1 + 2 strength v), m' = (m + 2 strength v target) /
    (1 + 2 strength v).
    """
    grown = 1 + 2 * strength * variance
    return (mean + 2 * strength * variance * target) / grown, variance / grown


class Mixture(NamedTuple):
    """Mixture of M Gaussians in D dimensions: ``weights`` (M,) that sum to 1, ``means`` (M, D),
    ``covariances`` (M, D, D)."""

    weights: Tensor
    means: Tensor
    covariances: Tensor


def tilted_mixture(mixture: Mixture, *, strength: float, target: Tensor) -> Mixture:
    """A mixture tilted by exp(-strength |x - target|^2); ``target``: (D,).

    Each part is tilted by itself, and weighs as much more as it likes the reward: with
    G = I + 2 strength C and d = m - target, C' = G^-1 C, m' = G^-1 (m + 2 strength C target), and
    log w' = log w - log|G| / 2 - strength d^T G^-1 d, up to a constant.
    """
    weights, means, covariances = mixture
    grown = torch.eye(means.shape[1], dtype=means.dtype) + 2 * strength * covariances
    pull = 2 * strength * covariances @ target
    tilted = torch.linalg.solve(grown, means + pull)
    gap = means - target
    reward = -strength * (gap * torch.linalg.solve(grown, gap)).sum(1)
    odds = weights.log() - torch.linalg.slogdet(grown).logabsdet / 2 + reward
    return Mixture(odds.softmax(0), tilted, torch.linalg.solve(grown, covariances))


def mixture_moments(mixture: Mixture) -> tuple[Tensor, Tensor]:
    """Mean (D,) and covariance (D, D) of a mixture: within and between the parts."""
    weights, means, covariances = mixture
    mean = weights @ means
    gap = means - mean
    between = torch.einsum("m,mi,mj->ij", weights, gap, gap)
    return mean, torch.einsum("m,mij->ij", weights, covariances) + between
