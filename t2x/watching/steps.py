"""Files with a JSON line per step of a training, and the clock that counts its seconds.

A run that is killed goes on from its last checkpoint and takes the steps after that again: their
lines are cut first, so that no step stands twice.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2x.files import write_whole
from t2x.plain import json_line, lines_of

__all__ = ["Clock", "append_step", "cut_steps", "read_steps"]


class Clock:
    """Seconds of training in all; what happens while it is paused is not training."""

    def __init__(self, spent: float) -> None:
        self._spent, self._since = spent, time.monotonic()

    def seconds(self) -> float:
        return self._spent + time.monotonic() - self._since

    @contextmanager
    def paused(self) -> Iterator[float]:
        self._spent = self.seconds()
        yield self._spent
        self._since = time.monotonic()


def append_step(path: Path, line: Mapping[str, Any]) -> None:
    """Write a line that has a ``step``; what is NaN becomes null."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json_line(line))


def cut_steps(path: Path, step: int) -> None:
    """Drop the lines after ``step``, and one that a kill left half written."""
    if not path.exists():
        return
    lines = lines_of(path.read_text(encoding="utf-8"))
    kept = [line for line in lines if _step_of(line) <= step]
    if len(kept) < len(lines):
        write_whole(path, "".join(f"{line}\n" for line in kept))


def read_steps(path: Path) -> list[dict[str, Any]]:
    """Read the lines that are whole; nothing where there is no file."""
    if not path.exists():
        return []
    lines = lines_of(path.read_text(encoding="utf-8", errors="replace"))
    return [json.loads(line) for line in lines if math.isfinite(_step_of(line))]


def _step_of(line: str) -> float:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        return math.inf
