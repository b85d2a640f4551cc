"""Time travel: go a step down and up again, and evaluate the level anew (FreeDoM's, the
self-recurrence of Universal Guidance), as a control that stands behind any other.

    with watch_steps(pipe, [guidance, TimeTravel(repeats=2, start=0.3, stop=0.7)]):
        pipe(prompt)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.noise import time_travelled
from t2x.generators.diffusion import own_noise
from t2x.guidance.step import Call, Step
from t2x.guidance.streams import hash_seed, normal_rows

__all__ = ["TimeTravel"]


class TimeTravel:
    """Control that evaluates each level between ``start`` and ``stop`` (parts of the run)
    ``repeats`` times more, from x0_hat as the controls before it left it.

    It has the last word on where a visit goes on: give other controls that move x_t no visits of
    their own. ``seeds``: one for each row, of its noise; 0 ... N - 1 without. Differs from FreeDoM:
    the step down is DDIM's whatever the solver is, which takes its own on the last visit only.
    """

    def __init__(
        self,
        repeats: int = 1,
        *,
        start: float = 0.3,
        stop: float = 0.7,
        seeds: Sequence[int] | None = None,
        seed: int = 0,
    ) -> None:
        if repeats < 1:
            raise T2XError(f"time travel: repeats is {repeats}; give 1 or more")
        if not 0 <= start <= stop <= 1:
            raise T2XError(
                f"time travel: start {start} and stop {stop}; give 0 <= start <= stop <= 1"
            )
        self.repeats, self.first, self.last = repeats, start, stop
        self.seeds, self.seed = seeds, seed
        self._noise: list[torch.Generator] = []

    def begin(self, call: Call, scheduler: Any) -> None:
        """A new call: noise begins anew."""
        seeds = self.seeds if self.seeds is not None else range(len(call.prompts))
        self._noise = own_noise([hash_seed(self.seed, seed, "travel") for seed in seeds])

    def gradient(self, index: int, total: int) -> bool:
        """Of no need."""
        return False

    def visits(self, index: int, total: int) -> int:
        """One more for each repeat, and one at the last level."""
        first, last = math.ceil(self.first * total), math.ceil(self.last * total)
        return 1 + self.repeats * (first <= index < min(last, total - 1))

    def edit(self, step: Step) -> None:
        """Down and up on each visit but the last."""
        level = step.level
        if step.last_visit or not self.visits(step.index, step.call.steps) > 1:
            return
        levels = ((level.alpha, level.sigma), (level.next_alpha, level.next_sigma))
        noise = normal_rows(self._noise, step.sample)
        step.move(time_travelled(step.sample, step.clean, noise, levels))

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """Nothing to add."""
        return sample

    def end(self, call: Call) -> None:
        """Nothing is left to do."""
