"""Distances between pictures in the features of a network, per sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["lpips_distance", "unit_channels"]


def unit_channels(features: Tensor, *, eps: float = 1e-10) -> Tensor:
    """Features (N, C, h, w) with channels of length 1 at every place; zeros stay zeros.

    Their gradient is 0 there, where that of a plain square root would be NaN.
    """
    length: Tensor = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    return features / (length + eps)


def lpips_distance(
    first: Sequence[Tensor], second: Sequence[Tensor], weights: Sequence[Tensor]
) -> Tensor:
    """LPIPS (Zhang et al. 2018, arXiv 1801.03924, eq. 1): the sum over layers of the mean over
    places of sum_c w_c (y_c - y0_c)^2, y of unit length over channels.

    ``first`` and ``second``: per layer (N, C_l, h_l, w_l); ``weights``: per layer (C_l,). Gives
    (N,), 0 for equal pictures, lower is closer.

    Differs from the paper, as the published code does: w stands outside of the square, where eq. 1
    has it inside.
    """
    total = first[0].new_zeros(len(first[0]))
    for a, b, w in zip(first, second, weights, strict=True):
        squares = (unit_channels(a) - unit_channels(b)).square()
        total = total + torch.einsum("nchw,c->nhw", squares, w).mean((1, 2))
    return total
