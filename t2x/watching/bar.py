"""The progress bar of a training: how far it is, its last values, time taken and time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance: TypeAlias = "Callable[[float, str], None]"  # how much of the total is done, and a note

__all__ = ["Advance", "training_bar"]


@contextmanager
def training_bar(name: str, total: float, *, done: float = 0.0) -> Iterator[Advance]:
    """Draw a bar on standard error while inside; ``done`` of ``total`` was there before.

    Time left is reckoned from what is done inside.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, refresh_per_second=1, speed_estimate_period=600) as bar:
        task = bar.add_task(name, total=total, completed=done, note="")
        yield lambda now, note: bar.update(task, completed=now, note=note)
