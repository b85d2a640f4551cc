"""How many bytes each phase of a run needs, before anything is downloaded or loaded.

plan.py         plan_run: the bytes of each phase, whether they fit, what to change
limits.py       fit_under: a run that stays under a limit, or says so before anything is loaded
phases.py       rewrite, generate, score: each from a name, a folder, a hub id or what is loaded
skeletons.py    models from their configurations alone, with weights that have no data
activations.py  what a pipeline's call holds beside its weights, phase by phase
models.py       language models with their caches, and rewards
weights.py      weights, from headers of files, from the hub or from what is loaded
counting.py     tensors that are alive at the fullest moment, real ones or ones without data
machine.py      what the machine has left, that it ran out, giving it back
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.memory.limits import Fitting, fit_under
    from t2x.memory.machine import available_bytes, parse_bytes, readable_bytes
    from t2x.memory.plan import PhasePlan, RunPlan, plan_run
    from t2x.memory.weights import weight_bytes

_HOME = {
    "Fitting": "limits",
    "PhasePlan": "plan",
    "RunPlan": "plan",
    "available_bytes": "machine",
    "fit_under": "limits",
    "parse_bytes": "machine",
    "plan_run": "plan",
    "readable_bytes": "machine",
    "weight_bytes": "weights",
}

__all__ = [
    "Fitting",
    "PhasePlan",
    "RunPlan",
    "available_bytes",
    "fit_under",
    "parse_bytes",
    "plan_run",
    "readable_bytes",
    "weight_bytes",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that nothing of torch loads before."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
