"""A run's folder is that of one run: its ``config.yaml`` says with which settings it began, and a
run with others neither goes on from its checkpoints nor takes its place.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t2x.config import ConfigError, load_config, save_config, to_dict
from t2x.errors import T2XError
from t2x.files import checkpoints, made_folder
from t2x.watching.runs import ALARMS, CONFIG, GROUPS, LOG
from t2x.watching.samples import LINES

__all__ = ["take_folder"]

log = logging.getLogger(__name__)

# What may differ when a run goes on: it does not change what was learnt so far.
_FREE = ("run.out", "run.resume", "run.threads", "trainer.max_steps", "watch")
_PARTS = ("rounds", "sft", "start", "turns")  # what recipes of several trainings have done
_LOGS = (LOG, GROUPS, ALARMS, LINES)
_REFUSED = "the checkpoints in {} are of another run"
_WHAT_TO_DO = (
    "go on with what it was started with, give another run.out, or start over with run.resume=false"
)


def take_folder(config: Any) -> Path:
    """Make ``config.run.out`` the folder of a run with these settings, and write ``config.yaml``.

    Without ``run.resume`` the checkpoints and logs of the run that was there are removed, so that
    none is taken up later. Raises T2XError for a folder that can't be written into, and where there
    is something to go on from that was made with other settings.
    """
    out = made_folder(config.run.out)
    first = os.environ.get("RANK", "0") == "0"  # of the processes that accelerate launches
    if not config.run.resume:
        if first:
            _clear(out)
    elif checkpoints(out) or any((out / part).is_dir() for part in _PARTS):
        _check_same(config, out / CONFIG)
    if first:
        save_config(config, out / CONFIG)
    return out


def _check_same(config: Any, path: Path) -> None:
    if not path.is_file():
        log.warning("%s has checkpoints and no %s: it can't be seen whose", path.parent, CONFIG)
        return
    try:
        old = dict(_flat(to_dict(load_config(type(config), path))))
    except ConfigError as error:
        raise T2XError(f"{_REFUSED.format(path.parent)}: {error}; {_WHAT_TO_DO}") from error
    new = dict(_flat(to_dict(config)))
    differing = [
        f"{key} given is {new.get(key)!r}, stored is {old.get(key)!r}"
        for key in dict.fromkeys([*new, *old])
        if new.get(key) != old.get(key) and not _is_free(key)
    ]
    if differing:
        raise T2XError(f"{_REFUSED.format(path.parent)}: {'; '.join(differing[:4])}; {_WHAT_TO_DO}")


def _is_free(key: str) -> bool:
    return any(f"{key}.".startswith(f"{free}.") for free in _FREE)


def _clear(out: Path) -> None:
    parts = [out / part for part in _PARTS] if (out / CONFIG).is_file() else []
    for folder in (*checkpoints(out), *(part for part in parts if part.is_dir())):
        shutil.rmtree(folder)
    for name in _LOGS:
        (out / name).unlink(missing_ok=True)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
