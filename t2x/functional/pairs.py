"""Preference pairs from scores: how large a difference seeds alone make."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["difference_noise"]


def difference_noise(products: Tensor, freedom: Tensor, weights: Tensor, *, seeds: int) -> Tensor:
    """Standard deviation that seeds alone give to the difference of two texts' scores, each the
    weighted sum of rewards, a mean over ``seeds`` pictures: (K, K), scalar, (K,) -> scalar.

    sqrt(2 w' C w / S) with C = ``products`` / ``freedom``, the covariance of one picture's scores
    (``t2x.functional.advantages.seed_noise``). NaN without a degree of freedom: one picture of each
    text shows no noise.
    """
    covariance = products / torch.where(freedom > 0, freedom, torch.nan)
    wide = weights.to(covariance)
    return (2 * (wide @ covariance @ wide).clamp(min=0) / seeds).sqrt()
