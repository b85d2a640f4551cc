"""Checkpoints of a training: what it is, what it has reached, and the refusal to go on from another
one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from t2x.errors import T2XError

__all__ = ["Checkpoint", "Stateful"]


class Stateful(Protocol):
    """Whatever can be put into a checkpoint: module, optimiser, EMA, position in the data."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> Any: ...


@dataclass(frozen=True)
class Checkpoint:
    """The file of one training.

    ``run`` says which training it is (recipe, seed, start, ...): weights of one are never taken for
    those of another. ``state`` holds all that must survive a kill.
    """

    path: Path
    run: Mapping[str, str | int | None]
    state: Mapping[str, Stateful]

    def save(self, step: int, seconds: float) -> None:
        """Write beside the file's place and move it in, so that a kill never leaves half a
        file."""
        data = {
            "run": dict(self.run),
            "state": {name: item.state_dict() for name, item in self.state.items()},
            "step": step,
            "seconds": seconds,
        }
        temporary = self.path.with_suffix(".tmp")
        torch.save(data, temporary)
        os.replace(temporary, self.path)

    def load(self) -> tuple[int, float]:
        """Put the file's contents into ``state``; give its step and seconds, 0 without a file.

        Raises ``T2XError`` if the file is of another run, and then leaves ``state`` as it was.
        """
        if not self.path.exists():
            return 0, 0.0
        data = torch.load(self.path, weights_only=True)
        differing = [*self._run_differs(data.get("run", {})), *self._shapes_differ(data["state"])]
        if differing:
            raise T2XError(
                f"checkpoint {self.path} is of another run: {'; '.join(differing[:4])}; go on with "
                "what it was started with, give another --out, or start over with --no-resume"
            )
        for name, item in self.state.items():
            item.load_state_dict(data["state"][name])
        return int(data["step"]), float(data["seconds"])

    def _run_differs(self, stored: Mapping[str, Any]) -> list[str]:
        return [
            f"{key} given is {self.run.get(key)}, stored is {stored.get(key)}"
            for key in dict.fromkeys([*self.run, *stored])
            if self.run.get(key) != stored.get(key)
        ]

    def _shapes_differ(self, stored: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Tensors of modules that have another shape here and there, or are missing in one."""
        if set(stored) != set(self.state):
            return [f"parts given are {sorted(self.state)}, stored are {sorted(stored)}"]
        found = []
        for name, item in self.state.items():
            if not isinstance(item, nn.Module):
                continue  # optimisers and averages have the shapes of their modules
            here, there = _shapes(item.state_dict()), _shapes(stored[name])
            found += [
                f"shape of {name}.{key} given is {here.get(key)}, stored is {there.get(key)}"
                for key in dict.fromkeys([*here, *there])
                if here.get(key) != there.get(key)
            ]
        return found


def _shapes(tensors: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {key: tuple(value.shape) for key, value in tensors.items()}
