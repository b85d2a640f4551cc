"""Editing without inversion: the difference of two denoisings, and what holds an edit to its
source.

A sample is x = alpha * x0 + sigma * eps, as in ``t2x.functional.parameterisation``.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["displaced", "focus", "tethered"]


def displaced(
    displacement: Tensor,
    difference: Tensor,
    levels: tuple[float, float],
    next_levels: tuple[float, float],
) -> Tensor:
    """One step of the target's noisy sample less the source's, D = x_target - x_source, any shape.

    D' = (sigma' / sigma) D + (alpha' - alpha sigma' / sigma) (x0_target - x0_source), where
    ``difference`` is that of the two clean estimates and a level is (alpha, sigma): the
    deterministic step of both samples, subtracted. The shared noise drops out, and at sigma' = 0
    the edited picture is source + D'.

    For rectified flow this is FlowEdit's equation 13, Z_FE' = Z_FE + (t' - t) (v_target -
    v_source) with D = Z_FE - X_source (Kulikov et al. 2024, arXiv 2412.08629). Differs from the
    paper: any parameterisation and any space of samples, by x0_hat.
    """
    (alpha, sigma), (next_alpha, next_sigma) = levels, next_levels
    kept = next_sigma / sigma
    return kept * displacement + (next_alpha - alpha * kept) * difference


def focus(difference: Tensor, threshold: float) -> Tensor:
    """Soft mask (N, 1, ...) of where two estimates (N, C, ...) differ: 0 where their distance over
    channels is below ``threshold`` times the largest of the sample, 1 from twice that, linear
    between. Where nothing differs it is 0.

    As DiffEdit's mask of the difference of two prompts' predictions (Couairon et al. 2023, arXiv
    2210.11427, section 3.2). Differs from the paper: soft, and without its own extra evaluations.
    """
    size = difference.pow(2).sum(1, keepdim=True).sqrt()
    most = size.flatten(1).amax(1).view(-1, *[1] * (size.ndim - 1))
    low = threshold * most
    return ((size - low) / low.clamp_min(1e-12)).clamp(0, 1)


def tethered(clean: Tensor, source: Tensor, precision: float, variance: float) -> Tensor:
    """x0_hat, of variance s^2, under a Gaussian prior of precision lambda at the source:
    (x0_hat + lambda s^2 source) / (1 + lambda s^2), any shape.

    The closed form of a step along RewardFlow's identity tether, the gradient of
    -lambda / 2 |x0 - source|^2 (arXiv 2604.08536): 0 changes nothing, infinity gives the source.
    Exact for Gaussian data with s^2 the variance of x0 given x_t.
    """
    return clean + (1 - 1 / (1 + precision * variance)) * (source - clean)
