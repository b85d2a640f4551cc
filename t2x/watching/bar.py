"""The progress of a training: how far it is, its last values, time taken and time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance: TypeAlias = "Callable[[float, str], None]"  # how much of the total is done, and a note
SPOKEN = 30.0  # seconds between two lines where there is no terminal
_SPEED = 600.0  # seconds whose pace gives the time left

__all__ = ["Advance", "training_bar"]


@contextmanager
def training_bar(name: str, total: float, *, done: float = 0.0) -> Iterator[Advance]:
    """Draw a bar on standard error while inside, or write a line now and then where that is no
    terminal. ``done`` of ``total`` was there before.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _spoken(console, name, total, done)
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(
        *columns, console=console, refresh_per_second=1, speed_estimate_period=_SPEED
    ) as bar:
        task = bar.add_task(name, total=total, note="")
        bar.update(task, completed=done)
        yield lambda now, note: bar.update(task, completed=now, note=note)


def _spoken(console: Console, name: str, total: float, done: float) -> Advance:
    begun = last = time.monotonic()

    def say(now: float, note: str) -> None:
        nonlocal last
        present = time.monotonic()
        if present - last < SPOKEN:
            return
        last, left = present, ""
        if now > done:
            seconds = (total - now) * (present - begun) / (now - done)
            left = f", {timedelta(seconds=round(seconds))} left"
        line = f"{name}: {now / total:.0%} {note}{left}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    return say
