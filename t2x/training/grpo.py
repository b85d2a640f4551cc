"""One run of TRL's GRPOTrainer on rollouts: what the recipes that train by it share."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.training.arguments import last_checkpoint, trainer_arguments
from t2x.training.config import RunConfig
from t2x.watching.names import renamed

if TYPE_CHECKING:
    from t2x.rewriters.templates import Template
    from t2x.rollouts.reward import RolloutReward
    from t2x.selection.trl import Selection
    from t2x.training.policy import Policy
    from t2x.watching.watch import Watch

__all__ = ["DEFAULTS", "end_tokens", "grpo_arguments", "recent_means", "run_grpo"]

log = logging.getLogger(__name__)

# What TRL leaves otherwise: without KL a policy forgets its language, and its own scaling would
# undo the noise floor.
DEFAULTS: dict[str, Any] = {
    "beta": 0.04,
    "scale_rewards": "none",
    "mask_truncated_completions": True,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 50,
    "save_total_limit": 2,
}
_RECENT = 10  # logged steps that final metrics are means of


def grpo_arguments(run: RunConfig, template: Template, given: Mapping[str, Any]) -> Any:
    """TRL's GRPOConfig for a policy's template; T2XError for what would undo what rollouts do."""
    from trl import GRPOConfig

    arguments = trainer_arguments(
        GRPOConfig,
        run,
        given,
        **DEFAULTS,
        max_completion_length=template.max_new_tokens,
        chat_template_kwargs={"enable_thinking": template.thinking},
    )
    for name, value in (("scale_rewards", "none"), ("mask_truncated_completions", True)):
        if getattr(arguments, name) != value:
            raise T2XError(
                f"trainer.{name} is {getattr(arguments, name)!r}; rollouts give advantages "
                f"themselves and need {value!r}: leave it out"
            )
    if arguments.beta == 0:
        log.warning("trainer.beta is 0: nothing holds the policy near the model it starts from")
    return arguments


def end_tokens(model: Any) -> tuple[int, ...]:
    """Tokens that end a completion by the model's own settings."""
    found = model.generation_config.eos_token_id
    return tuple(found) if isinstance(found, list) else () if found is None else (int(found),)


def run_grpo(
    policy: Policy,
    rows: Any,
    reward: RolloutReward,
    arguments: Any,
    run: RunConfig,
    *,
    callbacks: Sequence[Any] = (),
    selection: Selection | None = None,
    watch: Watch | None = None,
) -> Any:
    """Train the policy's model in place, from the last checkpoint in ``run.out`` if there is one,
    and give the trainer.

    Without ``selection`` each prompt comes once an epoch, in an order that a resumed run keeps.
    """
    from t2x.rollouts.checkpoints import STATE_FILE, RolloutStateCallback, load_state

    parts = {
        "model": policy.model,
        "reward_funcs": [reward],
        "args": arguments,
        "processing_class": policy.tokenizer,
        "callbacks": [RolloutStateCallback(reward), *callbacks],
    }
    trainer = _trainer(parts, rows, reward, selection)
    checkpoint = last_checkpoint(run, needs=STATE_FILE)
    if checkpoint is not None:
        load_state(reward, checkpoint)
    if watch is None:
        trainer.train(resume_from_checkpoint=checkpoint)
    else:
        reward.listeners.append(lambda outcomes, _: watch.rollouts.add(outcomes))
        watch.cost = lambda: reward.cost
        watch.train(trainer, resume_from=checkpoint)
    return trainer


def _trainer(
    parts: dict[str, Any], rows: Any, reward: RolloutReward, selection: Selection | None
) -> Any:
    """TRL's own trainer over all epochs laid out as one, or the one that chooses prompts."""
    from trl import GRPOTrainer

    from t2x.rollouts.rows import unrolled

    if selection is None:
        arguments = parts["args"]
        if arguments.shuffle_dataset:
            rows = unrolled(rows, arguments)
            arguments.shuffle_dataset, arguments.num_train_epochs = False, 1.0
        return GRPOTrainer(train_dataset=rows, **parts)
    from t2x.selection.trl import SelectiveGRPOTrainer

    selection.listen_to(reward)
    return SelectiveGRPOTrainer(train_dataset=rows, selection=selection, **parts)


def recent_means(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Means over the last logged steps of what every step logs, by the names of ``log.jsonl``:
    ``reward`` is that of the pictures, where TRL has the mean of advantages."""
    known = [{k: v for k, v in row.items() if v is not None} for row in history if "loss" in row]
    steps = [renamed(row) for row in known[-_RECENT:]]
    names = (steps[-1] if steps else {}).keys() - {"step", "epoch"}
    found = {name: [row[name] for row in steps if name in row] for name in sorted(names)}
    return {name: math.fsum(values) / len(values) for name, values in found.items()}
