"""Folders and files that results are written into."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from t2x.errors import T2XError

__all__ = ["checkpoints", "made_folder", "take_lock", "write_metrics", "write_whole"]


def made_folder(folder: str | Path, *, option: str = "--out") -> Path:
    """Make a folder and see that files can be written there, or raise ``T2XError``, which names the
    ``option`` that gives another.

    Called before the work that fills it, so that nothing is computed for a folder that can't be.
    """
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise T2XError(
            f"cannot write into the folder {str(folder)!r}: {error}; give another with {option}"
        ) from error
    return Path(folder)


def write_whole(path: Path, text: str) -> None:
    """Replace a file by one with this text; whoever is killed meanwhile leaves the old or the new
    one, never half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def take_lock(file: int | IO[Any]) -> bool:
    """Take the lock of an open file, which this process and those that inherit the file hold until
    they end; False if another one has it. On systems without such locks (Windows) always true.
    """
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def checkpoints(run: str | Path) -> list[Path]:
    """The folders ``checkpoint-N`` in that of a run, the oldest first, whole or broken off."""
    found = {path.name.removeprefix("checkpoint-"): path for path in Path(run).glob("checkpoint-*")}
    return [found[number] for number in sorted(filter(str.isdecimal, found), key=int)]


def write_metrics(folder: Path, metrics: Mapping[str, float]) -> dict[str, float]:
    """Write ``folder/metrics.json`` and give the metrics back."""
    write_whole(folder / "metrics.json", json.dumps(metrics, indent=1) + "\n")
    return dict(metrics)
