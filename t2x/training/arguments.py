"""TRL's own training arguments out of the ``trainer`` section of a recipe's YAML."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

from t2x.config import build_config
from t2x.devices import AUTO, fast_bfloat16, warn_emulated
from t2x.errors import T2XError
from t2x.files import checkpoints
from t2x.training.config import RunConfig
from t2x.watching.reporters import check_reporters

__all__ = ["last_checkpoint", "stock_trainer", "trainer_arguments"]

log = logging.getLogger(__name__)

T = TypeVar("T")
_STATE = "trainer_state.json"
# What the run's section says, so that it is said once.
_OURS = {"output_dir": "run.out", "seed": "run.seed", "resume_from_checkpoint": "run.resume"}


def trainer_arguments(cls: type[T], run: RunConfig, given: Mapping[str, Any], **defaults: Any) -> T:
    """Build TRL's configuration class ``cls`` (``GRPOConfig``, ...): ``defaults`` of the recipe,
    then what the user has ``given``, every name and type checked.

    Raises T2XError for what belongs into the ``run`` section, and for trackers in ``report_to``
    that are unknown or not installed; ConfigError for unknown names. On a CPU gradient
    checkpointing is off, where it only costs time, and nothing is reported to trackers unless
    ``report_to`` says so. ``bf16``: "auto" is true where that is fast; it stands in for TRL's own
    default, which is true everywhere.
    """
    import torch

    if said := sorted(set(given) & set(_OURS)):
        raise T2XError(f"trainer.{said[0]} is given as {_OURS[said[0]]}; leave it out here")
    values: dict[str, Any] = {"report_to": "none", "disable_tqdm": True}
    if not torch.cuda.is_available():
        values |= {"use_cpu": True, "gradient_checkpointing": False}
    check_reporters((defaults | dict(given)).get("report_to"))
    values |= {**defaults, **given, "output_dir": str(run.out), "seed": run.seed}
    own = next((f.default for f in fields(cast("Any", cls)) if f.name == "bf16"), False)
    return build_config(cls, values | _mixed_precision({"bf16": own, **values}))


def _mixed_precision(values: Mapping[str, Any]) -> dict[str, Any]:
    """``bf16`` as the trainer takes it; None is TRL for true unless there is ``fp16``."""
    device = "cpu" if values.get("use_cpu") else None
    given = values["bf16"]
    if given == AUTO or (given is None and not values.get("fp16")):
        return {"bf16": fast_bfloat16(device)}
    if given is True:
        warn_emulated("trainer.bf16: true", "trainer.bf16: auto", device)
    return {}


def last_checkpoint(run: RunConfig, *, needs: str = _STATE) -> str | None:
    """The folder of the newest whole checkpoint to go on from; None without one or without
    ``resume``.

    ``needs``: the JSON file that is written last. A checkpoint where it or the trainer's state is
    missing or cut was broken off, and the one before it is taken, with a warning.
    """
    if not run.resume:
        return None
    for folder in reversed(checkpoints(run.out)):
        broken = [name for name in sorted({needs, _STATE}) if not _is_json(folder / name)]
        if not broken:
            return str(folder)
        log.warning("%s was broken off (%s): an older one is taken", folder, ", ".join(broken))
    return None


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return True


def stock_trainer(
    model: Any,
    rows: Any,
    collator: Any,
    *,
    run: RunConfig,
    given: Mapping[str, Any],
    **defaults: Any,
) -> Any:
    """HF's own Trainer over ``rows`` of any kind, which ``collator`` makes into whole batches.

    ``given`` and ``defaults``: as in ``trainer_arguments``, for HF's TrainingArguments.
    """
    from transformers import Trainer, TrainingArguments

    whole = {"remove_unused_columns": False, "label_names": []}
    arguments = trainer_arguments(TrainingArguments, run, given, **whole, **defaults)
    return Trainer(model=model, args=arguments, train_dataset=rows, data_collator=collator)
