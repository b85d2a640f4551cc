"""From completions to outcomes: what each would draw, what that is worth, and beside its group.

Differs from published trainers: scores are against the user's own prompt; all rewrites of a prompt
and the prompt itself share their seeds; failures of the policy get a score below the prompt left as
it is, and failures of measurement none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.advantages import seed_noise
from t2x.rewriters.completion import Completion
from t2x.rewriters.similarity import load_embedder
from t2x.rollouts.blocks import Block, Exchange, of_all_processes, put_together
from t2x.rollouts.comparing import Compared, Comparison
from t2x.rollouts.config import RolloutConfig
from t2x.rollouts.reading import CompletionReader
from t2x.rollouts.records import Kind, Outcome
from t2x.rollouts.sets import SETS, sets_column
from t2x.search.evaluator import Order
from t2x.types import Rewrite

if TYPE_CHECKING:
    from t2x.rewriters.templates import Template
    from t2x.rollouts.measuring import Measurer
    from t2x.training.config import RewardConfig

__all__ = ["RolloutScorer"]


@dataclass(frozen=True)
class _Row:
    """A completion with what it says."""

    original: str
    group: int
    seeds: tuple[int, ...]
    kind: Kind
    rewrite: Rewrite
    plain: str  # what is drawn for the prompt left as it is

    @property
    def orders(self) -> list[Order]:
        """The pictures to draw of the rewrite."""
        text, negative = self.rewrite.text, self.rewrite.negative
        return [Order(self.original, text, negative, seed) for seed in self.seeds]

    @property
    def plain_orders(self) -> list[Order]:
        """Those of the prompt left as it is; one more than a single one shows what seeds do."""
        more = (self.seeds[0] ^ 1,) if len(self.seeds) == 1 else ()
        return [Order(self.original, self.plain, "", seed) for seed in (*self.seeds, *more)]


class RolloutScorer:
    """Scores completions of a policy.

    Args:
        measurer: draws and scores, or a ``functools.partial`` that makes one when it is first
            needed: then the scorer can be pickled without the models behind it.
        reader: reads completions, or such a partial.
        weights: of the rewards, in the order of the measurer's.
        combine: a rule of ``t2x.scoring.combine.COMBINERS``.
        config: how rollouts are drawn and compared.
        exchange: how processes put their blocks together.

    ``metrics`` are those of the last call. ``cost`` is of all calls and of all processes:
    ``pictures``, those that were used, is what trainings are compared by, and ``pictures/drawn``
    counts those of them that no store had. Inside a call equal pictures of one process count once.
    What a store saves is luck of what ran before, so that a method pays for its pictures all the
    same; a later call pays for them again, as it would without a store. ``state_dict`` holds what a
    resumed run needs.
    """

    def __init__(
        self,
        measurer: Measurer | partial[Measurer],
        reader: CompletionReader | partial[CompletionReader],
        weights: Mapping[str, float],
        *,
        combine: str = "sum",
        config: RolloutConfig | None = None,
        exchange: Exchange = of_all_processes,
    ) -> None:
        self.config = config or RolloutConfig()
        sets = self.config.sets
        own = dict(weights) if sets is None else {**weights, SETS: sets.weight}
        self.comparison = Comparison(own, combine=combine, config=self.config)
        self.metrics: dict[str, float] = {}
        self.pictures = self.drawn = 0
        self._exchange = exchange
        self._given: dict[str, Any] = {"measurer": measurer, "reader": reader}
        if sets is not None:
            self._given["embed"] = partial(load_embedder, sets.embedder)
        self._made: dict[str, Any] = {}

    @classmethod
    def from_config(
        cls, reward: RewardConfig, rollout: RolloutConfig, template: Template
    ) -> RolloutScorer:
        """Build a scorer from the sections of a recipe; models are loaded when they are needed."""
        from t2x.rollouts.measuring import build_measurer

        return cls(
            partial(build_measurer, reward, rollout),
            partial(CompletionReader, template, generator=reward.generator),
            reward.rewards,
            combine=reward.combine,
            config=rollout,
        )

    @property
    def measurer(self) -> Measurer:
        """What draws and scores."""
        found: Measurer = self._part("measurer")
        return found

    @property
    def reader(self) -> CompletionReader:
        """What reads completions."""
        found: CompletionReader = self._part("reader")
        return found

    @property
    def cost(self) -> dict[str, float]:
        """Pictures of all calls, by name of the log."""
        return {"pictures": float(self.pictures), "pictures/drawn": float(self.drawn)}

    def score(
        self,
        originals: Sequence[str],
        completions: Sequence[Completion],
        *,
        seeds: Sequence[Sequence[int]],
        groups: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Score N completions of N prompts, each on S ``seeds``: N outcomes in order.

        ``groups``: numbers of those that are compared; None is by equal prompts. Members of a group
        must be of one prompt and on the same seeds. Raises T2XError for lists that don't fit, and
        for a dead reward: more than ``max_missing`` of its last scores are missing, or all that it
        ever gave are equal.
        """
        rows = self._read(originals, completions, seeds, groups)
        if not rows:
            return []
        own = self._measured(rows)
        whole, place = put_together(*self._exchange(own))
        self.comparison.observe(whole)
        found = self.comparison.compare(whole)
        self.pictures += whole.used
        self.drawn += whole.drawn
        seconds = {f"seconds/{name}": value for name, value in self.measurer.seconds.items()}
        self.metrics = self.comparison.metrics(whole, found) | seconds | self.cost
        names = self.comparison.names
        return [_outcome(row, names, own, found, i, place.start + i) for i, row in enumerate(rows)]

    def state_dict(self) -> dict[str, Any]:
        """Running statistics as plain values that JSON holds exactly."""
        counted = {"pictures": self.pictures, "drawn": self.drawn}
        return self.comparison.state_dict() | counted

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self.comparison.load_state_dict(state)
        self.pictures = int(state["pictures"])
        self.drawn = int(state.get("drawn", self.pictures))  # older checkpoints have one number

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_made": {}}

    def _part(self, name: str) -> Any:
        if name not in self._made:
            given = self._given[name]
            self._made[name] = given() if isinstance(given, partial) else given
        return self._made[name]

    def _read(
        self,
        originals: Sequence[str],
        completions: Sequence[Completion],
        seeds: Sequence[Sequence[int]],
        groups: Sequence[int] | None,
    ) -> list[_Row]:
        if not len(originals) == len(completions) == len(seeds):
            raise T2XError(
                f"{len(originals)} prompts, {len(completions)} completions and {len(seeds)} lists "
                "of seeds; give one of each per row"
            )
        if groups is None:
            numbers: dict[str, int] = {}
            groups = [numbers.setdefault(p, len(numbers)) for p in originals]
        _check_groups(originals, seeds, groups)
        numbered = {group: i for i, group in enumerate(dict.fromkeys(groups))}
        known: dict[tuple[str, Completion], tuple[Kind, Rewrite]] = {}
        plain = {prompt: self.reader.unchanged(prompt) for prompt in dict.fromkeys(originals)}
        rows = []
        for prompt, completion, group, own in zip(
            originals, completions, groups, seeds, strict=True
        ):
            if (prompt, completion) not in known:  # checks take longer than many a model
                known[prompt, completion] = self.reader.read(prompt, completion, seed=own[0])
            read = known[prompt, completion]
            rows.append(_Row(prompt, numbered[group], tuple(own), *read, plain[prompt]))
        return rows

    def _measured(self, rows: Sequence[_Row]) -> Block:
        """Draw and score everything at once: rewrites first, then the prompts left as they are."""
        orders = [o for row in rows if row.kind == "rewrite" for o in row.orders]
        firsts = list({row.group: row for row in reversed(rows)}.values())
        orders += [o for row in firsts for o in row.plain_orders]
        found = dict(zip(orders, self.measurer.measure(orders), strict=True))
        blank = torch.full((len(self.comparison.names),), math.nan, dtype=torch.float64)
        scores = torch.stack(
            [
                torch.stack([found[o] if row.kind == "rewrite" else blank for o in row.orders])
                for row in rows
            ]
        )
        number = scores.shape[1]
        plain = [torch.stack([found[o] for o in row.plain_orders]) for row in rows]
        original = torch.stack([p[:number] for p in plain])
        groups = torch.tensor([row.group for row in rows])
        kinds = tuple(row.kind for row in rows)
        noise = _noise(rows, scores, plain)
        counted = self.measurer.used, self.measurer.drawn
        return Block(scores, original, groups, kinds, noise, self._sets(rows), *counted)

    def _sets(self, rows: Sequence[_Row]) -> Tensor | None:
        if self.config.sets is None:
            return None
        return sets_column(
            self.config.sets,
            self._part("embed"),
            originals=[row.original for row in rows],
            texts=[row.rewrite.text if row.kind == "rewrite" else None for row in rows],
            groups=[row.group for row in rows],
        )


