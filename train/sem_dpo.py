"""Sem-DPO: direct preference optimisation that trusts a pair less the farther its winner is from
the user's own prompt in meaning.

    t2x train sem_dpo --config world/sem_dpo

Sem-DPO (arXiv 2507.20133): DPO's loss of a pair times exp(-alpha * cosine distance), computed once
before training. At alpha = 0 it is TRL's DPO. Beside the weights stand checks of what embeddings
don't see (``t2x.training.semantics``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from t2x.training.arguments import last_checkpoint, trainer_arguments
from t2x.training.checking import check_settings
from t2x.training.config import DataConfig, PolicyConfig, RunConfig
from t2x.training.policy import load_policy
from t2x.training.run import begin_run, evaluated, finish_run, load_data
from t2x.training.semantics import SemanticSection, weigh_pairs
from t2x.watching.building import build_watch
from t2x.watching.config import WatchConfig


@dataclass(frozen=True)
class Config:
    """Settings of the recipe: as those of ``train/dpo.py``, and how pairs are weighed."""

    data: DataConfig
    run: RunConfig
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    semantic: SemanticSection = field(default_factory=SemanticSection)
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


def main(config: Config) -> dict[str, float]:
    """Train, and save to ``run.out``; give the last values of what was logged, the mean ``weight``
    and how many pairs were left out.
    """
    from trl import DPOConfig

    from t2x.training.pair_trainers import WeightedDPOTrainer

    check_settings(config, DPOConfig, **evaluated(config.data.validation, config.trainer))
    begin_run(config)
    policy = load_policy(config.policy)
    train, held, prompts = load_data(config.data, policy, "chosen", "rejected")
    train, found = weigh_pairs(train, policy.template, config.semantic)
    if held is not None:
        held, _ = weigh_pairs(held, policy.template, config.semantic)
    watch = build_watch(config.watch, config.run.out, policy, validation=prompts)
    defaults = {"precompute_ref_log_probs": True, **evaluated(held, config.trainer)}
    trainer = WeightedDPOTrainer(
        model=policy.model,
        args=trainer_arguments(DPOConfig, config.run, config.trainer, **defaults),
        train_dataset=train,
        eval_dataset=held,
        processing_class=policy.tokenizer,
    )
    watch.train(trainer, resume_from=last_checkpoint(config.run))
    return finish_run(trainer, policy, watch, found)
