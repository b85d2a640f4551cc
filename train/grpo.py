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

from dataclasses import dataclass, field
from typing import Any

from t2x.rollouts.config import RolloutConfig
from t2x.selection.config import SelectionConfig
from t2x.training.checking import check_settings
from t2x.training.config import DataConfig, PolicyConfig, RewardConfig, RunConfig
from t2x.training.grpo import DEFAULTS, end_tokens, grpo_arguments, recent_means, run_grpo
from t2x.training.policy import load_policy
from t2x.training.run import begin_run, finish_run, load_data, rollout_watch
from t2x.watching.config import WatchConfig

__all__ = ["Config", "main"]


@dataclass(frozen=True)
class Config:
    """Sections of the recipe; ``trainer`` holds arguments of TRL's GRPOConfig, ``selection`` says
    which prompts come next (as it is: each once an epoch).
    """

    data: DataConfig
    reward: RewardConfig
    run: RunConfig
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


def main(config: Config) -> dict[str, float]:
    """Train and save to ``run.out``/model; give means over the last logged steps, and what was
    measured on validation prompts."""
    from trl import GRPOConfig

    from t2x.rollouts import RolloutReward, RolloutScorer

    check_settings(config, GRPOConfig, **DEFAULTS)
    begin_run(config)
    policy = load_policy(config.policy)
    arguments = grpo_arguments(config.run, policy.template, config.trainer)
    rows, _, prompts = load_data(config.data, policy)
    reward = RolloutReward(
        RolloutScorer.from_config(config.reward, config.rollout, policy.template),
        tokenizer=policy.tokenizer,
        template=policy.template,
        num_generations=arguments.num_generations,
        pictures=config.reward.pictures,
        seed=config.run.seed,
        ends=end_tokens(policy.model),
    )
    watch = rollout_watch(
        config.watch,
        config.run,
        config.reward,
        policy=policy,
        prompts=prompts,
        scorer=reward.scorer,
    )
    trainer = run_grpo(
        policy,
        rows,
        reward,
        arguments,
        config.run,
        selection=_selection(config),
        watch=watch,
    )
    found = recent_means(trainer.state.log_history)
    return finish_run(trainer, policy, watch, found | reward.cost)


def _selection(config: Config) -> Any:
    if config.selection == SelectionConfig():
        return None
    from t2x.selection.trl import Selection

    return Selection(config.selection, seed=config.run.seed)
