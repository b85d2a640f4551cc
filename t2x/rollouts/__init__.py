"""From what a policy wrote to what its pictures are worth: read, check, draw once, score against
the user's own prompt, and compare inside the group.

    completions -> reading -> rendering -> measuring -> scorer (Outcome) -> reward (TRL)
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "CompletionReader",
    "Kind",
    "Measurer",
    "NoiseFloor",
    "Outcome",
    "Renderer",
    "RolloutConfig",
    "RolloutReward",
    "RolloutScorer",
    "RolloutStateCallback",
    "SetSection",
    "WorkerRenderer",
    "rollout_seeds",
]

_HOMES = {
    "CompletionReader": "reading",
    "Kind": "records",
    "Measurer": "measuring",
    "NoiseFloor": "noise",
    "Outcome": "records",
    "Renderer": "rendering",
    "RolloutConfig": "config",
    "RolloutReward": "reward",
    "RolloutScorer": "scorer",
    "RolloutStateCallback": "checkpoints",
    "SetSection": "config",
    "WorkerRenderer": "workers",
    "rollout_seeds": "records",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        return getattr(import_module(f"t2x.rollouts.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
