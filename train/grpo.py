"""GRPO on what the pictures show: rewrites of a prompt are drawn with the same seeds, scored
against the user's own words, and compared inside their group.

    t2x train grpo --config world/grpo run.out=runs/grpo
    accelerate launch -m t2x train grpo --config gpu24/grpo

Group relative policy optimisation (Shao et al. 2024, arXiv 2402.03300), as RePrompt (arXiv
2505.17540) and PromptEnhancer (arXiv 2509.04545) train rewriters with it: ``configs/train/presets``
holds their values. Generation, loss, KL and optimisation are TRL's GRPOTrainer, as it is; the
reward is ``t2x.rollouts.RolloutReward``, which gives advantages.

Differs from both papers: equal seeds inside a group, deviations held above what seeds do, failures
of the policy below the prompt left as it is, truncated completions masked, failed measurements left
out (``t2x/rollouts``).
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.rollouts.config import RolloutConfig
from t2x.training.arguments import last_checkpoint, trainer_arguments
from t2x.training.config import DataConfig, PolicyConfig, RewardConfig, RunConfig
from t2x.training.policy import Policy, load_policy, save_policy

__all__ = ["Config", "main"]

log = logging.getLogger(__name__)

# What TRL leaves otherwise: without KL a policy forgets its language, and its own scaling would
# undo the noise floor.
DEFAULTS: dict[str, Any] = {
    "beta": 0.04,
    "scale_rewards": "none",
    "shuffle_dataset": False,
    "mask_truncated_completions": True,
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 50,
    "save_total_limit": 2,
}
_RECENT = 10  # logged steps that final metrics are means of


@dataclass(frozen=True)
class Config:
    """Sections of the recipe; ``trainer`` holds arguments of TRL's GRPOConfig."""

    data: DataConfig
    reward: RewardConfig
    run: RunConfig
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


def main(config: Config) -> dict[str, float]:
    """Train and save to ``run.out``/model; give means over the last logged steps."""
    from trl import GRPOConfig, GRPOTrainer

    from t2x.rollouts import RolloutReward, RolloutScorer, RolloutStateCallback
    from t2x.rollouts.checkpoints import STATE_FILE, load_state
    from t2x.rollouts.rows import prompt_rows, unrolled
    from t2x.world.training import set_threads

    set_threads(config.run.threads)
    begun = time.perf_counter()
    policy = load_policy(config.policy)
    template = policy.template
    arguments = trainer_arguments(
        GRPOConfig,
        config.run,
        config.trainer,
        **DEFAULTS,
        max_completion_length=template.max_new_tokens,
        chat_template_kwargs={"enable_thinking": template.thinking},
    )
    _check(arguments)
    reward = RolloutReward(
        RolloutScorer.from_config(config.reward, config.rollout, template),
        tokenizer=policy.tokenizer,
        template=template,
        num_generations=arguments.num_generations,
        pictures=config.reward.pictures,
        seed=config.run.seed,
        ends=_ends(policy.model),
    )
    rows = unrolled(prompt_rows(config.data, policy), arguments)
    arguments.num_train_epochs = 1.0  # all of them are laid out in the rows
    trainer = GRPOTrainer(
        model=policy.model,
        reward_funcs=[reward],
        args=arguments,
        train_dataset=rows,
        processing_class=policy.tokenizer,
        callbacks=[RolloutStateCallback(reward)],
    )
    checkpoint = last_checkpoint(config.run, needs=STATE_FILE)
    if checkpoint is not None:
        load_state(reward, checkpoint)
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.accelerator.is_main_process:
        trained = trainer.accelerator.unwrap_model(trainer.model)
        save_policy(Policy(trained, policy.tokenizer, template), Path(config.run.out) / "model")
    return _metrics(trainer.state.log_history) | {
        "steps": float(trainer.state.global_step),
        "seconds": time.perf_counter() - begun,
    }


def _check(arguments: Any) -> None:
    """Refuse arguments that would undo what rollouts do."""
    for name, value in (("scale_rewards", "none"), ("mask_truncated_completions", True)):
        if getattr(arguments, name) != value:
            raise T2XError(
                f"trainer.{name} is {getattr(arguments, name)!r}; rollouts give advantages "
                f"themselves and need {value!r}: leave it out"
            )
    if arguments.beta == 0:
        log.warning("trainer.beta is 0: nothing holds the policy near the model it starts from")


def _ends(model: Any) -> tuple[int, ...]:
    """Tokens that end a completion by the model's own settings."""
    found = model.generation_config.eos_token_id
    return tuple(found) if isinstance(found, list) else () if found is None else (int(found),)


def _metrics(history: list[dict[str, Any]]) -> dict[str, float]:
    """Means over the last logged steps of what every step logs."""
    steps = [row for row in history if "loss" in row][-_RECENT:]
    names = [
        name
        for name, value in (steps[-1] if steps else {}).items()
        if isinstance(value, (int, float)) and name not in ("step", "epoch")
    ]
    found = {name: [row[name] for row in steps if row.get(name) is not None] for name in names}
    return {name: math.fsum(values) / len(values) for name, values in found.items() if values}
