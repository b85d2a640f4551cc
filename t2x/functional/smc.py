"""Sequential Monte Carlo for diffusion: potentials, weights, resampling.

Weights are logarithms, float64, (G, k): G groups (prompts) of k particles. Only differences within
a group mean anything. -inf is a particle that nothing goes on from. Random numbers are given, so
that a group depends on its own stream alone.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

__all__ = [
    "Potential",
    "categorical",
    "difference_potential",
    "effective_sample_size",
    "final_potential",
    "max_potential",
    "normalised_log_weights",
    "proposal_log_ratio",
    "ssp_resampling",
    "sum_potential",
    "systematic_resampling",
    "tempering",
    "twisted_log_weight",
]

Potential = Literal["difference", "max", "sum"]


def normalised_log_weights(log_weights: Tensor) -> Tensor:
    """log of weights that sum to 1 in each group, (G, k); equal ones where all are -inf."""
    dead = (log_weights == -torch.inf).all(-1, keepdim=True)
    return torch.where(dead, 0.0, log_weights.double()).log_softmax(-1)


def effective_sample_size(log_weights: Tensor) -> Tensor:
    """(sum w)^2 / sum w^2 of each group (Kong, Liu & Wong 1994), (G, k) -> (G,), 1 to k."""
    return (-(2 * normalised_log_weights(log_weights)).logsumexp(-1)).exp()


def difference_potential(value: Tensor, before: Tensor, strength: float) -> Tensor:
    """log G_t = lambda (r_t - r_{t+1}) (FK steering, Singhal et al. 2025, arXiv 2501.06848); any
    shape. ``before`` is 0 at the first level."""
    return strength * (value - before)


def max_potential(value: Tensor, best: Tensor, strength: float) -> Tensor:
    """log G_t = lambda max_{s >= t} r_s (FK steering); ``best`` of the earlier levels
    is -inf at the first."""
    return strength * torch.maximum(value, best)


def sum_potential(value: Tensor, total: Tensor, strength: float) -> Tensor:
    """log G_t = lambda sum_{s >= t} r_s (FK steering); ``total`` of the earlier levels
    is 0 at the first."""
    return strength * (value + total)


def final_potential(value: Tensor, log_product: Tensor, strength: float) -> Tensor:
    """log G_0 = lambda r(x_0) - sum_{t >= 1} log G_t (FK steering): whatever the potentials
    on the way, the product is exp(lambda r(x_0)), and the target p(x_0) exp(lambda r(x_0)).
    """
    return strength * value - log_product


def tempering(index: float, rate: float = 0.008) -> float:
    """Share of the reward at step ``index`` from 0: min((1 + rate)^index - 1, 1) (DAS, Kim, Kim &
    Park 2025, arXiv 2501.05803). At 0.008 it is 1 from step 87."""
    return float(min((1 + rate) ** index - 1, 1.0))


def proposal_log_ratio(noise: Tensor, shift: Tensor, scale: float) -> Tensor:
    """log p_base(x') - log p_prop(x') of x' = m + shift + scale noise, where p_base = N(m, scale^2)
    and p_prop = N(m + shift, scale^2): -(shift . noise) / scale - |shift|^2 / (2 scale^2).

    noise, shift: (N, ...). (N,) float64.
    """
    z, s = noise.double().flatten(1), shift.double().flatten(1) / scale
    return -(s * z).sum(1) - s.square().sum(1) / 2


def twisted_log_weight(log_ratio: Tensor, log_twist: Tensor, log_twist_before: Tensor) -> Tensor:
    """log w = log p_base + log psi_t - log p_prop - log psi_{t+1} (DAS; twisted
    diffusion sampler, Wu et al. 2023, arXiv 2306.17775); ``log_ratio`` is log p_base -
    log p_prop. Any shape."""
    return log_ratio + log_twist - log_twist_before


def systematic_resampling(log_weights: Tensor, uniforms: Tensor) -> Tensor:
    """Parents (G, k), in order, of k new particles: those at the places (u + i) / k of the summed
    weights (Kitagawa 1996). ``uniforms`` (G, 1) in [0, 1). A particle of weight w gets k w children
    on average, at least floor(k w) and at most ceil(k w).
    """
    k = log_weights.shape[-1]
    edges = normalised_log_weights(log_weights).exp().cumsum(-1)
    edges = edges / edges[:, -1:]
    places = (uniforms.double() + torch.arange(k, device=edges.device)) / k
    return torch.searchsorted(edges, places, right=True).clamp(max=k - 1)


def ssp_resampling(log_weights: Tensor, uniforms: Tensor) -> Tensor:
    """Parents (G, k), in order, by the Srinivasan sampling process (Gerber, Chopin & Whiteley 2019,
    arXiv 1707.01845), which DAS takes. ``uniforms`` (G, k) in [0, 1).

    Each particle has floor(k w) children. Fractions that are left meet two by two: of a and b with
    a + b < 1 one takes all, a with probability a / (a + b); with a + b >= 1 one wins a child and
    leaves a + b - 1 to the other, a with probability (1 - b) / (2 - a - b). Who has something left
    meets the next.
    """
    k = log_weights.shape[-1]
    expected = normalised_log_weights(log_weights).exp() * k
    children = expected.floor()
    fractions = expected - children
    held = torch.zeros_like(children[:, 0], dtype=torch.long)  # whose fraction is open
    left = fractions[:, 0]
    for j in range(1, k):
        other, u = fractions[:, j], uniforms[:, j].double()
        together = left + other
        small = together < 1
        chance = torch.where(small, left / together, (1 - other) / (2 - together))
        first = u < chance.nan_to_num(1.0)
        new = torch.full_like(held, j)
        winner, loser = torch.where(first, held, new), torch.where(first, new, held)
        children.scatter_add_(1, winner[:, None], (~small).to(children)[:, None])
        held = torch.where(small, winner, loser)
        left = torch.where(small, together, together - 1)
    children.scatter_add_(1, held[:, None], left.round()[:, None])  # 0 or 1 but for rounding
    edges = children.cumsum(1)
    places = torch.arange(k, device=edges.device) + 0.5
    return torch.searchsorted(edges, places.expand_as(edges).contiguous()).clamp(max=k - 1)


def categorical(log_weights: Tensor, uniforms: Tensor) -> Tensor:
    """One of k by its weight, (G, k) -> (G,): the choice of SVDD (Li et al. 2024, arXiv
    2408.08252) where log_weights = v / alpha. ``uniforms`` (G,) in [0, 1)."""
    edges = normalised_log_weights(log_weights).exp().cumsum(-1)
    place = uniforms.double()[:, None] * edges[:, -1:]
    return torch.searchsorted(edges, place, right=True)[:, 0].clamp(max=edges.shape[-1] - 1)
