"""Group-relative advantages and the noise that they must not divide by.

Rewards are (N,) or (N, K), ``groups`` (N,) integers: rewrites of one prompt share a number. NaN is
what could not be measured: it leaves every mean and deviation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from t2x.functional.composition import group_standardise

__all__ = ["failure_score", "group_advantages", "seed_noise"]


def group_advantages(
    rewards: Tensor, groups: Tensor | None = None, *, floor: float = 0.0
) -> Tensor:
    """A = (r - mean) / max(std, floor) inside each group: (N,) -> (N,).

    The advantage of GRPO (Shao et al. 2024, arXiv 2402.03300, section 4.1.2) with a least
    deviation: what seeds alone make of equal prompts (``seed_noise``). NaN stays NaN. A group whose
    rewards don't differ gives exactly 0, and the measured members of every group sum to 0, so that
    a trainer that subtracts the group's mean once more changes nothing.

    Differs from the paper: ``floor`` in place of an epsilon, and the sample deviation (n - 1).
    """
    return group_standardise(rewards[:, None], groups, floor=floor)[:, 0]


def seed_noise(
    scores: Tensor, groups: Tensor | None = None, *, lone: bool = True
) -> tuple[Tensor, Tensor]:
    """What seeds alone do to scores: sums of products of residuals, and their degrees of freedom.

    ``scores`` (M, S, K): M texts on S seeds, those of a group on the same seeds. From each score
    go its text's mean over the seeds and what a seed does to all texts of the group, since seeds in
    common cancel when texts are compared: e_ms = r_ms - r_m. - r_.s + r_.. (the residual of a
    two-way layout). A group of one text shows what its seeds do to all texts as well: without
    ``lone`` it is left out. Gives (K, K) and a scalar, float64; their quotient is the covariance of
    one picture's scores, that by S of a mean over S.

    Texts with NaN are left out; one seed gives no degree of freedom.
    """
    wide = scores.double()
    number = wide.shape[2]
    products = torch.zeros(number, number, dtype=torch.float64, device=wide.device)
    freedom = torch.zeros((), dtype=torch.float64, device=wide.device)
    kept = ~wide.isnan().any(2).any(1)
    wide = wide[kept]
    member = torch.zeros(len(scores), dtype=torch.long) if groups is None else groups
    member = member.to(wide.device)[kept]
    for group in member.unique():
        own = wide[member == group]  # (m, S, K)
        rest = own - own.mean(1, keepdim=True)
        if len(own) == 1 and not lone:
            continue
        if len(own) > 1:
            rest = rest - rest.mean(0, keepdim=True)
        flat = rest.reshape(-1, number)
        products += flat.T @ flat
        freedom += max(len(own) - 1, 1) * (own.shape[1] - 1)
    return products, freedom


def failure_score(
    scores: Tensor, original: Tensor, deviation: Tensor, groups: Tensor, *, margin: float
) -> Tensor:
    """What a policy's failure is worth: ``margin`` deviations below the prompt left as it is, and
    below every rewrite of its group: (N, K), (N, K), (K,) -> (N, K).

    ``original``: scores of the same prompt without a rewrite, one row per row of ``scores``. NaN
    in ``scores`` is what failed or was not measured; NaN comes out where neither the original nor
    any member of the group was measured. ``deviation`` carries the sign of the reward's weight, so
    that below is always worse.
    """
    sign = torch.where(deviation < 0, -1.0, 1.0).to(scores.dtype)
    names, member = groups.unique(return_inverse=True)
    worst = torch.full((len(names), scores.shape[1]), torch.inf, dtype=scores.dtype)
    index = member[:, None].expand_as(scores)
    signed = torch.where(scores.isnan(), torch.inf, scores * sign)
    worst = worst.scatter_reduce(0, index, signed, "amin")[member]
    own = torch.where(original.isnan(), torch.inf, original * sign)
    least = torch.minimum(worst, own)
    least = torch.where(least.isinf(), torch.nan, least)
    return (least - margin * deviation.abs().to(scores.dtype)) * sign
