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

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2x.rollouts.config import RolloutConfig
from t2x.selection.config import SelectionConfig
from t2x.training.config import DataConfig, PolicyConfig, RewardConfig, RunConfig
from t2x.training.grpo import end_tokens, grpo_arguments, recent_means, run_grpo
from t2x.training.policy import Policy, load_policy, save_policy

__all__ = ["Config", "main"]


@dataclass(frozen=True)
class Config:
    """Sections of the recipe; ``trainer`` holds arguments of TRL's GRPOConfig."""

    data: DataConfig
    reward: RewardConfig
    run: RunConfig
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


def main(config: Config) -> dict[str, float]:
    """Train and save to ``run.out``/model; give means over the last logged steps."""
    from t2x.rollouts import RolloutReward, RolloutScorer
    from t2x.rollouts.rows import prompt_rows
    from t2x.world.training import set_threads

    set_threads(config.run.threads)
    begun = time.perf_counter()
    policy = load_policy(config.policy)
    template = policy.template
    arguments = grpo_arguments(config.run, template, config.trainer)
    reward = RolloutReward(
        RolloutScorer.from_config(config.reward, config.rollout, template),
        tokenizer=policy.tokenizer,
        template=template,
        num_generations=arguments.num_generations,
        pictures=config.reward.pictures,
        seed=config.run.seed,
        ends=end_tokens(policy.model),
    )
    rows = prompt_rows(config.data, policy)
    trainer = run_grpo(policy, rows, reward, arguments, config.run, selection=config.selection)
    if trainer.accelerator.is_main_process:
        trained = trainer.accelerator.unwrap_model(trainer.model)
        save_policy(Policy(trained, policy.tokenizer, template), Path(config.run.out) / "model")
    return recent_means(trainer.state.log_history) | {
        "steps": float(trainer.state.global_step),
        "pictures": float(reward.scorer.pictures),
        "seconds": time.perf_counter() - begun,
    }
