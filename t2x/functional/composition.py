"""Several rewards as one number: sums, advantages, fronts and pairs from (N, K) scores.

Rows are samples, columns rewards, higher is better. ``groups`` (N,) are integers: rows of one
number belong together, rewrites of one prompt for instance; None makes the batch one group. NaN is
a score that could not be measured: it leaves means and deviations, is never taken for 0, and makes
the row NaN. Columns without weight are not looked at.
"""

from __future__ import annotations

import torch
from torch import Tensor

from t2x.functional.moments import spread

__all__ = [
    "batch_standardise",
    "cmo",
    "correlation_weights",
    "dominance",
    "dominance_pairs",
    "gdpo",
    "group_standardise",
    "non_dominated",
    "weighted_sum",
]


def weighted_sum(scores: Tensor, weights: Tensor) -> Tensor:
    """sum_k w_k r_k: (N, K), (K,) -> (N,). NaN where a reward of non-zero weight is NaN."""
    used = weights != 0
    return (scores[:, used] * weights[used].to(scores.dtype)).sum(-1)


def group_standardise(
    scores: Tensor, groups: Tensor | None = None, *, floor: float = 0.0
) -> Tensor:
    """(r - mean) / std inside each group and reward, the group-relative advantage (Shao et al.
    2024, arXiv 2402.03300, section 4.1.2): (N, K) -> (N, K).

    The sample deviation (n - 1). A group of one, or one whose scores do not differ, gives 0.
    Differs from the paper: no epsilon is added to the deviation, which would crush rewards of small
    scale; ``floor`` is the least deviation instead, and what float32 rounds away counts as none.
    """
    wide, (member, size) = scores.double(), _members(scores, groups)
    measured = ~wide.isnan()
    values = torch.where(measured, wide, 0.0)

    def total(x: Tensor) -> Tensor:
        return torch.zeros(size, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, member, x)

    count = total(measured.double())
    mean = total(values) / count.clamp(min=1)
    deviation = torch.where(measured, values - mean[member], 0.0)
    variance = total(deviation.square()) / (count - 1).clamp(min=1)
    index = member[:, None].expand_as(wide)
    largest = torch.zeros_like(mean).scatter_reduce(0, index, values.detach().abs(), "amax")
    z = deviation / spread(variance, largest, floor=floor)[member]
    return torch.where(measured, z, torch.nan).to(scores.dtype)


def batch_standardise(values: Tensor, *, floor: float = 0.0) -> Tensor:
    """(v - mean) / std over the batch: (N,) -> (N,); NaN stays and leaves mean and deviation.
    ``floor`` is the least deviation."""
    return group_standardise(values[:, None], floor=floor)[:, 0]


def gdpo(
    scores: Tensor, weights: Tensor, groups: Tensor | None = None, *, floor: float = 0.0
) -> Tensor:
    """GDPO: normalise each reward inside its group, sum with weights, normalise over the batch (Liu
    et al. 2026, arXiv 2601.05242): (N, K), (K,) -> (N,).

    A = sum_k w_k (r_k - mean_group r_k) / std_group r_k, then (A - mean_batch A) / std_batch A.
    Unlike a sum that is normalised afterwards it does not change when one reward is scaled. With
    one reward and one group it is :func:`group_standardise`.

    Differs from the paper: with a ``floor`` the deviation of the batch is at least sqrt(sum_k
    w_k^2), that of independent rewards which all reach the floor. Less is noise that was held down,
    and would come up again.
    """
    summed = weighted_sum(group_standardise(scores, groups, floor=floor), weights)
    return batch_standardise(summed, floor=float(weights.norm()) if floor else 0.0)


def correlation_weights(scores: Tensor, *, temperature: float = 1.0) -> Tensor:
    """CMO: weights of rewards that agree little with the others are larger (Correlation-weighted
    multi-reward optimisation, arXiv 2603.18528): (N, K) of one group -> (K,), sum 1.

    b_k is the mean Pearson correlation of reward k with the K - 1 others, 1 if k does not vary;
    w = softmax((1 - b) / temperature). One reward has weight 1. Rows with NaN are left out; with
    fewer than two rows all weights are equal. Of few rows the correlations are mostly noise: two
    rows only ever give -1, 0 or 1.

    Differs from the paper: a correlation with a reward that does not vary is 0 there, K = 1 would
    divide by zero, and -1 stands for a missing score.
    """
    kept = scores[~scores.isnan().any(1)].double()
    number = scores.shape[1]
    z = group_standardise(kept)
    correlation = z.T @ z / max(len(kept) - 1, 1)
    mean = (correlation.sum(1) - correlation.diagonal()) / max(number - 1, 1)
    varies = correlation.diagonal() > 0
    return torch.softmax((1 - torch.where(varies, mean, 1.0)) / temperature, 0).to(scores.dtype)


