"""Rows as a trainer of TRL takes them: a data file in the words of a policy (supervised rows, pairs
or prompts alone), and the order in which rollouts meet them.
"""

from __future__ import annotations

import math
import random
from typing import Any

from t2x.errors import T2XError
from t2x.training.config import DataConfig
from t2x.training.data import load_rows, templated
from t2x.training.policy import Policy

__all__ = ["prompt_rows", "unrolled"]


def prompt_rows(config: DataConfig, policy: Policy) -> Any:
    """Load the training rows of any recipe and put the policy's template around them: a
    ``datasets.Dataset`` with ``prompt`` (what the policy reads: syntax and quoted text stand aside,
    as in use), ``original_prompt`` (the user's own words, which scores are taken against), and
    whatever else the rows hold: ``completion`` (SFT), ``chosen`` and ``rejected`` (DPO), or nothing
    more (rollouts). See ``t2x.training.data.templated``.
    """
    return templated(load_rows(config.train, limit=config.limit, split=config.train_split), policy)


def unrolled(rows: Any, arguments: Any) -> Any:
    """Lay out all the epochs of a run as one, each in an order of its own, for
    ``shuffle_dataset=False``: TRL's sampler draws the order of an epoch from those before it, so
    that a run that was broken off and goes on would see other prompts.

    ``arguments``: a GRPOConfig, whose seed, steps or epochs and batch sizes count. T2XError where
    all the epochs together are less than one step.
    """
    prompts = arguments.generation_batch_size // arguments.num_generations
    number = math.ceil(arguments.num_train_epochs * len(rows)) // prompts * prompts
    if arguments.max_steps > 0:
        uses = arguments.steps_per_generation * arguments.num_iterations
        number = math.ceil(arguments.max_steps * arguments.gradient_accumulation_steps / uses)
        number *= prompts
    if number == 0:
        raise T2XError(
            f"a step rolls out from {prompts} prompts, and {len(rows)} rows in "
            f"{arguments.num_train_epochs:g} epochs are fewer: give at least {prompts} rows, more "
            "epochs, or a smaller batch (trainer.per_device_train_batch_size)"
        )
    order: list[int] = []
    while len(order) < number:
        epoch = random.Random(f"epoch {arguments.seed} {len(order) // len(rows)}")
        order += epoch.sample(range(len(rows)), len(rows))
    return rows.select(order[:number])
