"""What the studio has: its models, whether each can be used, and what is waiting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Readiness: TypeAlias = Literal["none", "unloaded", "loading", "ready", "failed"]

__all__ = ["ModelState", "Readiness", "StudioState"]


@dataclass(frozen=True)
class ModelState:
    """One model. ``name`` is what it was asked for by. ``readiness``: "none" (not wanted),
    "unloaded" (it will be when it is needed), "loading", "ready", "failed" (``problem`` says why;
    it is tried again when it is next needed). ``facts`` of a ready one, as JSON values: of a
    generator ``model_id``, ``modality``, ``settings`` of a call (size, steps, guidance scale),
    ``negative`` (whether it takes one), ``guided`` (whether rewards can steer it), ``edits``;
    of a reward ``scale``, ``range``, ``modality``, ``differentiable``."""

    name: str
    readiness: Readiness = "unloaded"
    problem: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StudioState:
    """All of it; ``waiting`` counts the jobs in the queue, the running one included."""

    generator: ModelState
    rewriter: ModelState
    rewards: tuple[ModelState, ...]
    waiting: int = 0
