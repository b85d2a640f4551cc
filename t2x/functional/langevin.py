"""Equations of guided Langevin sampling: step sizes, damping, noise that is paid for.

A sample is x = alpha * x0 + sigma * eps, s = grad log p_t(x) its score, x0_hat = E[x0 | x]. Tensors
are (N, ...), one row for each sample; a level's alpha and sigma are plain numbers in float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "AncestralSplit",
    "ancestral_split",
    "clean_shift",
    "corrector_step",
    "damped_strength",
    "langevin_update",
    "logistic_step",
    "posterior_variance",
    "trade_noise",
]


def logistic_step(
    reward: Tensor, *, low: float, high: float, steepness: float, target: float
) -> Tensor:
    """Step size of RewardFlow (arXiv 2604.08536, section 3): large where the reward is low.

    eta = low + (high - low) * sigmoid(-steepness * (reward - target)), any shape, in [low, high].
    """
    return low + (high - low) * torch.sigmoid(-steepness * (reward - target))


def posterior_variance(alpha: float, sigma: float, variance: float) -> float:
    """Variance of x0 given x, for isotropic Gaussian data of ``variance``:
    variance sigma^2 / (alpha^2 variance + sigma^2). The prior's at alpha = 0, 0 at sigma = 0.
    """
    return variance * sigma**2 / (alpha**2 * variance + sigma**2)


def damped_strength(strength: float, variance: float) -> float:
    """Strength lambda of a plug-in gradient that tilts as much as it says, lambda / (1 + 2 lambda
    s^2), for a quadratic reward of curvature -2 ("Are we really tilting?", arXiv 2606.02884).

    ``variance``: s^2, of x0 given x. Without it lambda grad r(x0_hat) overshoots, since the reward
    of the mean is not the mean of exp(lambda r).
    """
    return strength / (1 + 2 * strength * variance)


def clean_shift(gradient: Tensor, alpha: float, sigma: float) -> Tensor:
    """How far a gradient g at x moves x0_hat: (sigma^2 / alpha) g, any shape; alpha > 0.

    The score becomes s + g, and x0_hat = (x + sigma^2 s) / alpha (Tweedie).
    """
    return sigma**2 / alpha * gradient


class AncestralSplit(NamedTuple):
    """Of the next level's noise, in x / alpha: deviation that is ``kept`` of what is predicted, and
    that is ``new``; kept^2 + new^2 = next sigma^2."""

    kept: float
    new: float


def ancestral_split(sigma: float, next_sigma: float, gamma: float) -> AncestralSplit:
    """Part the noise of the next level (DDIM, arXiv 2010.02502, eq. 16, in the space x / alpha).

    new^2 = gamma * next_sigma^2 (sigma^2 - next_sigma^2) / sigma^2. ``sigma``, ``next_sigma``:
    noise over signal, sigma > next_sigma, sigma may be infinite; ``gamma`` in [0, 1]: 0 follows the
    ODE, 1 is ancestral sampling (DDPM). Differs from the paper: gamma is eta^2.
    """
    new = next_sigma * math.sqrt(gamma * max(0.0, 1 - (next_sigma / sigma) ** 2))
    return AncestralSplit(math.sqrt(max(0.0, next_sigma**2 - new**2)), new)


def trade_noise(
    sample: Tensor, predicted: Tensor, noise: Tensor, split: AncestralSplit, alpha: float
) -> Tensor:
    """Put new noise into a sample of a deterministic step, paid for by its predicted noise.

    x + alpha ((kept - sqrt(kept^2 + new^2)) predicted + new noise). ``sample``: after the step, of
    signal ``alpha``; ``predicted``: eps_hat of the level before; ``noise``: standard normal; all
    (N, ...). The marginal stays what it was; without the first term its variance would grow.
    """
    kept, new = split
    return sample + alpha * ((kept - math.hypot(kept, new)) * predicted + new * noise)


def corrector_step(score: Tensor, noise: Tensor, *, ratio: float, scale: float = 1.0) -> Tensor:
    """Step size (N,) of a Langevin corrector, e = 2 scale (ratio |z| / |s|)^2 (Song et al. 2021,
    arXiv 2011.13456, algorithms 4 and 5).

    ``score``: s without reward, ``noise``: z, both (N, ...); ``ratio``: signal to noise, 0.1 or so;
    a chain of such steps is too wide by a share ratio^2 of its variance. Differs from the paper's
    code: norms are per sample, so that a sample does not depend on its batch.
    """
    sizes = noise.flatten(1).norm(dim=1) / score.flatten(1).norm(dim=1)
    step: Tensor = 2 * scale * (ratio * sizes) ** 2
    return step


def langevin_update(sample: Tensor, score: Tensor, noise: Tensor, step: Tensor) -> Tensor:
    """One unadjusted Langevin step: x + e s + sqrt(2 e) z.

    ``sample``, ``score`` and ``noise`` (standard normal): (N, ...); ``step``: e, (N,). The drift
    e s is what pays for the noise: without it variance grows by 2 e with every step.
    """
    size = step.view(-1, *[1] * (sample.ndim - 1))
    return sample + size * score + (2 * size).sqrt() * noise
