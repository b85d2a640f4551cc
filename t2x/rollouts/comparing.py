"""Compares the members of a group: one reward of many, failures below the prompt left as it is,
advantages that divide by no less than what seeds alone do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.advantages import group_advantages
from t2x.functional.composition import weighted_sum
from t2x.functional.moments import Moments, merge_moments, moments
from t2x.rollouts.blocks import Block
from t2x.rollouts.config import RolloutConfig
from t2x.rollouts.failures import deviations, with_failures
from t2x.rollouts.health import Health
from t2x.rollouts.noise import NoiseFloor
from t2x.rollouts.sets import SETS
from t2x.scoring.combine import COMBINERS, Given

__all__ = ["Compared", "Comparison"]

_LINEAR = ("sum", "standardised")  # of a row alone, so that rewards compare between groups
_ADVANTAGES = ("gdpo", "correlation")  # give advantages already
# The others count who is ahead of whom: by two deviations of a difference, as pairs are chosen.
_AHEAD = 2 * math.sqrt(2)
_QUIET = 1e-3


@dataclass(frozen=True)
class Compared:
    """Of N rows: ``reward`` (pictures alone, NaN for what was not measured), ``original`` (the
    prompt left as it is) and ``advantage``, (N,) float64 each; ``floor`` that deviations were held
    above.
    """

    reward: Tensor
    original: Tensor
    advantage: Tensor
    floor: float


class Comparison:
    """Running statistics of a run, and the comparison inside each rollout by them.

    ``weights`` by reward; ``sets`` is the name of the reward of diversity. ``combine``: ``sum`` and
    ``standardised`` give a reward that compares over the whole run; the other rules compare rows of
    a rollout, and the reward that is logged beside them is the standardised one.
    """

    def __init__(
        self, weights: Mapping[str, float], *, combine: str, config: RolloutConfig
    ) -> None:
        if combine not in COMBINERS:
            raise T2XError(f"unknown combine {combine!r}; allowed: {', '.join(COMBINERS)}")
        self.combine, self.config = combine, config
        self.names = tuple(name for name in weights if name != SETS)
        sets = (SETS,) if config.sets is not None else ()
        self.columns = (*self.names, *sets)
        self.weights = torch.tensor([weights[name] for name in self.columns], dtype=torch.float64)
        self.running = moments(torch.zeros(0, len(self.columns)))
        self.noise = NoiseFloor(len(self.names))
        self._used = self.weights[: len(self.names)] != 0
        self.health = Health(
            [name for name in self.names if weights[name]],
            max_missing=config.max_missing,
            constant_after=config.constant_after,
        )

    def observe(self, block: Block) -> None:
        """Count a rollout; T2XError for a dead reward."""
        drawn = torch.tensor([kind == "rewrite" for kind in block.kinds], dtype=torch.bool)
        first = _first_of_groups(block.groups)
        pictures = torch.cat([block.scores[drawn], block.original[first]]).flatten(0, 1)
        self.health.check(pictures[:, self._used])
        self.noise.observe(*block.noise)
        known = float(self.running.measured[: len(self.names)].min())
        if not self.config.calibrate or known < self.config.calibrate:
            rows = torch.cat([self._table(block)[drawn], self._table(block, original=True)[first]])
            self.running = merge_moments(self.running, moments(rows))

    def compare(self, block: Block) -> Compared:
        """Rewards and advantages of a rollout that was observed."""
        table = self._filled(block)
        original = self._table(block, original=True)
        pictures = len(self.names)
        reward = self._aggregate(table[:, :pictures])
        table[table[:, self.weights != 0].isnan().any(1)] = math.nan
        seeds = block.scores.shape[1]
        return Compared(
            reward,
            self._aggregate(original[:, :pictures]),
            *self._advantages(table, block.groups, seeds),
        )

    def _table(self, block: Block, *, original: bool = False) -> Tensor:
        """Means over seeds, (N, columns): NaN if one is missing, or seeds would no longer be the
        same in a group."""
        means = (block.original if original else block.scores).mean(1)
        if len(self.columns) == len(self.names):
            return means
        sets = torch.full_like(means[:, 0], math.nan)
        if not original and block.sets is not None:
            sets = block.sets
        return torch.cat([means, sets[:, None]], 1)

    def _filled(self, block: Block) -> Tensor:
        """The table with the fixed scores of failures in it."""
        return with_failures(
            self._table(block),
            self._table(block, original=True),
            block.kinds,
            block.groups,
            scale=self.deviation() * torch.where(self.weights < 0, -1.0, 1.0),
            margin=self.config.margin,
        )

    def deviation(self) -> Tensor:
        """Running standard deviation of every column (``deviations``)."""
        return deviations(self.running)

    def seed_deviation(self, seeds: int) -> float:
        """Standard deviation of a reward over ``seeds`` seeds by these alone; 0 while unknown."""
        return float(self.noise.deviation(self._scales()[: len(self.names)], seeds))

    def _scales(self) -> Tensor:
        """What a column is multiplied by in a linear sum."""
        return self.weights if self.combine == "sum" else self.weights / self.deviation()

    def _aggregate(self, table: Tensor) -> Tensor:
        number = table.shape[1]
        centre = torch.zeros(number) if self.combine == "sum" else self.running.mean[:number]
        return weighted_sum(table - centre, self._scales()[:number])

    def _advantages(self, table: Tensor, groups: Tensor, seeds: int) -> tuple[Tensor, float]:
        pictures = len(self.names)
        given = self.config.floor
        if self.combine in _LINEAR:
            scales = self._scales()
            floor = self.seed_deviation(seeds) if given is None else given
            return group_advantages(weighted_sum(table, scales), groups, floor=floor), floor
        # In units of what seeds do, one floor holds for all columns.
        unit = torch.zeros(len(self.columns), dtype=torch.float64)
        unit[:pictures] = self.noise.deviation(torch.eye(pictures), seeds)
        # Where seeds do nothing, or nothing is known of them, next to no difference is too small.
        least = self.deviation() * (_QUIET if given is None else 1.0)
        unit = torch.where(unit > 0, unit, least)
        usual = 1.0 if self.combine in _ADVANTAGES else _AHEAD
        floor = usual if given is None else given
        combiner = COMBINERS[self.combine]
        values = combiner.run(
            Given(
                table / unit,
                self.weights,
                groups,
                self.running,
                floor=floor,
                temperature=self.config.temperature,
            )
        )
        if self.combine in _ADVANTAGES:
            return values - _group_mean(values, groups), floor
        return group_advantages(values, groups), floor

    def metrics(self, block: Block, found: Compared) -> dict[str, float]:
        """Numbers of a rollout to log; ``t2x.watching.names`` says what each of them is."""
        kinds = torch.tensor([kind == "rewrite" for kind in block.kinds], dtype=torch.bool)
        number = max(len(block.kinds), 1)
        values = {
            f"share/{kind}": block.kinds.count(kind) / number
            for kind in ("rewrite", "broken", "failed", "truncated")
        }
        known = ~found.reward.isnan() & ~found.original.isnan()  # failures have fixed rewards
        values["share/missing"] = float((kinds & found.reward.isnan()).sum()) / number
        table, original = self._table(block), self._table(block, original=True)
        for k, name in enumerate(self.columns):
            values[f"reward/{name}"] = _mean(table[kinds, k])
            if name != SETS:
                values[f"gain/{name}"] = _mean((table - original)[kinds & known, k])
        reward, original = found.reward[known], found.original[known]
        values |= {
            "rollout/reward": _mean(reward),
            "rollout/reward_std": math.sqrt(_mean((reward - _mean(reward)) ** 2)),
            "rollout/original": _mean(original),
            "rollout/gain": _mean(reward - original),
            "rollout/floor": found.floor,
            "rollout/advantage": _mean(found.advantage.abs()),
            "share/zero_variance": _flat_groups(found.advantage, block.groups),
        }
        return values

    def state_dict(self) -> dict[str, Any]:
        """Running statistics as plain values that JSON holds exactly."""
        return {
            "columns": list(self.columns),
            "running": {k: v.tolist() for k, v in self.running._asdict().items()},
            "noise": self.noise.state_dict(),
            "health": self.health.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave; T2XError for those of other rewards."""
        if list(state["columns"]) != list(self.columns):
            raise T2XError(
                f"the checkpoint holds statistics of {', '.join(state['columns'])}, and the "
                f"rewards are {', '.join(self.columns)}; give the same, or set run.resume=false"
            )
        parts = {k: torch.tensor(v, dtype=torch.float64) for k, v in state["running"].items()}
        self.running = Moments(**parts)
        self.noise.load_state_dict(state["noise"])
        self.health.load_state_dict(state["health"])


def _first_of_groups(groups: Tensor) -> Tensor:
    """The first row of every group."""
    names, member = groups.unique(return_inverse=True)
    rows = torch.full((len(names),), len(groups), dtype=torch.long)
    return rows.scatter_reduce(0, member, torch.arange(len(groups)), "amin")


def _group_mean(values: Tensor, groups: Tensor) -> Tensor:
    names, member = groups.unique(return_inverse=True)
    kept = ~values.isnan()
    total = torch.zeros(len(names), dtype=values.dtype)
    sums = total.index_add(0, member, torch.where(kept, values, 0.0))
    return (sums / total.index_add(0, member, kept.to(values.dtype)).clamp(min=1))[member]


def _flat_groups(advantage: Tensor, groups: Tensor) -> float:
    """Share of groups without a single advantage."""
    names, member = groups.unique(return_inverse=True)
    moved = torch.zeros(len(names)).index_add(0, member, advantage.nan_to_num(0.0).abs().float())
    return float((moved == 0).float().mean()) if len(names) else math.nan


def _mean(values: Tensor) -> float:
    return float(values.nanmean()) if len(values) else math.nan
