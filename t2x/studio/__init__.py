"""The studio without its page: loaded models, a queue of jobs, and the events that each gives.

events.py    what a job tells while it runs
requests.py  what can be asked for, and as JSON
limits.py    how much one job and one user may ask for, and checks of requests
engine.py    Studio: puts requests in the queue and gives their events
queueing.py  one worker, one job at a time; places, cancelling
models.py    generator, rewriter and rewards: loaded when needed, swapped, freed
hurry.py     what makes loading shorter while the page is served
stoppable.py stopping a model that is being loaded
drawing.py   one picture at a time, stopped between two steps of the denoiser
scoring.py   rewards of the pictures of a job; what fails is NaN with a reason
overhearing.py  live values of search, particles and noise
comparing.py, guiding.py, editing.py  the kinds of jobs
recipes.py, other_tools.py, redrawing.py  what a picture's file says, and drawing it again
history.py   what was drawn, for each user, in one folder
uploads.py   pictures and files of prompts from strangers
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.studio.engine import Studio
    from t2x.studio.limits import Limits

_HOME = {"Limits": "limits", "Studio": "engine"}

__all__ = ["Limits", "Studio"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
