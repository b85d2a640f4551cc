"""Named ways from (N, K) scores to (N,), for :class:`t2x.scoring.ensemble.RewardEnsemble`.

The equations are in ``t2x/functional/composition.py`` and ``moments.py``. ``sum`` and
``standardised`` look at each row alone; the others compare rows, so that a score means something
only beside those of its batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.composition import cmo, dominance, gdpo, non_dominated, weighted_sum
from t2x.functional.moments import Moments, standardise

__all__ = ["COMBINERS", "Combiner", "Given", "prompt_groups"]

_ANY = (-math.inf, math.inf)


@dataclass(frozen=True)
class Given:
    """What a combiner works on: ``scores`` (N, K), ``weights`` (K,), ``groups`` (N,) or None for
    one group, the ``running`` statistics, and the settings of the ensemble.
    """

    scores: Tensor
    weights: Tensor
    groups: Tensor | None
    running: Moments
    floor: float = 0.0
    temperature: float = 1.0


@dataclass(frozen=True)
class Combiner:
    """``run`` gives (N,); ``about`` says what it is. ``range`` is None where the rewards' own
    ranges decide; ``batchwise`` where a score depends on the rest of the batch, ``grouped`` where
    prompts make the groups.
    """

    run: Callable[[Given], Tensor]
    about: str
    range: tuple[float, float] | None = _ANY
    differentiable: bool = True
    batchwise: bool = False
    grouped: bool = False


def prompt_groups(prompts: Sequence[str]) -> Tensor:
    """Group numbers by equal prompts: (N,)."""
    numbers: dict[str, int] = {}
    return torch.tensor([numbers.setdefault(p, len(numbers)) for p in prompts], dtype=torch.long)


def _standardised(given: Given) -> Tensor:
    few = (given.running.measured < 2) & (given.weights != 0).to(given.running.measured.device)
    if bool(few.any()):
        raise T2XError(
            "standardised scores need running statistics of two scores or more of every reward; "
            "call observe(scores) first, or give running="
        )
    running = Moments(*(part.to(given.scores.device) for part in given.running))
    return weighted_sum(standardise(given.scores, running, floor=given.floor), given.weights)


def _sum(given: Given) -> Tensor:
    return weighted_sum(given.scores, given.weights)


def _gdpo(given: Given) -> Tensor:
    return gdpo(given.scores, given.weights, given.groups, floor=given.floor)


def _correlation(given: Given) -> Tensor:
    return cmo(
        given.scores,
        given.weights,
        given.groups,
        temperature=given.temperature,
        floor=given.floor,
    )


def _dominance(given: Given) -> Tensor:
    return dominance(given.scores, given.weights, given.groups, margin=given.floor)


def _pareto(given: Given) -> Tensor:
    scores = given.scores[:, given.weights != 0]
    front = non_dominated(scores, given.groups, floor=given.floor).to(scores.dtype)
    return torch.where(scores.isnan().any(1), torch.nan, front)


COMBINERS = {
    "sum": Combiner(_sum, "weighted sum", range=None),
    "standardised": Combiner(_standardised, "weighted sum of running standardised scores"),
    "gdpo": Combiner(
        _gdpo,
        "GDPO: normalised inside the prompt's group, summed, normalised over the batch",
        batchwise=True,
        grouped=True,
    ),
    "correlation": Combiner(
        _correlation,
        "CMO: correlation-weighted advantage inside the prompt's group",
        batchwise=True,
        grouped=True,
    ),
    "dominance": Combiner(
        _dominance,
        "VPO: share of the prompt's group that it dominates, less the share that dominates it",
        range=(-1.0, 1.0),
        differentiable=False,
        batchwise=True,
        grouped=True,
    ),
    "pareto": Combiner(
        _pareto,
        "Parrot: 1 in the batch's Pareto front, else 0",
        range=(0.0, 1.0),
        differentiable=False,
        batchwise=True,
    ),
}
