"""Prompts to train on by rollouts, as rows for TRL's GRPOTrainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from t2x.training.data import load_rows, templated

if TYPE_CHECKING:
    from t2x.training.config import DataConfig
    from t2x.training.policy import Policy

__all__ = ["prompt_rows"]


def prompt_rows(config: DataConfig, policy: Policy) -> Any:
    """Load prompts and put the policy's template around them: a ``datasets.Dataset`` with
    ``prompt`` (what the policy reads: syntax and quoted text stand aside, as in use),
    ``original_prompt`` (the user's own words, which scores are taken against), and whatever else
    the rows hold. See ``t2x.training.data.templated``.
    """
    return templated(load_rows(config.train, limit=config.limit), policy)
