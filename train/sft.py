"""Supervised fine-tuning of a rewriter on a teacher's answers, by TRL's SFTTrainer as it is.

    t2x train sft --config world/sft

First stage of RePrompt (arXiv 2505.17540) and PromptEnhancer (arXiv 2509.04545): user prompt ->
reasoning and rewrite, loss on the completion alone. ``train/emoji_rewriter.py`` makes the embedded
weights of the base install; this is the recipe for any model.
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
    """Settings of the recipe: rows have ``original_prompt`` and ``completion``; ``trainer`` holds
    arguments of ``trl.SFTConfig``.
    """

    data: DataConfig
    run: RunConfig
    policy: PolicyConfig = field(default_factory=PolicyConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    trainer: dict[str, Any] = field(default_factory=dict)


def main(config: Config) -> dict[str, float]:
    """Train, and save to ``run.out``; give the last losses."""
    from trl import SFTConfig, SFTTrainer

    check_settings(config, SFTConfig, **evaluated(config.data.validation, config.trainer))
    begin_run(config)
    policy = load_policy(config.policy)
    train, held, prompts = load_data(config.data, policy, "completion")
    watch = build_watch(config.watch, config.run.out, policy, validation=prompts)
    watched = evaluated(held, config.trainer)
    trainer = SFTTrainer(
        model=policy.model,
        args=trainer_arguments(SFTConfig, config.run, config.trainer, **watched),
        train_dataset=train,
        eval_dataset=held,
        processing_class=policy.tokenizer,
    )
    watch.train(trainer, resume_from=last_checkpoint(config.run))
    return finish_run(trainer, policy, watch, {"rows": len(train)})
