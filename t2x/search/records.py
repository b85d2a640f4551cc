"""What is kept of a search while it runs: candidates, the pictures drawn of them, what was spent.

A picture is named by its text, its negative prompt and its seed. All candidates of a prompt are
drawn from the same seeds in the same order (common random numbers), so that two of them differ by
their words alone; what one seed says of a text is still one draw (selection noise), which more
``seeds`` per candidate make smaller.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from t2x.types import Rewrite

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Candidate", "Cost", "Proposal", "Refusal", "Shot", "Track"]

NO_REWRITE = "no rewrite"


@dataclass(frozen=True, eq=False)
class Shot:
    """One picture and what was measured on it.

    ``picture`` is uint8, (3, H, W) or (F, 3, H, W). ``scores`` by reward name, ``score`` all of
    them as one number, NaN where one is missing.
    """

    seed: int
    picture: Tensor
    scores: Mapping[str, float]
    score: float
    seconds: Mapping[str, float] = field(default_factory=dict)
    flops: float = math.nan

    @property
    def frame(self) -> Tensor:
        """The picture, or the middle frame of a video: (3, H, W) in [0, 1]."""
        picture = self.picture if self.picture.ndim == 3 else self.picture[len(self.picture) // 2]
        return picture.float().div(255)


@dataclass
class Cost:
    """What one prompt's search has spent. ``reward_calls`` counts pictures put before a reward, a
    critique or a list of questions, each reward on its own; ``lm_calls`` texts that a language
    model wrote for it, those included that it wrote again. ``flops`` is NaN where nobody counted.
    """

    pictures: int = 0
    reward_calls: int = 0
    lm_calls: int = 0
    seconds: dict[str, float] = field(default_factory=dict)  # writing, drawing, scoring, looking
    flops: float = math.nan

    def add_seconds(self, phase: str, seconds: float) -> None:
        """Add to one phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def add_flops(self, flops: float) -> None:
        """Add what was counted; what was not stays unknown."""
        if not math.isnan(flops):
            self.flops = flops + (0.0 if math.isnan(self.flops) else self.flops)

    def charge(self, shot: Shot) -> None:
        """Add a picture and its scores."""
        self.pictures += 1
        self.reward_calls += len(shot.scores)
        self.add_flops(shot.flops)
        for phase, seconds in shot.seconds.items():
            self.add_seconds(phase, seconds)


@dataclass(frozen=True)
class Proposal:
    """A text that a method wants to try, before anything has checked it.

    ``parts`` has what is written for each region of the prompt, in the words that the rewriter
    sees; ``operator`` says how it came about, ``parents`` are numbers of candidates.
    """

    parts: tuple[Rewrite, ...]
    operator: str
    parents: tuple[int, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A proposal that no picture was spent on: the guard gave it back, or it was tried before."""

    text: str
    operator: str
    turn: int
    reason: str


@dataclass(eq=False)
class Candidate:
    """A text that passed the checks, and its pictures by seed."""

    number: int
    parts: tuple[str, ...]
    rewrite: Rewrite
    operator: str
    parents: tuple[int, ...] = ()
    turn: int = 0
    shots: dict[int, Shot] = field(default_factory=dict)
    points: dict[str, float] = field(default_factory=dict)  # key points of its first picture
    remarks: tuple[str, ...] = ()  # critiques of its first picture

    def mean(self, seeds: Sequence[int] | None = None) -> float:
        """Mean score over ``seeds`` that were drawn (all without); NaN if none was measured."""
        wanted = self.shots if seeds is None else seeds
        found = [self.shots[s].score for s in wanted if s in self.shots]
        found = [value for value in found if not math.isnan(value)]
        return sum(found) / len(found) if found else math.nan

    def first(self) -> Shot | None:
        """The picture of the seed that every candidate is drawn from first."""
        return next(iter(self.shots.values()), None)


@dataclass
class Track:
    """The search of one prompt.

    ``sources`` is what the rewriter sees of the prompt, one text per region; ``seeds`` are picture
    seeds in the order in which they are used.
    """

    prompt: str
    sources: tuple[str, ...]
    seeds: tuple[int, ...]
    budget: int
    seed: int
    candidates: list[Candidate] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    cost: Cost = field(default_factory=Cost)
    turn: int = 0
    idle: int = 0  # rounds without a new text, one after the other
    leaders: tuple[int, ...] = ()  # candidates that were drawn from more seeds at the end
    tried: set[tuple[str, ...]] = field(default_factory=set)  # parts of proposals so far
    asked: dict[Any, int] = field(default_factory=dict)  # answers had so far, by what was asked
    written: dict[Any, int] = field(default_factory=dict)  # answers known so far, by what was asked

    @property
    def left(self) -> int:
        """Pictures that may still be drawn."""
        return self.budget - self.cost.pictures

    def random(self, name: str) -> random.Random:
        """A random stream of this prompt, round and purpose, the same alone or in any batch."""
        key = f"{self.seed}\0{self.prompt}\0{self.turn}\0{name}"
        digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
        return random.Random(int.from_bytes(digest[:8], "big"))

    def ranked(self) -> list[Candidate]:
        """Measured candidates, the best mean first; of equals the earlier one."""
        measured = [c for c in self.candidates if not math.isnan(c.mean())]
        return sorted(measured, key=lambda c: (-c.mean(), c.number))

    def winner(self) -> Candidate:
        """The candidate whose text is the result: the user's own words unless another is better.

        Where leaders were drawn from more seeds, they alone are compared, over the seeds that they
        share: a candidate that rests on one lucky seed does not pass them. The own words are beaten
        only on seeds that both were drawn from.
        """
        own = self.candidates[0]
        measured = [c for c in self.candidates if not math.isnan(c.mean())]
        pool = [c for c in measured if c.number in self.leaders] or measured
        if not pool:
            return own
        shared = [s for s in self.seeds if all(s in c.shots for c in pool)]
        best = min(pool, key=lambda c: (-_low(c.mean(shared)), c.number))
        both = [s for s in best.shots if s in own.shots]
        beaten = math.isnan(own.mean(both)) or best.mean(both) > own.mean(both)
        return best if beaten else own

    def best_shot(self) -> tuple[Candidate, Shot] | None:
        """The picture with the highest score of all, and whose it is; None if none was measured."""
        found = [(c, s) for c in self.candidates for s in c.shots.values()]
        found = [(c, s) for c, s in found if not math.isnan(s.score)]
        return max(found, key=lambda pair: pair[1].score) if found else None


def _low(value: float) -> float:
    """What is missing is below everything."""
    return -math.inf if math.isnan(value) else value
