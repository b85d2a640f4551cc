"""Trackers by name (trackio, wandb, tensorboard, ...): looked for before a training begins."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from importlib.util import find_spec

from t2x.errors import MissingDependencyError, UnknownNameError

__all__ = ["check_reporters"]

# Names of transformers' integrations, and the modules of which one must be there.
_MODULES = {
    "azure_ml": ("azureml",),
    "clearml": ("clearml",),
    "codecarbon": ("codecarbon",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub",),
    "dvclive": ("dvclive",),
    "flyte": ("flytekit",),
    "kubeflow": ("kubernetes",),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "swanlab": ("swanlab",),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "trackio": ("trackio",),
    "wandb": ("wandb",),
}
_SOME = ("none", "all")  # "all" is all that are installed


def check_reporters(names: str | Sequence[str] | None) -> list[str]:
    """Give the trackers as a list, for the ``report_to`` of a trainer.

    Raises ``UnknownNameError`` for a name that transformers does not have, and
    ``MissingDependencyError`` with the line that installs it for one that is not there.
    """
    given = [names] if isinstance(names, str) else list(names or [])
    for name in given:
        if name in _SOME:
            continue
        if name not in _MODULES:
            close = difflib.get_close_matches(name, _MODULES, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UnknownNameError(
                f"unknown tracker {name!r} in report_to: {hint}known are: "
                f"{', '.join([*_MODULES, *_SOME])}"
            )
        if not any(map(find_spec, _MODULES[name])):
            package = _MODULES[name][0]
            raise MissingDependencyError(
                f"report_to names {name!r}, which is not installed; pip install {package}, or "
                "leave it out: log.jsonl and report.html are written all the same"
            )
    return [name for name in given if name != "none"]
