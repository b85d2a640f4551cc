"""What every command shares: JSON or a table on standard output, notes on standard error."""

from __future__ import annotations

import io
import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from t2x.errors import T2XError
from t2x.plain import is_text, plain

SPOKEN = 10.0  # seconds between two lines about a long job, where there is no terminal

__all__ = [
    "Meter",
    "check_prompts",
    "job_progress",
    "note",
    "parse_size",
    "plain",
    "print_json",
    "print_table",
    "progress",
    "split_names",
    "split_weights",
    "write_any_text",
]


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON value; what is NaN or infinite becomes null."""
    text = json.dumps(plain(value), ensure_ascii=False, indent=indent)
    if not _can_write(text):
        text = json.dumps(plain(value), indent=indent)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _can_write(text: str) -> bool:
    """Whether the encoding of standard output knows every character."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def write_any_text() -> None:
    """Let standard output write what its encoding has no character for as an escape, as standard
    error does, in place of an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as a table that fits the terminal; texts are shown as they are, without markup."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    Console().print(table)


def note(text: str) -> None:
    """Say something that is no result, in one line on standard error."""
    sys.stderr.write(" ".join(text.split()) + "\n")


def check_prompts(prompts: Sequence[str]) -> None:
    """Raise ``T2XError`` if a prompt has no text, or bytes that are none."""
    for number, prompt in enumerate(prompts, 1):
        where = "the prompt" if len(prompts) == 1 else f"prompt {number}"
        if not prompt.strip():
            raise T2XError(f"{where} is empty; say what the picture should show")
        if not is_text(prompt):
            raise T2XError(f"{where} is no valid Unicode text: {prompt[:40]!r}; write it in UTF-8")


def split_names(text: str, what: str, example: str) -> list[str]:
    """Read names with commas between them, or raise ``T2XError`` if there are none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise T2XError(f"no {what} was named; give for instance {example}")
    return names


def split_weights(text: str, what: str, example: str) -> dict[str, float]:
    """Read names with commas between them, each with a weight behind ``=`` or 1 without."""
    weights: dict[str, float] = {}
    for entry in split_names(text, what, example):
        name, _, weight = entry.partition("=")
        try:
            weights[name.strip()] = float(weight or 1.0)
        except ValueError as error:
            raise T2XError(f"the weight in {entry!r} is no number; give {example}") from error
    if not all(map(math.isfinite, weights.values())) or not any(weights.values()):
        raise T2XError(f"weights are finite and one is not 0; got {text!r}, give {example}")
    return weights


def parse_size(text: str) -> tuple[int, int]:
    """Read ``HEIGHTxWIDTH`` in pixels."""
    height, _, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise T2XError(f"a size is written HEIGHTxWIDTH in pixels, like 512x768; got {text!r}")
    return int(height), int(width)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show (what, done, total) as a bar on standard error, or as lines where it is no terminal,
    each with the time left of what is under way."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    meters: dict[str, Meter] = defaultdict(partial(Meter, ""))

    def left(what: str, done: int, total: int) -> str:
        return meters[what].left(done, total)

    if not console.is_terminal:
        yield lambda what, done, total: note(f"{what} ({done}/{total}){left(what, done, total)}")
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda what, done, total: bar.update(
            task, description=what + left(what, done, total), completed=done, total=total
        )


class Meter:
    """Says how far a job is, how fast it goes and how long it will take.

    The rate is that of this run: what was done before the first call does not count. ``clock``
    gives seconds.
    """

    def __init__(self, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit = unit
        self._clock = clock
        self._begun: tuple[float, int] | None = None

    def text(self, done: int, total: int | None) -> str:
        """One line; the time left is known once something was done and ``total`` is known."""
        said = f"{done:,} {self._unit}" if total is None else f"{done:,} of {total:,} {self._unit}"
        rate = self._rate(done)
        if rate is None:
            return said
        said += f", {rate:.3g} a second"
        return said if total is None else said + _time_left(total - done, rate)

    def left(self, done: int, total: int) -> str:
        """The time left, behind a comma; nothing where it is not known or all is done."""
        rate = self._rate(done)
        return "" if rate is None or done >= total else _time_left(total - done, rate)

    def _rate(self, done: int) -> float | None:
        now = self._clock()
        start, before = self._begun = self._begun or (now, done)
        return None if done <= before or now <= start else (done - before) / (now - start)


def _time_left(more: int, rate: float) -> str:
    return f", {timedelta(seconds=round(more / rate))} left"


@contextmanager
def job_progress(unit: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show (done, total) of a long job with rate and time left: as a bar on a terminal, else as a
    line on standard error every ``SPOKEN`` seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console, meter = Console(stderr=True), Meter(unit)
    if not console.is_terminal:
        yield _spoken(meter)
        return
    columns = BarColumn(), TextColumn("{task.description}", markup=False)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        yield lambda done, total: bar.update(
            task, description=meter.text(done, total), completed=done, total=total
        )


def _spoken(meter: Meter) -> Callable[[int, int | None], None]:
    last = time.monotonic()

    def say(done: int, total: int | None) -> None:
        nonlocal last
        text = meter.text(done, total)
        if time.monotonic() - last >= SPOKEN:
            last = time.monotonic()
            note(text)

    return say


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4f}" if math.isfinite(value) else "not measured"
    return str(value)
