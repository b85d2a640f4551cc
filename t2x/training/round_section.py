"""The section ``rebel`` of a recipe."""

from __future__ import annotations

import math
from dataclasses import dataclass

from t2x.errors import T2XError

__all__ = ["RoundSection"]


@dataclass(frozen=True)
class RoundSection:
    """Rounds of on-policy pairs.

    Args:
        rounds: how many.
        prompts: of one round, and so its pairs.
        eta: size of a round's step: at its solution the log ratio of two completions is eta times
            the difference of their rewards.
        temperature: of sampling; the regression takes the samples for the policy's own, which they
            are at 1.
        batch_size: completions that are written at a time.
    """

    rounds: int = 20
    prompts: int = 64
    eta: float = 1.0
    temperature: float = 1.0
    batch_size: int = 64

    def __post_init__(self) -> None:
        for name in ("rounds", "prompts", "eta", "temperature", "batch_size"):
            if not 0 < getattr(self, name) < math.inf:
                raise T2XError(f"rebel.{name} is {getattr(self, name)}; it must be positive")
