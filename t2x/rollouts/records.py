"""What became of one completion."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from t2x.types import Rewrite

__all__ = ["FAILURES", "Kind", "Outcome", "rollout_seeds"]

Kind = Literal["rewrite", "broken", "failed", "truncated"]
FAILURES = ("broken", "failed")  # of the policy, which get a fixed score


@dataclass(frozen=True)
class Outcome:
    """One completion, read, drawn and scored.

    ``kind`` says whether it is a *rewrite* (something to draw, the user's own words included),
    *broken* (a check fails), *failed* (no usable answer), or *truncated* (cut off for lack of room:
    the trainer masks it). ``rewrite`` is what use would make of it, with its checks; what was
    reverted there is never scored here.

    ``scores`` by reward, one per seed, against the user's own prompt; empty unless it was drawn.
    ``original_scores``: the prompt left as it is, on the same seeds. ``reward`` is aggregated over
    seeds and rewards, comparable with ``original_reward`` and between groups; for a policy's
    failure it is the fixed score below both, NaN for what was truncated or could not be measured.
    ``advantage``: beside the other members of its ``group``; NaN where ``reward`` is.
    """

    rewrite: Rewrite
    kind: Kind
    group: int
    seeds: tuple[int, ...] = ()
    scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    original_scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    reward: float = math.nan
    original_reward: float = math.nan
    advantage: float = math.nan

    @property
    def gain(self) -> float:
        """By how much it is better than the prompt left as it is."""
        return self.reward - self.original_reward

    @property
    def missing(self) -> bool:
        """Whether it was drawn and a score is missing."""
        return self.kind == "rewrite" and math.isnan(self.reward)


def rollout_seeds(seed: int, step: int, prompt: str, number: int) -> tuple[int, ...]:
    """Seeds of the pictures of one prompt at one step of training, the same for every rewrite of
    it and for a run that was broken off and goes on: ``number`` integers of 63 bits.
    """
    names = (f"rollout {seed} {step} {i}\0{prompt}" for i in range(number))
    digests = (hashlib.sha256(n.encode("utf-8", "surrogatepass")).digest() for n in names)
    return tuple(int.from_bytes(digest[:8], "big") >> 1 for digest in digests)
