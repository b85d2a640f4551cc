"""Prompt selection for reinforcement learning: skip what is always right or always wrong.

    from t2x.selection import GroupResult, PromptSampler, SelectionConfig

    sampler = PromptSampler(SelectionConfig("mopps"), prompts=2000, size=8, seed=0)
    for draw in sampler.epoch():                    # 8 prompt numbers
        ...
        sampler.observe([GroupResult(prompt=3, rewards=(0.2, 0.7), baseline=0.5), ...])

``config`` names the methods and their papers, ``methods`` holds one class each, ``sampler`` makes
the draws, ``trl`` puts them into TRL's GRPO trainer, ``simulate`` is a world of prompts with known
difficulty, without any model. The equations are in ``t2x.functional.selection``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.selection.config import METHODS, SelectionConfig
    from t2x.selection.results import GroupResult
    from t2x.selection.sampler import PromptSampler

__all__ = ["METHODS", "GroupResult", "PromptSampler", "SelectionConfig"]

_HOMES = {
    "METHODS": "config",
    "GroupResult": "results",
    "PromptSampler": "sampler",
    "SelectionConfig": "config",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"t2x.selection.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
