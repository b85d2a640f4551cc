"""Where prompts come from: the world, a file, a data set of the hub."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2x.data.files import read_rows
from t2x.errors import T2XError
from t2x.plain import is_text

__all__ = ["COLUMNS", "Sourced", "last_text", "prompt_of", "read_prompts", "read_table"]

COLUMNS = ("original_prompt", "prompt", "text", "caption", "messages")
_LINES = {".txt", ".csv", ".tsv"}
_ROWS = {".jsonl", ".ndjson", ".parquet"}


@dataclass(frozen=True)
class Sourced:
    """A prompt and the other columns that come with it, or the ``problem`` for which it is none."""

    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


def read_prompts(
    source: str, *, seed: int = 0, column: str | None = None, split: str = "train"
) -> Iterator[Sourced]:
    """Give prompts of a source one by one; those of the world never end.

    Args:
        source: ``world``; a file (plain lines, CSV, JSONL, parquet); or the hub id of a data set,
            OWNER/NAME.
        seed: of the world's prompts.
        column: that holds the prompts; None is the first of ``COLUMNS`` that is there. Of a list
            of messages the last of the user's counts.
        split: of a data set of the hub.

    Raises T2XError for a source that is not there and a column that is not in it. A bad line is
    given with its problem.
    """
    if source == "world":
        return _world(seed)
    path = Path(source)
    if path.suffix.lower() in _LINES:
        return _lines(path, column)
    return (prompt_of(row, column, source) for row in read_table(source, split=split))


def read_table(source: str, *, split: str = "train") -> Iterator[Mapping[str, Any]]:
    """Give the rows of a JSONL or parquet file, or of a data set of the hub."""
    path = Path(source)
    if path.suffix.lower() in _ROWS:
        return read_rows(path)
    if path.exists() or "/" not in source:
        raise T2XError(
            f"no prompts can be read from {source!r}; give world, a file that ends in "
            f"{', '.join(sorted(_LINES | _ROWS))}, or a hub id owner/name"
        )
    return _hub(source, split)


def prompt_of(row: Mapping[str, Any], column: str | None, source: str) -> Sourced:
    """The prompt of a row of ``source``, in ``column`` or the first of ``COLUMNS``."""
    names = (column,) if column else COLUMNS
    found = next((name for name in names if name in row), None)
    if found is None:
        raise T2XError(
            f"a row of {source!r} has the columns {', '.join(map(str, row))} and none of "
            f"{', '.join(names)}; say which holds the prompts with --column"
        )
    text = last_text(row[found])
    return Sourced(text or "", problem="" if text is not None else "no text in the column")


def _world(seed: int) -> Iterator[Sourced]:
    from t2x.world.prompts import training_prompt

    rng = random.Random(f"data {seed}")
    while True:
        prompt = training_prompt(rng.getrandbits(48))
        yield Sourced(prompt.text, {"kind": prompt.kind, "task": prompt.task})


def _lines(path: Path, column: str | None) -> Iterator[Sourced]:
    from t2x.jobs.lines import file_source, read_lines

    for line in read_lines(file_source(path, column=column)):
        if line.prompt or line.error:
            yield Sourced(line.prompt, problem="unreadable line" if line.error else "")


def _hub(source: str, split: str) -> Iterator[Mapping[str, Any]]:
    from t2x.registry import missing_dependency

    try:
        from datasets import load_dataset
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
    yield from load_dataset(source, split=split, streaming=True)


def last_text(value: Any, role: str = "user") -> str | None:
    """A text, or the last message of a role in a list of messages; None for anything else."""
    if isinstance(value, list):
        messages = [m for m in value if isinstance(m, Mapping)]
        texts = [m.get("content") for m in messages if m.get("role") == role]
        value = texts[-1] if texts else None
    return value if isinstance(value, str) and is_text(value) else None
