"""A training's folder as what was logged there: curves, alarms, samples, groups and settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from t2x.errors import T2XError
from t2x.watching.alarms import HELD_OUT, curves_of
from t2x.watching.samples import LINES
from t2x.watching.steps import read_steps
from t2x.watching.trends import Curve

_PARTS = ("turns", "rounds")  # folders of a run that is trained in several trainings
LOG, GROUPS, ALARMS, CONFIG = "log.jsonl", "groups.jsonl", "alarms.jsonl", "config.yaml"

__all__ = ["ALARMS", "CONFIG", "GROUPS", "LOG", "Run", "read_run", "read_runs", "summary_of"]


@dataclass(frozen=True)
class Run:
    """One training. ``config`` is the text of its config.yaml; lists hold one dict per line."""

    name: str
    folder: Path
    curves: Mapping[str, Curve]
    alarms: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    config: str = ""

    def last(self, key: str) -> float:
        """The last value of a curve, NaN where there is none."""
        values = self.curves.get(key, Curve()).values
        return values[-1] if values else float("nan")

    def settings(self) -> dict[str, Any]:
        """The configuration by dotted key; {} where it can't be read."""
        try:
            found = yaml.safe_load(self.config)
        except yaml.YAMLError:
            return {}
        return dict(_flat(found, "")) if isinstance(found, dict) else {}

    @property
    def step(self) -> int:
        """The last step that was logged."""
        return int(max((c.steps[-1] for c in self.curves.values() if len(c)), default=0))


def read_run(folder: str | Path, name: str = "") -> Run:
    """Read a run's folder; raises T2XError for one without log.jsonl."""
    folder = Path(folder)
    if not (folder / LOG).is_file():
        raise T2XError(
            f"{str(folder)!r} has no {LOG}; give the folder of a run, run.out of its configuration"
        )
    config = folder / CONFIG
    if not config.is_file() and folder.parent.name in _PARTS:
        config = folder.parent.parent / CONFIG
    return Run(
        name or folder.resolve().name,
        folder,
        curves_of(_numbers(read_steps(folder / LOG))),
        read_steps(folder / ALARMS),
        read_steps(folder / LINES),
        read_steps(folder / GROUPS),
        config.read_text("utf-8", "replace") if config.is_file() else "",
    )


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Read several runs, each named by its folder, with as much of the path as tells them apart.

    Of a run that has no log but trained in turns (``cooperative``) or rounds (``self_reward``),
    each of these is read as a run of its own, with the run's settings.
    """
    parts = [part for folder in folders for part in _parts(Path(folder))]
    paths = [part.resolve() for part in parts]
    if not paths or len(set(paths)) < len(paths):
        raise T2XError("give the folders of one or more runs, each once")
    shared = Path(os.path.commonpath(paths)) if len(paths) > 1 else paths[0].parent
    short = [_short_name(path) for path in paths]
    names = short if len(set(short)) == len(short) else [str(p.relative_to(shared)) for p in paths]
    return [read_run(path, name) for path, name in zip(parts, names, strict=True)]


def _parts(folder: Path) -> list[Path]:
    """The trainings of a run that logged something, in their order; the run itself if it did."""
    if (folder / LOG).is_file():
        return [folder]
    found = [log.parent for name in _PARTS for log in (folder / name).glob(f"*/{LOG}")]
    numbers = {path: path.name.partition("-")[0] for path in found}  # 1-style: "1"
    return sorted(found, key=lambda path: (len(numbers[path]), numbers[path])) or [folder]


def _short_name(folder: Path) -> str:
    parent = folder.parent.name
    return f"{parent}/{folder.name}" if parent in _PARTS else folder.name


def summary_of(run: Run) -> dict[str, Any]:
    """What a run came to, plain data for JSON: last values, the best held-out reward and its step,
    alarms."""
    keys = ("reward", "gain", "kl", "entropy", "length", HELD_OUT, "heldout/gain",
            "heldout/gain_error", "heldout/similarity", "heldout/violations")  # fmt: skip
    held_out = run.curves.get(HELD_OUT, Curve())
    best = max(range(len(held_out)), key=lambda i: held_out.values[i], default=None)
    return {
        "name": run.name,
        "folder": str(run.folder),
        "steps": run.step,
        "seconds": run.last("seconds"),
        "last": {key: run.last(key) for key in keys if key in run.curves},
        "first_held_out": held_out.values[0] if len(held_out) else None,
        "best_held_out": None if best is None else held_out.values[best],
        "best_step": None if best is None else int(held_out.steps[best]),
        "alarms": run.alarms,
        "stopped_early": any(alarm.get("stop") for alarm in run.alarms),
    }


def _numbers(records: list[dict[str, Any]]) -> list[dict[str, float | None]]:
    return [
        {k: v for k, v in record.items() if v is None or isinstance(v, int | float)}
        for record in records
    ]


def _flat(values: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found
