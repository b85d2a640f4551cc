"""What the rewards of one logging step don't say: how various its rewrites were, and the groups
that did best and worst. Rewards, gains and failures are logged by ``t2x.rollouts``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from t2x.functional.text import distinct_n

if TYPE_CHECKING:
    from t2x.types import Rewrite

__all__ = ["Judged", "RolloutStats", "Sums", "add_sums"]

Sums = dict[str, tuple[float, int]]
FEW = 2  # groups kept from either end of a step


class Judged(Protocol):
    """What is read of a rollout's outcome (``t2x.rollouts``)."""

    @property
    def rewrite(self) -> Rewrite: ...

    @property
    def kind(self) -> str: ...

    @property
    def reward(self) -> float: ...

    @property
    def original_reward(self) -> float: ...


@dataclass
class RolloutStats:
    """Collects outcomes between two lines of the log; ``add`` is what a reward function calls.

    Means leave out what is NaN. Sums are kept, so that those of several processes can be added.
    """

    sums: Sums = field(default_factory=dict)
    groups: list[dict[str, Any]] = field(default_factory=list)

    def add(self, outcomes: Sequence[Judged]) -> None:
        """Count the outcomes of one generation; members of a group have the same original."""
        if not outcomes:
            return
        texts = [o.rewrite.text for o in outcomes if o.kind == "rewrite"]
        self.sums = add_sums([self.sums, dict(_mean_of(_variety(texts)))])
        self.groups = _ends([*self.groups, *_groups(outcomes)])

    def take(self) -> tuple[Sums, list[dict[str, Any]]]:
        """Give sums and groups, and begin anew."""
        taken = self.sums, self.groups
        self.sums, self.groups = {}, []
        return taken


def add_sums(parts: Iterable[Sums]) -> Sums:
    """Add (sum, count) by key."""
    total: Sums = {}
    for part in parts:
        for key, (value, count) in part.items():
            before, counted = total.get(key, (0.0, 0))
            total[key] = (before + value, counted + count)
    return total


def _mean_of(values: Mapping[str, float]) -> Iterator[tuple[str, tuple[float, int]]]:
    for key, value in values.items():
        yield key, ((0.0, 0) if math.isnan(value) else (value, 1))


def _variety(texts: Sequence[str]) -> dict[str, float]:
    words = [len(text.split()) for text in texts]
    found = {f"distinct_{n}": distinct_n(texts, n) for n in (1, 2)}
    return found | {"words": statistics.fmean(words) if words else math.nan}


def _groups(outcomes: Sequence[Judged]) -> Iterator[dict[str, Any]]:
    """A record of each prompt: its rewrites, the best first, with rewards and kinds."""
    prompts: dict[str, list[Judged]] = {}
    for outcome in outcomes:
        prompts.setdefault(outcome.rewrite.original, []).append(outcome)
    for prompt, members in prompts.items():
        rewards = [m.reward if m.kind != "truncated" else math.nan for m in members]
        own = _mean([m.original_reward for m in members])
        ranked = sorted(
            zip(members, rewards, strict=True),
            key=lambda pair: (math.isnan(pair[1]), -pair[1]),
        )
        yield {
            "prompt": prompt,
            "own_words": own,
            "gain": _mean(rewards) - own,
            "members": [
                {"text": m.rewrite.text, "kind": m.kind, "reward": reward} for m, reward in ranked
            ],
        }


def _ends(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups that gained most and least, best first; those without a measurement go."""
    known = sorted(
        (g for g in groups if not math.isnan(g["gain"])), key=lambda g: g["gain"], reverse=True
    )
    return known if len(known) <= 2 * FEW else known[:FEW] + known[-FEW:]


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return statistics.fmean(known) if known else math.nan