def cmo(
    scores: Tensor,
    weights: Tensor,
    groups: Tensor | None = None,
    *,
    temperature: float = 1.0,
    floor: float = 0.0,
) -> Tensor:
    """Advantage of CMO (arXiv 2603.18528): sum_k c_k z_k with z normalised and c the correlation
    weights inside each group, then normalised over the batch: (N, K), (K,) -> (N,).

    Differs from the paper: ``weights`` multiply the correlation weights; the paper has none.
    ``floor`` is the least deviation inside a group, and holds over the batch as in :func:`gdpo`.
    """
    used = weights != 0
    scores, factors = scores[:, used], weights[used].to(scores)
    z = group_standardise(scores, groups, floor=floor) * factors
    member, size = _members(scores, groups)
    shares = [
        correlation_weights(scores[member == g], temperature=temperature) for g in range(size)
    ]
    if not size:
        return z.sum(-1)
    share = torch.stack(shares)[member]
    least = float((share * factors).square().sum(-1).mean().sqrt()) if floor else 0.0
    return batch_standardise((z * share).sum(-1), floor=least)


def non_dominated(scores: Tensor, groups: Tensor | None = None, *, floor: float = 0.0) -> Tensor:
    """The Pareto front of each group: rows that no other row equals or beats everywhere and beats
    somewhere (Parrot's batch-wise selection, Lee et al. 2024, arXiv 2401.05675): (N, K) -> (N,)
    bool.

    Duplicates do not dominate each other: all or none of them are in the front. One reward leaves
    the best rows, one row is its own front. A row with NaN is in no front and dominates nothing.
    The more rewards, the larger the front: with independent scores and K beyond log N it is nearly
    everything. Scores that are no further apart than ``floor`` count as equal.
    """
    complete = ~scores.isnan().any(1)
    beaten = _dominates(scores, groups, floor=floor).any(0)
    return complete & ~beaten


def dominance_pairs(
    scores: Tensor,
    weights: Tensor | None = None,
    groups: Tensor | None = None,
    *,
    margin: float = 0.0,
) -> Tensor:
    """Pairs for preference training whose winner is no worse anywhere, better somewhere, and ahead
    by more than ``margin`` in the weighted sum (VPO, Cheng et al. 2025, arXiv 2503.20491, whose
    margin is 0.5): (N, K), (K,) -> (M, 2) row numbers (winner, loser), in order.

    Only inside a group. ``weights``: all 1 if None. Equal rows and rows with NaN make no pair; M
    may be 0.
    """
    weights = torch.ones(scores.shape[1]) if weights is None else weights
    used = (weights != 0).to(scores.device)
    total = weighted_sum(scores, weights.to(scores.device))
    ahead = total[:, None] - total[None, :] > margin
    return (_dominates(scores[:, used], groups) & ahead).nonzero()


def dominance(
    scores: Tensor,
    weights: Tensor | None = None,
    groups: Tensor | None = None,
    *,
    margin: float = 0.0,
) -> Tensor:
    """By how many members of its group a row is better by VPO's strict dominance (arXiv 2503.20491,
    :func:`dominance_pairs`), less those that are better than it, as a share of the others: (N, K),
    (K,) -> (N,) in [-1, 1].

    Rows that no one beats and that beat no one give 0, and so does a group of one. NaN where a
    score is missing. Differs from the paper, which makes pairs of it and no score.
    """
    weights = torch.ones(scores.shape[1]) if weights is None else weights
    pairs = dominance_pairs(scores, weights, groups, margin=margin)
    member, size = _members(scores, groups)
    used = (weights != 0).to(scores.device)
    complete = ~scores[:, used].isnan().any(1)
    one = torch.ones(len(pairs), dtype=scores.dtype, device=scores.device)
    net = torch.zeros(len(scores), dtype=scores.dtype, device=scores.device)
    net = net.index_add(0, pairs[:, 0], one).index_add(0, pairs[:, 1], -one)
    count = torch.zeros(size, dtype=scores.dtype, device=scores.device)
    count = count.index_add(0, member, complete.to(scores.dtype))
    return torch.where(complete, net / (count - 1).clamp(min=1)[member], torch.nan)


def _dominates(scores: Tensor, groups: Tensor | None, *, floor: float = 0.0) -> Tensor:
    """(N, N) bool: whether row i dominates row j; comparisons with NaN are false."""
    member, _ = _members(scores, groups)
    no_worse = member[:, None] == member[None, :]
    better = torch.zeros_like(no_worse)
    for column in scores.T:
        ahead = column[:, None] - column[None, :]
        no_worse &= ahead >= -floor
        better |= ahead > floor
    return no_worse & better


def _members(scores: Tensor, groups: Tensor | None) -> tuple[Tensor, int]:
    """Group numbers from 0 for each row, and how many there are."""
    if scores.ndim != 2:
        raise ValueError(f"scores must be (N, K), got shape {tuple(scores.shape)}")
    if groups is None:
        return torch.zeros(len(scores), dtype=torch.long, device=scores.device), min(len(scores), 1)
    if groups.shape != scores.shape[:1]:
        raise ValueError(
            f"{tuple(groups.shape)} group numbers for {len(scores)} rows of scores; give one each"
        )
    names, member = torch.unique(groups.to(scores.device), return_inverse=True)
    return member, len(names)
