"""Direct preference optimisation of a rewriter on pairs of rewrites, by TRL's DPOTrainer as it is.

    t2x train dpo --config world/dpo

DPO (Rafailov et al. 2023, arXiv 2305.18290) on pairs whose winner gave the better pictures
(Prompt-A-Video, arXiv 2412.15156; VPO, arXiv 2503.20491). ``train/sem_dpo.py`` weighs the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from t2x.training.arguments import last_checkpoint, trainer_arguments
from t2x.training.checking import check_settings
from t2x.training.config import DataConfig, PolicyConfig, RunConfig
from t2x.training.policy import load_policy
from t2x.training.run import begin_run, evaluated, finish_run, load_data
from t2x.watching.building import build_watch
from t2x.watching.config import WatchConfig


@dataclass(frozen=True)
class Config:
    """Settings of the recipe: rows have ``original_prompt``, ``chosen`` and ``rejected``;
    ``trainer`` holds arguments of ``trl.DPOConfig``.

    The reference's log-probabilities are computed once, before training, so that no second model
    is held: ``trainer.precompute_ref_log_probs=false`` computes them at every step.
    """

    data: DataConfig
    run: RunConfig
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


def main(config: Config) -> dict[str, float]:
    """Train, and save to ``run.out``; give the last values of what was logged."""
    from trl import DPOConfig, DPOTrainer

    check_settings(config, DPOConfig, **evaluated(config.data.validation, config.trainer))
    begin_run(config)
    policy = load_policy(config.policy)
    train, held, prompts = load_data(config.data, policy, "chosen", "rejected")
    watch = build_watch(config.watch, config.run.out, policy, validation=prompts)
    defaults = {"precompute_ref_log_probs": True, **evaluated(held, config.trainer)}
    trainer = DPOTrainer(
        model=policy.model,
        args=trainer_arguments(DPOConfig, config.run, config.trainer, **defaults),
        train_dataset=train,
        eval_dataset=held,
        processing_class=policy.tokenizer,
    )
    watch.train(trainer, resume_from=last_checkpoint(config.run))
    return finish_run(trainer, policy, watch, {"pairs": len(train)})
