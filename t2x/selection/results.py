"""What groups of rewrites say about their prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from t2x.functional.selection import success_rate, true_variance

__all__ = ["Evidence", "GroupResult", "evidence"]

_ALIKE = 2.0  # times the noise: a group of noise alone is within it but for a few in a thousand


@dataclass(frozen=True)
class GroupResult:
    """One prompt's group in one step.

    ``prompt``: number of the prompt among those that are trained on. ``rewards``: one per rewrite;
    NaN for one that was not measured or is masked. A rewrite that is broken has the reward that it
    is trained with, below ``baseline``, the reward of the no-rewrite arm (NaN: not measured).
    ``noise``: standard deviation of a reward by its seeds alone.
    """

    prompt: int
    rewards: tuple[float, ...]
    baseline: float
    noise: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """What B groups of different prompts say, each (B,): ``prompts``, their numbers; ``rates``, the
    share of the group that is ahead of the no-rewrite arm; ``counts``, how many rewrites have a
    reward; ``variances`` between the rewrites beyond that of seeds; ``spent``, whether all succeed
    and deviate by no more than twice what seeds do, so that no gradient is left that points
    anywhere. NaN: nothing says so.
    """

    prompts: Tensor
    rates: Tensor
    counts: Tensor
    variances: Tensor
    spent: Tensor

    @property
    def informative(self) -> Tensor:
        """Whether some rewrites succeed and some fail: (B,) bool."""
        return (self.rates > 0) & (self.rates < 1)


def evidence(results: Sequence[GroupResult], margin: float = 0.0) -> Evidence:
    """Weigh the results of different prompts, all at once; groups may differ in size."""
    size = max((len(result.rewards) for result in results), default=0)
    padded = [[*r.rewards, *[math.nan] * (size - len(r.rewards))] for r in results]
    rewards = torch.tensor(padded, dtype=torch.float64).reshape(len(results), size)
    baseline = torch.tensor([result.baseline for result in results], dtype=torch.float64)
    noise = torch.tensor([result.noise for result in results], dtype=torch.float64)
    rates = success_rate(rewards, baseline, margin=margin)
    return Evidence(
        prompts=torch.tensor([result.prompt for result in results], dtype=torch.long),
        rates=rates,
        counts=(~rewards.isnan()).sum(1),
        variances=true_variance(rewards, noise),
        spent=(rates == 1) & (true_variance(rewards, _ALIKE * noise) == 0),
    )
