"""Rollouts as TRL's one reward function: it gives advantages, and logs what they are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion, decode, line_ends
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.templates import Template
from t2x.rollouts.records import Outcome, rollout_seeds
from t2x.rollouts.scorer import RolloutScorer

__all__ = ["Listener", "RolloutReward"]

Listener: TypeAlias = "Callable[[Sequence[Outcome], Mapping[str, Any]], None]"


class RolloutReward:
    """A reward function of TRL's GRPOTrainer (``reward_funcs=[...]``, ``scale_rewards="none"``).

    It returns the advantage of each completion inside its group, or None for what is truncated or
    could not be measured. Advantages sum to 0 in a group, so that the trainer's own baseline
    changes nothing; with ``scale_rewards`` other than "none" it would divide once more and undo the
    noise floor. Not an ``nn.Module``, can be pickled, one object for a whole run.

    Args:
        scorer: what completions are worth.
        tokenizer, template: those of the policy; completions are read from their tokens, as in use.
        num_generations: members of a group, which must be in one call, one after the other.
        pictures: seeds per rewrite.
        seed: of the run; with the step of training and the prompt it decides the seeds.
        ends: tokens that end a completion, beside the tokenizer's own.

    ``outcomes`` are those of the last call, of this process; each of ``listeners`` is told them,
    and the other columns of the data set, one value per completion.
    """

    __name__ = "rollout"  # TRL logs it as rewards/rollout

    def __init__(
        self,
        scorer: RolloutScorer,
        *,
        tokenizer: Any,
        template: Template,
        num_generations: int,
        pictures: int = 1,
        seed: int = 0,
        ends: Collection[int] = (),
    ) -> None:
        if num_generations < 2:
            raise T2XError(f"num_generations is {num_generations}; a group needs at least 2")
        self.scorer = scorer
        self.tokenizer, self.template = tokenizer, template
        self.num_generations, self.pictures, self.seed = num_generations, pictures, seed
        self.outcomes: list[Outcome] = []
        self.listeners: list[Listener] = []
        own = {tokenizer.eos_token_id} - {None}
        self._ends = frozenset(own | set(ends))
        plain = PromptEncoder(tokenizer, template).is_plain and template.one_line
        self._lines = line_ends(tokenizer) if plain else frozenset()

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        completion_ids: Sequence[Sequence[int]],
        original_prompt: Sequence[str],
        trainer_state: Any = None,
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Give the advantage of each of N completions; other columns of the data set go to the
        listeners.

        Raises T2XError for groups that are not whole, and for a dead reward.
        """
        groups = self._groups(original_prompt)
        step = 0 if trainer_state is None else int(trainer_state.global_step)
        if self.scorer.config.fixed_seeds:
            step = 0
        seeds = {
            prompt: rollout_seeds(self.seed, step, prompt, self.pictures)
            for prompt in dict.fromkeys(original_prompt)
        }
        self.outcomes = self.scorer.score(
            original_prompt,
            self.completions(completion_ids, original_prompt, columns),
            seeds=[seeds[prompt] for prompt in original_prompt],
            groups=groups,
        )
        for listener in self.listeners:
            listener(self.outcomes, columns)
        if log_metric is not None:
            for name, value in self.scorer.metrics.items():
                log_metric(name, value)
        if log_extra is not None:
            for name, values in _columns(self.outcomes).items():
                log_extra(name, values)
        return [None if math.isnan(o.advantage) else o.advantage for o in self.outcomes]

    def completions(
        self,
        completion_ids: Sequence[Sequence[int]],
        original_prompt: Sequence[str],
        columns: Mapping[str, Sequence[Any]],
    ) -> list[Completion]:
        """What is scored of each completion: where policies write in turns, the finished prompt."""
        return [self.read(ids) for ids in completion_ids]

    def read(self, ids: Sequence[int]) -> Completion:
        """The text of a completion's tokens, as the rewriter in use would cut it."""
        found = decode(
            self.tokenizer, ids, ends=self._ends, lines=self._lines, prefill=self.template.prefill
        )
        stops = {*self._ends, self.tokenizer.pad_token_id}
        cut = not len(ids) or ids[-1] not in stops  # what the trainer masks
        return Completion(found.text, truncated=cut)

    @property
    def cost(self) -> dict[str, float]:
        """What ``RolloutScorer.cost`` says."""
        return self.scorer.cost

    def state_dict(self) -> dict[str, Any]:
        """Running statistics as plain values that JSON holds exactly."""
        return self.scorer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self.scorer.load_state_dict(state)

    def _groups(self, originals: Sequence[str]) -> list[int]:
        size = self.num_generations
        starts = range(0, len(originals), size)
        whole = len(originals) % size == 0 and all(
            len(set(originals[start : start + size])) == 1 for start in starts
        )
        if not whole:
            raise T2XError(
                f"the {len(originals)} completions of this call are not whole groups of {size} for "
                "one prompt each: make per_device_train_batch_size * steps_per_generation a "
                "multiple of num_generations, so that a group is on one process"
            )
        return [i // size for i in range(len(originals))]


def _columns(outcomes: Sequence[Outcome]) -> dict[str, list[Any]]:
    return {
        "original": [o.rewrite.original for o in outcomes],
        "rewrite": [o.rewrite.text for o in outcomes],
        "kind": [o.kind for o in outcomes],
        "reason": ["; ".join(c.reason for c in o.rewrite.checks if not c.passed) for o in outcomes],
        "score": [o.reward for o in outcomes],
        "gain": [o.gain for o in outcomes],
    }
