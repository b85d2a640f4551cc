"""The folder of a run: for one process alone, and tied to its settings.

t2x-benchmark.json   what the run is (see ``marker.py``)
raw/, rewrite/       the official layout of each arm
rewrites.jsonl       a line for each prompt, with the status of its rewrite
scores.jsonl         a line for each picture
summary.json         what the command prints
scores/, store/      what a run goes on from: scores by arm and reward, pictures by content
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2x.benchmarks.marker import MARKER, DamagedMarkerError, read_marker, write_marker
from t2x.errors import T2XError
from t2x.files import made_folder, take_lock
from t2x.jobs.output import check_same, side_files

ARMS = ("raw", "rewrite")
REWRITES, SCORES, SUMMARY = "rewrites.jsonl", "scores.jsonl", "summary.json"
_LOCK = ".lock"

__all__ = ["ARMS", "REWRITES", "SCORES", "SUMMARY", "own_folder", "tie"]


@contextmanager
def own_folder(out: Path, *, overwrite: bool) -> Iterator[Path]:
    """The folder, for this process alone; with ``overwrite`` without what an earlier run made."""
    made_folder(out)
    try:
        ours = read_marker(out) is not None
    except DamagedMarkerError:
        if not overwrite:
            raise
        ours = True
    others = [path.name for path in out.iterdir() if path.name not in (_LOCK, "parts")]
    if others and not ours:
        raise T2XError(
            f"{str(out)!r} holds {others[0]!r} and was not begun by t2x benchmark; give an empty "
            "folder with --out"
        )
    with (out / _LOCK).open("a+b") as lock:
        if not take_lock(lock):
            raise T2XError(f"another process is at work in {str(out)!r}; wait for it")
        if overwrite and ours:
            _clear(out)
        shutil.rmtree(out / "parts", ignore_errors=True)
        (out / "parts").mkdir()
        yield out


def _clear(out: Path) -> None:
    for name in (*ARMS, "store", "parts", "scores"):
        shutil.rmtree(out / name, ignore_errors=True)
    for path in (out / REWRITES, *side_files(out / REWRITES), out / SCORES, out / SUMMARY):
        path.unlink(missing_ok=True)
    (out / MARKER).unlink()  # last: without it, what is left is not known for ours


def tie(out: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings, or compare them with those of the run before; T2XError says what has
    changed. Settings that the run before did not have are added."""
    before = read_marker(out)
    if before is None:
        write_marker(out, settings)
        return
    whole = json.loads((out / MARKER).read_text("utf-8"))
    check_same(out / MARKER, whole | {k: v for k, v in settings.items() if k in before}, out)
    if not settings.keys() <= before.keys():
        write_marker(out, {**settings, **before})
