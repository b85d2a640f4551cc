"""What a policy's failures are worth, in training and in data made for it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from t2x.functional.advantages import failure_score
from t2x.functional.moments import Moments
from t2x.rollouts.records import FAILURES

__all__ = ["deviations", "with_failures"]


def deviations(known: Moments) -> Tensor:
    """Standard deviation of every column (K,), 1 where none is known or there is none."""
    found = (known.m2 / (known.measured - 1).clamp(min=1)).sqrt()
    return torch.where((known.measured > 1) & (found > 0), found, 1.0)


def with_failures(
    table: Tensor,
    original: Tensor,
    kinds: Sequence[str],
    groups: Tensor,
    *,
    scale: Tensor,
    margin: float,
) -> Tensor:
    """The table (N, K) with the fixed scores of the policy's failures in it (``failure_score``).

    ``original`` (N, K): the same prompts left as they are. ``kinds``, ``groups``: one per row.
    ``scale`` (K,): deviations with the signs of the weights; a failure is ``margin`` of them below.
    """
    failed = torch.tensor([kind in FAILURES for kind in kinds], dtype=torch.bool)
    if not bool(failed.any()):
        return table
    fixed = failure_score(table, original, scale, groups, margin=margin)
    return torch.where(failed[:, None], fixed, table)
