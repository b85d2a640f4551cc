"""What can be told of a recipe's settings before a model is loaded."""

from __future__ import annotations

from typing import Any

from t2x.registry import check_names
from t2x.training.arguments import trainer_arguments
from t2x.training.data import check_rows

__all__ = ["check_settings"]


def check_settings(config: Any, trainer: type[Any], **defaults: Any) -> None:
    """Raise T2XError for trainer arguments that ``trainer``, TRL's or HF's class, does not take
    with the recipe's ``defaults``, for files of rows that are not there, and for rewards and
    generators that nothing can be loaded by: of the sections that ``config`` has.
    """
    trainer_arguments(trainer, config.run, config.trainer, **defaults)
    for source in (config.data.train, config.data.validation):
        if source is not None:
            check_rows(source)
    for section in (getattr(config, "reward", None), config.watch.held_out):
        if section is not None:
            check_names("rewards", section.rewards)
            check_names("generators", [section.generator])
