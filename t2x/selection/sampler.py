"""The sampler of all methods: which prompts each draw holds, and at which temperature."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from t2x.errors import T2XError
from t2x.functional.selection import lifted_temperature
from t2x.selection.config import SelectionConfig
from t2x.selection.methods import Probe, make_method
from t2x.selection.results import GroupResult, evidence

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["PromptSampler"]

_LEADS = 512  # rewrites whose median lead is looked at


class PromptSampler:
    """Chooses ``size`` of ``prompts`` prompts, draw after draw, from what it is told of each step.

    Candidates come from a stream of random passes over all prompts, so that everything is a
    candidate once a pass; the method takes its choice of each pool. The same seed, results and
    version give the same draws. A draw that was made stays as it is until its epoch ends, so that
    it can be asked for again, as a resumed run does; an epoch is as many draws as cover all
    prompts once, whatever they hold.

    ``features``: (N, D), what pcl predicts from. ``probe``: prompt entropies for hive; it is not
    part of a pickle.

    Raises T2XError for fewer prompts than a draw holds.
    """

    def __init__(
        self,
        config: SelectionConfig,
        *,
        prompts: int,
        size: int,
        seed: int = 0,
        features: Tensor | None = None,
        probe: Probe | None = None,
    ) -> None:
        if not 1 <= size <= prompts:
            raise T2XError(
                f"a draw of {size} prompts out of {prompts}; give at least as many prompts as one "
                "step has groups"
            )
        self.config, self.prompts, self.size, self.seed = config, prompts, size, seed
        self.method = make_method(config, prompts, features, probe)
        self.first = 0  # draw that the current epoch begins with
        self.drawn: list[list[int]] = []  # the draws of this epoch so far
        self.last = torch.full((prompts,), -1)  # draw that each prompt was last in
        self.pending: set[int] = set()  # drawn, and nothing heard of since
        self.streak = torch.zeros(prompts, dtype=torch.long)  # ERPO's history
        self.leads: list[float] = []  # of the last rewrites over the no-rewrite arm
        self._share = config.option("fair_share") * size
        self._pool = config.candidates(size, prompts)
        self._order: tuple[int, list[int]] = (-1, [])

    @property
    def draws_per_epoch(self) -> int:
        """How many draws an epoch has; prompts that do not fill a draw are left for the next."""
        return self.prompts // self.size

    def epoch(self) -> Iterator[list[int]]:
        """The draws of the current epoch, each made when it is asked for; the next epoch begins
        when the last was taken."""
        for number in range(self.draws_per_epoch):
            yield self.draw(self.first + number)
        self.first += self.draws_per_epoch
        self.drawn.clear()

    def draw(self, number: int) -> list[int]:
        """Prompts of one draw of the current epoch, by its number since the start of training.

        Raises T2XError for a draw whose turn has not come or is over.
        """
        place = number - self.first
        if 0 <= place < len(self.drawn):
            return self.drawn[place]
        if place != len(self.drawn):
            raise T2XError(
                f"draw {number} was asked for, and the next is {self.first + len(self.drawn)}"
            )
        chosen = self._choose(number)
        self.last[torch.tensor(chosen)] = number
        self.pending |= set(chosen)
        self.drawn.append(chosen)
        return chosen

    def observe(self, results: Sequence[GroupResult]) -> None:
        """Learn from the groups of a step; their order does not matter, but for repeats of one
        prompt.

        Raises T2XError for a prompt that is not there.
        """
        for result in results:
            if not 0 <= result.prompt < self.prompts:
                raise T2XError(f"a result of prompt {result.prompt}, out of {self.prompts} prompts")
        left = sorted(results, key=lambda result: result.prompt)
        margin = self._margin(left)
        while left:  # repeats of one prompt come one after the other
            once = list({result.prompt: result for result in reversed(left)}.values())[::-1]
            left = [result for result in left if not any(result is other for other in once)]
            found = evidence(once, margin)
            self.method.observe(found)
            rows = found.prompts
            self.streak[rows] = torch.where(found.spent, self.streak[rows] + 1, 0)
            self.pending -= set(rows.tolist())

    def temperatures(self, prompts: Sequence[int], base: float) -> list[float]:
        """Sampling temperatures of prompts: ``base``, or more under erpo for spent ones."""
        if self.config.method != "erpo":
            return [base] * len(prompts)
        lifted = lifted_temperature(
            self.streak[torch.tensor(prompts)].double(),
            base=base,
            step=self.config.option("temperature_step"),
            ceiling=self.config.option("temperature_ceiling"),
        )
        return lifted.tolist()

    def state_dict(self) -> dict[str, Any]:
        """Everything that a resumed run needs, as plain lists and numbers (JSON holds them)."""
        return {
            "method": self.config.method,
            "first": self.first,
            "drawn": [list(draw) for draw in self.drawn],
            "last": self.last.tolist(),
            "pending": sorted(self.pending),
            "streak": self.streak.tolist(),
            "leads": list(self.leads),
            "learnt": self.method.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave.

        Raises T2XError for the state of another method, or for another number of prompts.
        """
        if state["method"] != self.config.method or len(state["last"]) != self.prompts:
            raise T2XError(
                f"the selection was saved by {state['method']} with {len(state['last'])} prompts; "
                f"this one is {self.config.method} with {self.prompts}: resume with the settings "
                "and data of the run that saved it, or start a new run"
            )
        self.method.load_state_dict(state["learnt"])
        self.first = state["first"]
        self.drawn = [list(draw) for draw in state["drawn"]]
        self.pending, self.leads = set(state["pending"]), list(state["leads"])
        self.last, self.streak = torch.tensor(state["last"]), torch.tensor(state["streak"])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if getattr(self.method, "probe", None) is not None:  # bound to a model that is elsewhere
            state["method"] = make_method(self.config, self.prompts, None, None)
            state["method"].load_state_dict(self.method.state_dict())
        return state

    def _margin(self, results: Sequence[GroupResult]) -> float:
        """By how much a rewrite must lead to be a success, with what these results say."""
        if self.config.margin != "median":
            return self.config.margin
        leads = (reward - result.baseline for result in results for reward in result.rewards)
        self.leads = [*self.leads, *(lead for lead in leads if not math.isnan(lead))][-_LEADS:]
        return median(self.leads) if self.leads else 0.0

    def _choose(self, number: int) -> list[int]:
        """Those that have waited longest first, then the method's choice of the pool. What is
        pending is left out while others are there: a method that has learnt nothing in between
        would choose the same again."""
        import numpy as np

        draws = np.random.default_rng([self.seed, 1, number])
        waiting = self._waiting(number)
        taken, wanted = set(waiting), self.size - len(waiting)
        pool = [prompt for prompt in self._candidates(number) if prompt not in taken]
        fresh = [prompt for prompt in pool if prompt not in self.pending]
        if len(fresh) < wanted:
            fresh += [prompt for prompt in pool if prompt in self.pending][: wanted - len(fresh)]
        return [*waiting, *self.method.choose(fresh, wanted, draws)]

    def _waiting(self, number: int) -> list[int]:
        """The fair share of a draw: prompts that were drawn longest ago, or never."""
        if self._share == 0:
            return []
        order = torch.tensor(self._pass(number))
        longest = self.last[order].sort(stable=True).indices[: max(round(self._share), 1)]
        return order[longest].tolist()

    def _candidates(self, number: int) -> list[int]:
        """The pool of a draw, in random order; with a fair share some more, so that taking those
        out leaves enough."""
        start = number % (self.prompts // self._pool) * self._pool
        order = self._pass(number)
        wanted = self._pool + (self.size if self._share else 0)
        return [*order[start:], *order[:start]][:wanted]

    def _pass(self, number: int) -> list[int]:
        """The random order of the pass that a draw belongs to."""
        import numpy as np

        which = number // (self.prompts // self._pool)
        if self._order[0] != which:
            order = np.random.default_rng([self.seed, 0, which]).permutation(self.prompts)
            self._order = (which, order.tolist())
        return self._order[1]
