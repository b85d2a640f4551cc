"""Puts the candidates of each prompt in order: one number of several rewards on several seeds,
comparable over the whole file, and how much of it seeds alone make.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from t2x.data.records import Candidate, Scored, Scores
from t2x.errors import T2XError
from t2x.rollouts.config import RolloutConfig
from t2x.rollouts.records import FAILURES

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Combine", "Item", "Ranked", "Ranking", "rank"]

Combine: TypeAlias = Literal["sum", "standardised"]


@dataclass(frozen=True)
class Item:
    """A candidate with its place: ``total`` of all rewards, NaN if one is missing; ``means`` of
    each over the seeds, as measured. ``candidate`` is None for the prompt left as it is, where no
    candidate says just that. ``row`` is its place in ``Ranked.scores``.
    """

    row: int
    candidate: Candidate | None
    unchanged: bool
    total: float
    means: Mapping[str, float]

    @property
    def kind(self) -> str:
        """``no rewrite``, or the candidate's own kind."""
        return "no rewrite" if self.unchanged or self.candidate is None else self.candidate.kind

    @property
    def order(self) -> tuple[float, int]:
        """Best first, what was not measured last, of equals the earlier one."""
        return (math.inf if math.isnan(self.total) else -self.total, self.row)


@dataclass(frozen=True)
class Ranked:
    """A prompt with its items in the order of the candidates, the prompt as it is first; ``scores``
    (M, K) are means over seeds, on the scale that totals are made of.
    """

    scored: Scored
    items: tuple[Item, ...]
    scores: Tensor


@dataclass(frozen=True)
class Ranking:
    """``noise``: deviation that seeds alone give to the difference of two totals; NaN if every text
    was drawn once. ``weights`` (K,) are those of the totals, by ``names``.
    """

    prompts: tuple[Ranked, ...]
    names: tuple[str, ...]
    weights: Tensor
    noise: float
    pictures: int

    def least(self, noise: float, margin: float) -> float:
        """The least difference of totals that counts: so many deviations of the seeds, or the
        margin if that is more.
        """
        for name, value in (("noise", noise), ("margin", margin)):
            if not 0 <= value < math.inf:
                raise T2XError(f"{name} is {value}; give 0 or more")
        if noise and math.isnan(self.noise):
            raise T2XError(
                "what seeds alone do is not known: every text was drawn once, or none was "
                "measured; draw 2 pictures or more of each, or give noise 0 and a margin"
            )
        return max(margin, noise * self.noise if noise else 0.0)


def rank(
    scored: Sequence[Scored],
    weights: Mapping[str, float],
    *,
    combine: Combine = "sum",
    failure_margin: float = RolloutConfig.margin,
) -> Ranking:
    """Rank the candidates of every prompt.

    ``combine``: ``sum`` of rewards times weights, or ``standardised`` first by the mean and
    deviation of each reward over all pictures of the file. A candidate that failed or breaks a
    check is put ``failure_margin`` deviations of each reward below the prompt as it is and every
    measured candidate of its prompt (``margin`` of ``t2x.rollouts.RolloutConfig``). Candidates that
    would draw the same are one, the first.

    Raises T2XError for rewards that the candidates were not scored by.
    """
    import torch

    from t2x.functional.advantages import seed_noise
    from t2x.functional.composition import weighted_sum
    from t2x.functional.moments import moments, standardise
    from t2x.functional.pairs import difference_noise

    _check_names(scored, weights)
    lists = [_distinct(one) for one in scored]
    pictures = min((len(one.seeds) for one in scored), default=0)
    if not pictures:
        raise T2XError("no candidate has a picture; draw some, or give seeds that all texts share")
    rows = [own for one, found in zip(scored, lists, strict=True) for own in _rows(one, found)]
    raw = torch.tensor([_table(own, weights, pictures) for own in rows], dtype=torch.float64)
    groups = torch.tensor([i for i, found in enumerate(lists) for _ in found])
    table = raw
    if combine == "standardised":
        flat = raw.flatten(0, 1)
        table = standardise(flat, moments(flat)).reshape(raw.shape)
    wide = torch.tensor([*weights.values()], dtype=torch.float64)
    measured = seed_noise(table, groups, lone=False)
    if not measured[1]:  # no two texts anywhere to tell apart: too much, then, but not nothing
        measured = seed_noise(table, groups)
    noise = difference_noise(*measured, wide, seeds=pictures)
    scores = _with_failures(table.mean(1), lists, groups, wide, failure_margin)
    totals = weighted_sum(scores, wide)
    prompts, start = [], 0
    for one, found in zip(scored, lists, strict=True):
        part = slice(start, start + len(found))
        items = _items(found, totals[part].tolist(), raw[part].mean(1).tolist(), [*weights])
        prompts.append(Ranked(one, items, scores[part]))
        start = part.stop
    return Ranking(tuple(prompts), tuple(weights), wide, float(noise), pictures)


def _check_names(scored: Sequence[Scored], weights: Mapping[str, float]) -> None:
    known = {name for one in scored for name in one.original}
    if not weights or set(weights) - known:
        raise T2XError(
            f"the candidates were scored by {', '.join(sorted(known)) or 'nothing'}; give weights "
            f"of these, not of {', '.join(weights) or 'none'}"
        )


def _distinct(one: Scored) -> list[Candidate | None]:
    """None for the prompt as it is, then the candidates that differ in what they would draw; of
    those that draw the prompt as it is the first takes the place of None."""
    found: dict[object, Candidate | None] = {(one.unchanged, ""): None}
    for candidate in one.candidates:
        if candidate.kind in FAILURES:
            found.setdefault(candidate.completion, candidate)
        elif candidate.kind == "rewrite":
            key = candidate.text, candidate.negative
            if found.get(key) is None:
                found[key] = candidate
    return [*found.values()]


def _rows(one: Scored, found: Sequence[Candidate | None]) -> list[Scores]:
    """The scores of each; those of the prompt as it is come first."""
    return [one.original, *(c.scores if c is not None else {} for c in found[1:])]


def _table(scores: Scores, weights: Mapping[str, float], pictures: int) -> list[list[float]]:
    columns = [scores.get(name, (math.nan,) * pictures)[:pictures] for name in weights]
    return [list(row) for row in zip(*columns, strict=True)]


def _with_failures(
    scores: Tensor,
    lists: Sequence[Sequence[Candidate | None]],
    groups: Tensor,
    weights: Tensor,
    margin: float,
) -> Tensor:
    """Means (M, K) with those of failures in their place, as in rollouts."""
    import torch

    from t2x.functional.moments import moments
    from t2x.rollouts.failures import deviations, with_failures

    kinds = ["no rewrite" if c is None else c.kind for found in lists for c in found]
    first = torch.tensor([i == 0 for found in lists for i in range(len(found))])
    scale = deviations(moments(scores)) * torch.where(weights < 0, -1.0, 1.0)
    return with_failures(scores, scores[first][groups], kinds, groups, scale=scale, margin=margin)


def _items(
    found: Sequence[Candidate | None],
    totals: Sequence[float],
    means: Sequence[Sequence[float]],
    names: Sequence[str],
) -> tuple[Item, ...]:
    return tuple(
        Item(row, candidate, row == 0, total, dict(zip(names, own, strict=True)))
        for row, (candidate, total, own) in enumerate(zip(found, totals, means, strict=True))
    )
