"""Frozen text-to-image and text-to-video models behind one method, ``generate``.

diffusion.py   DiffusionGenerator: any stock diffusers pipeline, with one seed per sample
calls.py       what a pipeline's call takes, and checks of what it is given
folders.py     what a local folder says about itself: settings, and the base of a folder of parts
loading.py     from a hub id, a folder or an object to a pipeline on its device
identity.py    what a stored picture's key must hold: weights, scheduler, sampling, versions
memory.py      telling that memory ran out
tokenizers.py  token limits of what will draw, from its tokenizers alone
residency.py   how many bytes a model needs, before anything is downloaded
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.generators.residency import Preflight, available_bytes, weight_bytes

_HOME = {
    "DiffusionGenerator": "diffusion",
    "Preflight": "residency",
    "available_bytes": "residency",
    "weight_bytes": "residency",
}

__all__ = ["DiffusionGenerator", "Preflight", "available_bytes", "weight_bytes"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that listing generators costs nothing."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
