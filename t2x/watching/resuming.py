"""Going on from a checkpoint: what is said of it, and a run that has no step left to take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from t2x.registry import loading

__all__ = ["say_where", "take_up_finished"]


def take_up_finished(trainer: Any, checkpoint: str) -> bool:
    """Whether the run of ``checkpoint`` is finished; then the trainer has its weights and state.

    ``Trainer.train`` would take one step more, and look only then whether it was the last. Of
    transformers 5 this uses ``_load_from_checkpoint``. Models that DeepSpeed or FSDP hold in pieces
    are loaded by ``train`` alone, so that they take that step.
    """
    state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
    args = trainer.args
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        return False
    if args.max_steps > 0:
        last = args.max_steps
    else:
        last = state.global_step if (state.epoch or 0) >= args.num_train_epochs else None
    if last is None or state.global_step < last:
        return False
    if trainer.is_world_process_zero():
        loading.info(
            "already at step %d of %d in %s: nothing to train (run.resume=false starts anew)",
            state.global_step, last, checkpoint,
        )  # fmt: skip
    best = state.best_model_checkpoint if args.load_best_model_at_end else None
    there = best is not None and Path(best).is_dir()
    trainer._load_from_checkpoint(best if there else checkpoint)
    state.is_world_process_zero = trainer.is_world_process_zero()
    state.is_local_process_zero = trainer.is_local_process_zero()
    trainer.state = state
    return True


def say_where(checkpoint: str, state: Any) -> None:
    """Say that a run goes on, and from where."""
    loading.info(
        "going on from %s (step %d of %d); run.resume=false starts anew",
        checkpoint, state.global_step, state.max_steps,
    )  # fmt: skip
