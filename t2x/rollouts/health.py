"""Stops a run whose reward measures nothing: scores that are missing, or all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.moments import ROUNDING

__all__ = ["DeadReward", "Health"]

_CALLS = 4  # rollouts whose missing scores count
_LEAST = 8  # scores before a share of them means something


class DeadReward(T2XError):
    """A reward that measures nothing."""


class Health:
    """Counts the scores of K rewards; anew once it has raised, so that a run can go on with a
    reward that was mended.

    ``max_missing``: share of the last scores; ``constant_after``: so many equal ones, 0 for never.
    """

    def __init__(self, names: Sequence[str], *, max_missing: float, constant_after: int) -> None:
        self.names = tuple(names)
        self.max_missing, self.constant_after = max_missing, constant_after
        self._recent: list[tuple[list[int], int]] = []  # missing per reward, of how many
        self._number = [0] * len(names)
        self._low = [float("inf")] * len(names)
        self._high = [float("-inf")] * len(names)

    def check(self, scores: Tensor) -> None:
        """Count (M, K) scores of pictures that were drawn; raise DeadReward."""
        missing = scores.isnan().sum(0).tolist()
        self._recent = [*self._recent[1 - _CALLS :], (missing, len(scores))]
        total = sum(n for _, n in self._recent)
        for k, name in enumerate(self.names):
            lost = sum(row[k] for row, _ in self._recent)
            if total >= _LEAST and lost > self.max_missing * total:
                self._recent = []
                raise DeadReward(
                    f"dead reward: {name} could not score {lost} of the last {total} pictures, and "
                    f"at most {self.max_missing:.0%} may be missing; see its warnings above, or "
                    "raise rollout.max_missing"
                )
            self._constant(k, scores[:, k])

    def _constant(self, k: int, column: Tensor) -> None:
        found = column[~column.isnan()]
        if len(found):
            self._number[k] += len(found)
            self._low[k] = min(self._low[k], float(found.min()))
            self._high[k] = max(self._high[k], float(found.max()))
        flat = self._high[k] - self._low[k] <= ROUNDING * max(abs(self._low[k]), abs(self._high[k]))
        if self.constant_after and self._number[k] >= self.constant_after and flat:
            low, number = self._low[k], self._number[k]
            self._number[k], self._low[k], self._high[k] = 0, float("inf"), float("-inf")
            raise DeadReward(
                f"dead reward: {self.names[k]} gave {low:g} to each of {number} pictures; "
                "mend it, leave it out, or set rollout.constant_after=0"
            )

    def state_dict(self) -> dict[str, Any]:
        """Plain values that JSON holds."""
        return {
            "recent": [[list(row), n] for row, n in self._recent],
            "number": list(self._number),
            "range": [
                None if n == 0 else [low, high]
                for n, low, high in zip(self._number, self._low, self._high, strict=True)
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self._recent = [(list(row), n) for row, n in state["recent"]]
        self._number = list(state["number"])
        for k, limits in enumerate(state["range"]):
            self._low[k], self._high[k] = limits or (float("inf"), float("-inf"))
