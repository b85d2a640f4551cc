"""What a job leaves: ``OUT`` with one record per good line, ``OUT.errors`` with the bad ones, and
``OUT.job``, the sidecar that says what the job was.

Both files grow in the order of the input and each record holds the index of its line, so their last
whole lines say where to go on. Errors are written before the records of the same batch: once a
record is there, no bad line before it can be missing, and all up to it is settled. What comes after
the last record is computed again, by a rewriter that may fail on other lines this time: errors
behind it are dropped before anything new is written. A last line without its line break was cut by
a kill and is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from t2x.errors import T2XError
from t2x.files import made_folder, take_lock, write_whole
from t2x.jobs.lines import blocks
from t2x.plain import json_line

_BLOCK = 1 << 16
_ANEW = "give another --out, or --overwrite to start anew"

__all__ = ["JobOutput", "check_same", "open_output", "side_files"]


def side_files(out: Path) -> tuple[Path, Path]:
    """Give the errors file and the sidecar of an output file."""
    return out.with_name(f"{out.name}.errors"), out.with_name(f"{out.name}.job")


@dataclass
class JobOutput:
    """An output that is open: ``last`` is the index of the last record in it, -1 for none;
    ``written`` and ``bad`` count records and bad lines. ``kept`` are the bytes of the errors file
    that stay; ``stale`` says that there are others, for lines that are computed again."""

    file: BinaryIO
    errors: Path
    last: int = -1
    written: int = 0
    bad: int = 0
    kept: int = 0
    stale: bool = False

    def write(
        self, records: Sequence[Mapping[str, Any]], errors: Sequence[Mapping[str, Any]]
    ) -> None:
        """Append what is new of a batch; what an earlier run has settled is left out."""
        bad = [row for row in errors if row["index"] > self.last]
        if bad or self.stale:
            self._write_errors(bad)
        good = [row for row in records if row["index"] > self.last]
        if good:
            self.file.write("".join(map(json_line, good)).encode("utf-8"))
            self.file.flush()
            self.last, self.written = int(good[-1]["index"]), self.written + len(good)

    def _write_errors(self, bad: Sequence[Mapping[str, Any]]) -> None:
        with self.errors.open("ab") as file:
            file.truncate(self.kept)
            file.write("".join(map(json_line, bad)).encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
            self.kept = file.seek(0, os.SEEK_END)
        self.stale, self.bad = False, self.bad + len(bad)
        if not self.kept:
            self.errors.unlink()


@contextmanager
def open_output(
    out: Path, settings: Mapping[str, Any], *, overwrite: bool = False
) -> Iterator[JobOutput]:
    """Begin an output file, or go on with one that a job with the same ``settings`` has begun.

    Raises T2XError for a file of another job or of none, unless ``overwrite`` starts anew, and for
    one that another process is writing.
    """
    if out.exists() and not out.is_file():
        raise T2XError(f"--out {str(out)!r} is no file; give one, or leave it out to print")
    made_folder(out.parent)
    errors, sidecar = side_files(out)
    with out.open("a+b") as file:
        _lock(file, out)
        if overwrite:
            # The sidecar goes first: without it, what is left of the rest is never taken for a job.
            sidecar.unlink(missing_ok=True)
            errors.unlink(missing_ok=True)
            file.truncate(0)
        result = JobOutput(file, errors)
        if file.seek(0, os.SEEK_END) or errors.exists():
            check_same(sidecar, settings, out)
            _check_input(settings, out)
            _go_on(result, file, out)
        else:
            write_whole(sidecar, json.dumps(dict(settings), ensure_ascii=False, indent=2) + "\n")
        try:
            yield result
        except BaseException:
            if result.last < 0 and not errors.exists():  # nothing to go on with: leave nothing
                out.unlink()
                sidecar.unlink()
            raise
        file.flush()
        os.fsync(file.fileno())


def _lock(file: BinaryIO, out: Path) -> None:
    """Let no second process write the same lines; the system undoes it when this one ends."""
    if not take_lock(file):
        raise T2XError(
            f"another process is writing {str(out)!r}; wait for it, or give another --out"
        )


def check_same(sidecar: Path, settings: Mapping[str, Any], out: Path) -> None:
    """Raise T2XError, with what has changed, if ``out`` was begun with other ``settings`` than
    these, which are JSON values, or without any."""
    try:
        before = json.loads(sidecar.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    if not isinstance(before, dict):
        raise T2XError(f"{str(out)!r} is there and was not begun by this command; {_ANEW}")
    changed = [key for key in (*settings, *before) if before.get(key) != settings.get(key)]
    if changed:
        said = (f"{key} was {before.get(key)!r}, is {settings.get(key)!r}" for key in changed)
        raise T2XError(
            f"{str(out)!r} was begun with something else: {'; '.join(dict.fromkeys(said))}. "
            f"Repeat what it was begun with to go on; else {_ANEW}"
        )


def _check_input(settings: Mapping[str, Any], out: Path) -> None:
    if settings.get("input") is None:
        raise T2XError(
            f"{str(out)!r} is there, and a stream can't be read again from where it stopped; put "
            f"the lines into a file, or {_ANEW}"
        )


def _go_on(result: JobOutput, file: BinaryIO, out: Path) -> None:
    result.last, result.written = _state(file, out)
    if not result.errors.exists():
        return
    with result.errors.open("r+b") as errors:
        last, result.bad = _state(errors, result.errors)
        result.kept = errors.seek(0, os.SEEK_END)
        if last > result.last:
            result.stale = True
            result.kept, result.bad = _settled(errors, result.last)


def _settled(errors: BinaryIO, last: int) -> tuple[int, int]:
    """Give bytes and number of the errors up to the index ``last``."""
    errors.seek(0)
    size = found = 0
    for line in errors:
        if json.loads(line)["index"] > last:
            break
        size, found = size + len(line), found + 1
    return size, found


def _state(file: BinaryIO, path: Path) -> tuple[int, int]:
    """Drop a cut last line; give the index in the last whole one, or -1, and how many there are."""
    end = _after_break(file, file.seek(0, os.SEEK_END))
    file.truncate(end)
    if not end:
        return -1, 0
    begin = _after_break(file, end - 1)
    file.seek(begin)
    try:
        index = json.loads(file.read(end - begin))["index"]
    except (ValueError, TypeError, KeyError, RecursionError):
        index = None
    if not isinstance(index, int):
        raise T2XError(
            f"the last line of {str(path)!r} is no record of this command; mend the file, give "
            "another --out, or --overwrite to start anew"
        )
    file.seek(0)
    return index, sum(block.count(b"\n") for block in blocks(file))


def _after_break(file: BinaryIO, end: int) -> int:
    """Give the position after the last line feed before ``end``, or 0."""
    while end > 0:
        begin = max(0, end - _BLOCK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0
