"""Rewards that are learnt from choices between pictures, as functions of frozen features."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["choices", "ideal_point", "ideal_point_reward", "pair_features", "uncertain_reward"]


def ideal_point(prototypes: Tensor, weights: Tensor) -> Tensor:
    """What a user likes best, a mixture of prototypes (PAL, Chen et al. 2024, arXiv 2406.08469,
    section 3): (K, D), (N, K) on the simplex -> (N, D).
    """
    mixture: Tensor = weights @ prototypes
    return mixture


def ideal_point_reward(items: Tensor, ideal: Tensor) -> Tensor:
    """-||f(x) - u||, minus the distance of an item from the user's ideal point (PAL-A, Chen et al.
    2024, arXiv 2406.08469, section 3): (N, D), (N, D) -> (N,), at most 0.

    Differs from the released code: its forward gives the distance of the left item minus that of
    the right, where negative means that the left one is preferred; higher is better here.
    """
    distance: Tensor = torch.linalg.vector_norm(items - ideal, dim=-1)
    return -distance


def pair_features(image: Tensor, text: Tensor) -> Tensor:
    """What a linear head sees of a picture and its prompt: the unit image embedding, and its
    product with the unit text embedding, number by number: (N, D), (N, D) -> (N, 2 D).

    A head of zeros on the first half and ones on the second gives the cosine.
    """
    wide = torch.promote_types(image.dtype, torch.float32)
    a, b = F.normalize(image.to(wide), dim=-1), F.normalize(text.to(wide), dim=-1)
    return torch.cat([a, a * b], dim=-1)


def choices(first: Tensor, second: Tensor, *, margin: float) -> Tensor:
    """Which of two pictures scores higher: 0 the first, 1 the second, -1 can't tell (within
    ``margin``, or not measured): (N,), (N,) -> (N,) long.

    The labels of RL-VLM-F (Wang et al. 2024, arXiv 2402.03681, section 4.1).
    """
    difference = second - first
    told = (difference > 0).long()
    unsure = ~(difference.abs() > margin)  # NaN too
    return torch.where(unsure, torch.full_like(told, -1), told)


def uncertain_reward(state: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Mean and spread of a reward from a hidden state, by affine layers (weight, bias) with ReLU
    between them (HPSv3, Ma et al. 2025, arXiv 2508.03789, section 4.2): (N, D) -> (N, 2).

    The first column, mu, is the score. Dropout is left out: scoring is deterministic.
    """
    x = state
    for index, (weight, bias) in enumerate(layers):
        x = F.linear(x if index == 0 else F.relu(x), weight, bias)
    return x
