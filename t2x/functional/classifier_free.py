"""Classifier-free guidance (Ho and Salimans 2022, arXiv 2207.12598) and the three-way form that
keeps a user's own words beside a rewrite of them (Parrot, arXiv 2401.05675).

Predictions are of any parameterisation that is affine in x0_hat (epsilon, v, flow velocity, x0).
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["classifier_free", "three_way", "unconditional_for"]


def classifier_free(unconditional: Tensor, conditional: Tensor, scale: float | Tensor) -> Tensor:
    """u + scale (c - u), any shape; at scale 1 the conditional prediction.

    Differs from the paper: its w is scale - 1, as everywhere in diffusers.
    """
    return unconditional + scale * (conditional - unconditional)


def three_way(
    unconditional: Tensor,
    original: Tensor,
    rewrite: Tensor,
    w_original: float,
    w_rewrite: float,
) -> Tensor:
    """w1 eps(c) + (1 - w1 - w2) eps(empty) + w2 eps(c_rewrite), any shape (Parrot's
    original-prompt-centred guidance, with w1 = w2 = 5 there).

    The total scale is w1 + w2: with the same prompt twice this is ``classifier_free`` at that
    scale, and with w1 = 0 it is that of the rewrite alone.
    """
    return (
        unconditional
        + w_original * (original - unconditional)
        + w_rewrite * (rewrite - unconditional)
    )


def unconditional_for(target: Tensor, conditional: Tensor, scale: float) -> Tensor:
    """The u for which ``classifier_free(u, c, scale)`` is ``target``: (scale c - target) /
    (scale - 1), any shape.

    Raises ZeroDivisionError at scale 1, where u has no effect.
    """
    return (scale * conditional - target) / (scale - 1)
