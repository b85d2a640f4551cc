"""One run of TRL's GRPOTrainer on rollouts: what the recipes that train by it share."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
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
    _save_between_generations(arguments, chosen="save_steps" in given)
    if arguments.beta == 0:
        log.warning("trainer.beta is 0: nothing holds the policy near the model it starts from")
    return arguments


def _steps_of_generation(arguments: Any) -> int:
    """Steps after which what was generated is used up. TRL keeps it in memory, not in checkpoints:
    a run that goes on from a step between generates anew."""
    uses = int(arguments.steps_per_generation * arguments.num_iterations)
    return uses // math.gcd(uses, arguments.gradient_accumulation_steps)


def _save_between_generations(arguments: Any, *, chosen: bool) -> None:
    """Let checkpoints fall where a resumed run is the same run: move the default, refuse a
    ``chosen`` number that does not fit."""
    period, every = _steps_of_generation(arguments), arguments.save_steps
    if arguments.save_strategy != "steps" or period == 1 or every % period == 0:
        return
    good = max(math.ceil(every / period), 1) * period
    if chosen:
        raise T2XError(
            f"trainer.save_steps is {every:g}, and completions are used for {period} steps "
            "(steps_per_generation * num_iterations / gradient_accumulation_steps): a run that "
            f"went on from between would be another; give a multiple of {period}, as {good}"
        )
    arguments.save_steps = good


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

    A dead reward ends the run with a checkpoint of the steps before it, by TRL's
    ``_save_checkpoint``. Without ``selection`` each prompt comes once an epoch, in an order that a
    resumed run keeps.
    """
    from t2x.rollouts.checkpoints import STATE_FILE, RolloutStateCallback, load_state
    from t2x.rollouts.health import DeadReward

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
        if int(checkpoint.rpartition("-")[2]) % _steps_of_generation(arguments):
            log.warning(
                "%s was saved while completions were in use: new ones are generated, so that the "
                "run is not the one that it would have been",
                checkpoint,
            )
    try:
        if watch is None:
            trainer.train(resume_from_checkpoint=checkpoint)
        else:
            reward.listeners.append(lambda outcomes, _: watch.rollouts.add(outcomes))
            watch.cost = lambda: reward.cost
            watch.train(trainer, resume_from=checkpoint)
    except DeadReward:
        _keep_steps(trainer)
        raise
    return trainer


def _keep_steps(trainer: Any) -> None:
    """Save a checkpoint of the steps that were done before a reward died. All processes raise at
    the same call, before the weights are moved: what it measured is not learnt."""
    from t2x.rollouts.checkpoints import STATE_FILE

    arguments, state = trainer.args, trainer.state
    folder = Path(arguments.output_dir) / f"checkpoint-{state.global_step}"
    is_kept = (folder / STATE_FILE).exists()
    if not state.global_step or is_kept or arguments.save_strategy == "no":
        return
    trainer._save_checkpoint(trainer.model, trial=None)
    trainer.callback_handler.on_save(arguments, state, trainer.control)
    log.warning("the steps before it are kept in %s", folder)


def _trainer(
    parts: dict[str, Any], rows: Any, reward: RolloutReward, selection: Selection | None
) -> Any:
    """TRL's own trainer over all epochs laid out as one, or the one that chooses prompts."""
    from trl import GRPOTrainer

    from t2x.training.rows import unrolled

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
