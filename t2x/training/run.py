"""What every recipe does before and after its trainer: seeds and folder, and the trained policy with
its metrics in the run's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from t2x.files import made_folder
from t2x.rollouts.rows import prompt_rows
from t2x.training.config import DataConfig, RunConfig
from t2x.training.policy import Policy, save_policy, save_template
from t2x.world.training import set_threads, write_metrics

__all__ = ["begin_run", "evaluated", "finish_run", "load_data", "run_trainer"]


def begin_run(run: RunConfig) -> None:
    """Make the run's folder, and fix threads and seeds before a weight is made.

    Raises T2XError for a folder that can't be written into.
    """
    from datasets import disable_progress_bars
    from transformers import set_seed

    made_folder(run.out)
    set_threads(run.threads)
    set_seed(run.seed)
    disable_progress_bars()


def load_data(config: DataConfig, policy: Policy) -> tuple[Any, Any]:
    """The rows to train on and those to watch (None without), as the policy reads them in use."""
    train = prompt_rows(config, policy)
    if config.validation is None:
        return train, None
    return train, prompt_rows(DataConfig(config.validation), policy)


def evaluated(rows: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Trainer defaults that evaluate on ``rows``, a tenth of the run apart; nothing without rows or
    where the user says when."""
    if rows is None or "eval_strategy" in given:
        return {}
    return {"eval_strategy": "steps", "eval_steps": 0.1}


def run_trainer(trainer: Any, checkpoint: str | None) -> None:
    """Train, from a checkpoint if there is one; the trainer prints nothing."""
    from transformers import PrinterCallback, ProgressCallback

    for callback in (PrinterCallback, ProgressCallback):
        trainer.remove_callback(callback)
    trainer.train(resume_from_checkpoint=checkpoint)


def finish_run(trainer: Any, policy: Policy, found: dict[str, float]) -> dict[str, float]:
    """Save ``model`` (adapters merged in) and, with adapters, ``adapter``; evaluate once more if
    there is data for it; write ``metrics.json`` and give the metrics.

    ``found`` is what the recipe measured itself. A model that DeepSpeed or FSDP holds in pieces is
    saved by the trainer as it is, adapters apart; that has not been run.
    """
    out = Path(trainer.args.output_dir)
    if trainer.eval_dataset is not None:
        trainer.evaluate()
    in_pieces = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if in_pieces:
        trainer.save_model(str(out / "model"))
    if not trainer.is_world_process_zero():
        return {}
    if in_pieces:
        save_template(policy, out / "model")
    else:
        save_policy(policy, out / "model")
        if hasattr(policy.model, "peft_config"):
            policy.model.save_pretrained(out / "adapter", selected_adapters=["default"])
    metrics = {**found, "steps": float(trainer.state.global_step), **_last(trainer)}
    return write_metrics(out, metrics)


def _last(trainer: Any) -> dict[str, float]:
    """The last value of each number that the trainer logged."""
    left_out = ("total_flos", "step", "epoch")
    return {
        key: float(value)
        for line in trainer.state.log_history
        for key, value in line.items()
        if isinstance(value, int | float) and key not in left_out
    }
