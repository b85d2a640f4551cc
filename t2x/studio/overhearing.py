"""Live values of the ways to use rewards that have no steps of guidance: particles, search and
optimised noise look at whole samples, and what their rewards say is overheard.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Context, Media, RewardModel

Told: TypeAlias = "Callable[[int, dict[str, float], Tensor], None]"
"""Hears the number of the evaluation, the best sample's values by reward, and its picture."""

__all__ = ["Overhearing", "overheard"]


@dataclass
class Overhearing:
    """Puts together what ``count`` rewards say of the same samples."""

    count: int
    tell: Told
    number: int = 0
    values: dict[str, Tensor] = field(default_factory=dict)

    def hear(self, name: str, scores: Tensor, media: Media) -> None:
        """Take one reward's scores (N,); when all are there, tell those of the best sample by their
        sum."""
        self.values[name] = scores.detach().float().cpu()
        if len(self.values) < self.count:
            return
        total = sum(values.nan_to_num(-math.inf) for values in self.values.values())
        row = int(total.argmax())  # type: ignore[union-attr]
        found = {name: float(values[row]) for name, values in self.values.items()}
        self.values = {}
        picture = media[row].detach()
        self.tell(self.number, found, picture[0] if isinstance(media, list) else picture)
        self.number += 1


@dataclass
class _Overheard:
    """A reward that does as another and lets somebody listen."""

    reward: RewardModel
    by: Overhearing

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reward, name)

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """What the reward says."""
        scores = self.reward.score(prompts, media, context=context)
        self.by.hear(self.reward.name, scores, media)
        return scores


def overheard(rewards: Sequence[RewardModel], tell: Told) -> list[RewardModel]:
    """The same rewards; ``tell`` hears each time all of them have scored."""
    by = Overhearing(len(rewards), tell)
    found: list[Any] = [_Overheard(reward, by) for reward in rewards]
    return found
