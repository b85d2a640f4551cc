"""Weights of several rewards that move to what is not satisfied yet."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["faults_of_rewards", "satisfied_weights"]


def satisfied_weights(
    weights: Tensor, dissatisfaction: Tensor, *, temperature: float = 0.5
) -> Tensor:
    """RewardFlow's adaptive weights (arXiv 2604.08536): (N, K), (N, K) -> (N, K), detached.

    W w_i exp(d_i / temperature) / sum_j w_j exp(d_j / temperature), W = sum_j w_j: equal
    ``dissatisfaction`` d leaves ``weights`` w as they are, a weight of 0 stays 0, none is negative,
    and each row keeps its sum. d that is NaN (not measured) counts as the mean of the row's others.

    Differs from the paper: its formula was not published. The released code takes a softmax of
    rewards that stays in the graph, which turns the sign of the lower ones; these weights are
    constants. Raises ``ValueError`` for a negative weight.
    """
    weights, faults = weights.detach(), dissatisfaction.detach()
    if bool((weights < 0).any()):
        raise ValueError(f"weights must be at least 0, got {weights.min():g}")
    mean = faults.nanmean(-1, keepdim=True).nan_to_num(0.0)
    faults = torch.where(faults.isnan(), mean, faults)
    shares = (weights.log() + faults / temperature).softmax(-1)
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, total * shares.nan_to_num(0.0), torch.zeros_like(weights))


def faults_of_rewards(wrong: Tensor, serves: Tensor) -> Tensor:
    """How much each reward could mend of what is still wrong: (N, C), (K, C) -> (N, K) in [0, 1].

    The mean, over the kinds that were asked about, of ``wrong``, the share of wrong answers of that
    kind (NaN where none was asked), times ``serves``, how much the reward does for it, in [0, 1].
    NaN where nothing was asked.
    """
    asked = (~wrong.isnan()).sum(-1, keepdim=True)
    return wrong.nan_to_num(0.0) @ serves.T.to(wrong.dtype) / asked  # 0 / 0 is NaN