def _noise(rows: Sequence[_Row], scores: Tensor, plain: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """What seeds do: between the different rewrites of each group, and with one seed per rewrite
    between two of the prompt left as it is. The latter overestimates it: what a seed does to all
    texts alike is in it too, and prompts left as they are vary most."""
    texts: dict[tuple[int, str, str], Tensor] = {}
    for i, row in enumerate(rows):
        if scores.shape[1] == 1:
            texts.setdefault((row.group, row.plain, ""), plain[i])
        elif row.kind == "rewrite":
            texts.setdefault((row.group, row.rewrite.text, row.rewrite.negative), scores[i])
    if not texts:
        return seed_noise(scores[:0])
    groups = torch.tensor([group for group, *_ in texts])
    lone = scores.shape[1] == 1  # nothing but the prompt as it is shows any noise
    return seed_noise(torch.stack(list(texts.values())), groups, lone=lone)


def _check_groups(
    originals: Sequence[str], seeds: Sequence[Sequence[int]], groups: Sequence[int]
) -> None:
    """Refuse groups of several prompts or seeds, and rows with other numbers of seeds."""
    first: dict[int, tuple[str, tuple[int, ...]]] = {}
    for prompt, own, group in zip(originals, seeds, groups, strict=True):
        seen = (prompt, tuple(own))
        if first.setdefault(group, seen) != seen:
            raise T2XError(
                f"group {group} holds {first[group]} and {seen}; its members need one prompt and "
                "the same seeds"
            )
    if len({len(own) for own in seeds}) > 1 or not all(len(own) for own in seeds):
        raise T2XError("every row needs the same number of seeds, at least one")


def _outcome(
    row: _Row, names: Sequence[str], own: Block, found: Compared, at: int, place: int
) -> Outcome:
    def by_name(table: Tensor) -> dict[str, tuple[float, ...]]:
        return {name: tuple(table[:, k].tolist()) for k, name in enumerate(names)}

    return Outcome(
        row.rewrite,
        row.kind,
        row.group,
        row.seeds,
        by_name(own.scores[at]) if row.kind == "rewrite" else {},
        by_name(own.original[at]),
        float(found.reward[place]),
        float(found.original[place]),
        float(found.advantage[place]),
    )
