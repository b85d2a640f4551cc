"""REBEL: the policy writes two rewrites of a prompt, both are drawn and scored against the user's
own words, and the difference of their rewards is what the log ratios are regressed on; round by
round.

    t2x train rebel --config world/rebel

Reinforcement learning by regressing relative rewards (Gao et al. 2024, arXiv 2404.16767), with the
rollouts of GRPO (``t2x/rollouts``): equal seeds for both pictures, the policy's failures below the
prompt left as it is, failed measurements left out.

Differs from the paper: one optimiser and one schedule go through all rounds, and a round is one
pass over its pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from t2x.errors import T2XError
from t2x.rollouts.config import RolloutConfig
from t2x.training.arguments import last_checkpoint, trainer_arguments
from t2x.training.checking import check_settings
from t2x.training.config import DataConfig, PolicyConfig, RewardConfig, RunConfig
from t2x.training.limits import refuse_unused
from t2x.training.policy import load_policy
from t2x.training.round_section import RoundSection
from t2x.training.run import begin_run, finish_run, load_data, rollout_watch
from t2x.watching.config import WatchConfig

DEFAULTS: dict[str, Any] = {
    "lr_scheduler_type": "constant_with_warmup",
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 50,
    "save_total_limit": 2,
}


@dataclass(frozen=True)
class Config:
    """Settings of the recipe: rows have ``original_prompt``; ``trainer`` holds arguments of
    ``trl.DPOConfig``.
    """

    data: DataConfig
    reward: RewardConfig
    run: RunConfig
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    rebel: RoundSection = field(default_factory=RoundSection)
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


def main(config: Config) -> dict[str, float]:
    """Train, and save to ``run.out``; give the last values of what was logged."""
    from trl import DPOConfig

    from t2x.rollouts import RolloutScorer, RolloutStateCallback
    from t2x.rollouts.checkpoints import STATE_FILE, load_state
    from t2x.training.round_writer import RoundWriter
    from t2x.training.rounds import RebelTrainer

    _check(config)
    rounds = {"num_train_epochs": config.rebel.rounds, "beta": 1 / config.rebel.eta}
    check_settings(config, DPOConfig, **DEFAULTS, **rounds)
    begin_run(config)
    policy = load_policy(config.policy)
    rows, _, prompts = load_data(config.data, policy)
    scorer = RolloutScorer.from_config(config.reward, config.rollout, policy.template)
    watch = rollout_watch(
        config.watch, config.run, config.reward, policy=policy, prompts=prompts, scorer=scorer
    )
    trainer = RebelTrainer(
        policy.model,
        trainer_arguments(DPOConfig, config.run, config.trainer, **DEFAULTS, **rounds),
        policy.tokenizer,
        RoundWriter(
            policy,
            scorer,
            rows["original_prompt"],
            config.rebel,
            pictures=config.reward.pictures,
            seed=config.run.seed,
            tell=watch.rollouts.add,
        ),
        size=config.rebel.prompts,
        callbacks=[RolloutStateCallback(scorer)],
    )
    checkpoint = last_checkpoint(config.run, needs=STATE_FILE)
    if checkpoint is not None:
        load_state(scorer, checkpoint)
    watch.cost = lambda: scorer.cost
    watch.train(trainer, resume_from=checkpoint)
    return finish_run(trainer, policy, watch, {"prompts": len(rows), **scorer.cost})


def _check(config: Config) -> None:
    """Refuse what would say something twice or does nothing, and rewards that don't compare between
    rollouts."""
    said = {"beta": "rebel.eta (1 / beta)", "num_train_epochs": "rebel.rounds"}
    for name, where in said.items():
        if name in config.trainer:
            raise T2XError(f"trainer.{name} is given as {where}; leave it out here")
    if config.reward.combine not in ("sum", "standardised"):
        raise T2XError(
            f"reward.combine is {config.reward.combine!r}, which compares rewards inside one "
            "rollout only; REBEL needs sum or standardised"
        )
    # Of advantages, which REBEL has none of.
    refuse_unused("rebel", "rollout", config.rollout, "floor", "sets", "temperature")
