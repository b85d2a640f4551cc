"""Names of guided arms, their settings, and what tuning may choose from."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from t2x.errors import T2XError, UnknownNameError
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.particles import ParticleConfig
from t2x.world.guided_arms import (
    Arm,
    Guided,
    NoiseOptimised,
    OnePicture,
    Particled,
    Searched,
    Unguided,
)

__all__ = ["ABLATIONS", "ARMS", "GRIDS", "PLAIN", "make_arm"]

Settings: TypeAlias = "Mapping[str, Any]"

# No logistic step, no damping, fixed weights: what others publish.
PLAIN: dict[str, Any] = {
    "eta_min": 1.0,
    "eta_max": 1.0,
    "steepness": 0.0,
    "damping": False,
    "adaptive": False,
}
_OURS = (
    "guidance_scale",
    "spend",
    "steps",
    "policy",
)  # of an arm; the rest are of its GuidanceConfig


def _guided(name: str, fixed: Settings) -> Callable[[Settings], Arm]:
    """Settings of a guided arm: those of the arm, and of ``GuidanceConfig``."""

    def make(settings: Settings) -> Arm:
        own, config = _split({**fixed, **settings})
        return Guided(name, GuidanceConfig(**config), **own)

    return make


def _split(settings: Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of an arm, and those of its configuration."""
    own = {key: value for key, value in settings.items() if key in _OURS}
    config = {key: value for key, value in settings.items() if key not in _OURS}
    if isinstance(config.get("rewards"), (list, tuple)):
        config["rewards"] = dict.fromkeys(config["rewards"], 1.0)
    return own, config


def _selected(settings: Settings) -> Arm:
    own, config = _split({"policy": True, **settings})
    return Searched("rewardflow-select", config=GuidanceConfig(**config), **own)


def _particled(settings: Settings) -> Arm:
    own, config = _split({"strength": 2.0, "final": "keep", **settings})
    return Particled("fk", ParticleConfig(**config), **own)


ARMS: dict[str, Callable[[Settings], Arm]] = {
    "one-picture": lambda settings: OnePicture(**settings),
    "unguided": lambda settings: Unguided(**settings),
    "best-of-n": lambda settings: Searched("best-of-n", **settings),
    "zero-order": lambda settings: Searched("zero-order", "zero_order_search", **settings),
    # Two paths of two branches are four pictures at least.
    "paths": lambda settings: Searched("paths", "search_paths", **{"least": 4, **settings}),
    "fk": _particled,
    "reno": lambda settings: NoiseOptimised(**settings),
    # Universal Guidance: lambda times the gradient through the denoiser.
    "universal": _guided("universal", {**PLAIN, "mode": "J", "rule": "tilt", "size": 10.0}),
    # FreeDoM: the same direction, sized as the CFG correction.
    "freedom": _guided("freedom", {**PLAIN, "mode": "J", "size": 0.2}),
    # MPGD: through the decoder only.
    "mpgd": _guided("mpgd", {**PLAIN, "mode": "E", "size": 0.2}),
    "rewardflow-e": _guided("rewardflow-e", {"mode": "E", "policy": True}),
    "rewardflow-j": _guided("rewardflow-j", {"mode": "J", "policy": True}),
    "rewardflow-select": _selected,
    # Shown to be caught: a step far too long, up to the end.
    "over-optimised": _guided(
        "over-optimised", {**PLAIN, "mode": "E", "size": 4.0, "free_last": 0}
    ),
}


def _sizes(*sizes: float, **fixed: Any) -> list[dict[str, Any]]:
    return [{"size": size, **fixed} for size in sizes]


def _product(**axes: Sequence[Any]) -> list[dict[str, Any]]:
    return [dict(zip(axes, row, strict=True)) for row in itertools.product(*axes.values())]


# What tuning may choose from: as many settings for every arm, the first is the default. Six were
# spread widely; six more lie around the best of those on validation prompts.
_WIDE: dict[str, list[dict[str, Any]]] = {
    "unguided": _product(guidance_scale=(3.0, 1.5, 2.0, 4.0, 5.0, 7.0)),
    "best-of-n": _product(guidance_scale=(3.0, 2.0, 5.0), steps=(1.0, 0.5)),
    "zero-order": _product(guidance_scale=(3.0, 2.0, 5.0), steps=(1.0, 0.5)),
    "paths": _product(guidance_scale=(3.0, 2.0, 5.0), steps=(1.0, 2.0)),
    "fk": _product(strength=(2.0, 0.5, 8.0), steps=(1.0, 2.0)),
    "reno": _product(rate=(5.0, 1.0, 25.0), penalty=(0.01, 0.1)),
    "universal": _sizes(10.0, 0.3, 1.0, 3.0, 30.0, 100.0),
    "freedom": _sizes(0.2, 0.05, 0.1, 0.4, 0.8, 1.6),
    "mpgd": _sizes(0.2, 0.05, 0.1, 0.4, 0.8, 1.6),
    "rewardflow-e": _product(size=(0.2, 0.5, 1.2), spend=("steps", "correctors")),
    "rewardflow-j": _product(size=(0.2, 0.5, 1.2), spend=("steps", "correctors")),
    "rewardflow-select": _product(size=(0.2, 0.5, 1.2), mode=("E", "J")),
}
_NEAR: dict[str, list[dict[str, Any]]] = {
    "unguided": _product(guidance_scale=(2.5, 3.5, 4.5, 6.0, 8.0, 10.0)),
    "best-of-n": [
        *_product(guidance_scale=(3.0, 2.0), steps=(0.25, 0.75)),
        *_product(guidance_scale=(2.5, 3.5), steps=(0.5,)),
    ],
    "zero-order": [
        *_product(guidance_scale=(3.0, 2.0), steps=(0.25, 0.75)),
        *_product(guidance_scale=(2.5, 1.5), steps=(0.5,)),
    ],
    "paths": _product(guidance_scale=(3.0, 2.0, 2.5), steps=(0.5, 0.75)),
    "fk": [
        *_product(strength=(2.0, 8.0), every=(2,)),
        *_product(strength=(2.0, 8.0), steps=(0.5,)),
        {"strength": 2.0, "start": 0.5},
        {"strength": 2.0, "noise": 0.5},
    ],
    "reno": [
        *_product(rate=(50.0, 100.0), penalty=(0.1, 1.0)),
        *_product(rate=(25.0, 50.0), penalty=(0.1,), guidance_scale=(2.0,)),
    ],
    "universal": [*_sizes(0.5, 0.7, 1.5, 2.0), *_sizes(0.5, 1.0, free_last=1)],
    "freedom": [*_sizes(0.3, 0.5, 0.6), *_sizes(0.3, 0.4, 0.6, free_last=1)],
    "mpgd": [*_sizes(0.6, 1.0, 1.2), *_sizes(0.6, 0.8, 1.0, free_last=1)],
    "rewardflow-e": [*_sizes(2.5, 5.0, 10.0), *_sizes(1.2, 2.5, 5.0, free_last=1)],
    "rewardflow-j": [*_sizes(2.5, 5.0, 10.0), *_sizes(1.2, 2.5, 5.0, free_last=1)],
    "rewardflow-select": [
        *_sizes(2.5, 5.0),
        *_sizes(2.5, free_last=1),
        *_sizes(1.2, 2.5, 5.0, free_last=1, steps=0.5),
    ],
}
GRIDS: dict[str, list[dict[str, Any]]] = {name: [*_WIDE[name], *_NEAR[name]] for name in _WIDE}
# What the paper leaves out one by one; the tether is of editing (t2x.world.edits).
ABLATIONS: dict[str, dict[str, Any]] = {
    "without adaptive weights": {"adaptive": False},
    "without policy": {"policy": False},
    "without vqa": {"rewards": ("clip",)},
    "without damping": {"damping": False},
    "without logistic step": {"eta_min": 1.0, "eta_max": 1.0, "steepness": 0.0},
}


def make_arm(name: str, settings: Settings | None = None) -> Arm:
    """An arm by name with some settings; ``ARM without WHAT`` leaves out one of ``ABLATIONS``.

    Raises UnknownNameError for another name, T2XError for settings that it does not have.
    """
    base, _, without = name.partition(" without ")
    changes = ABLATIONS.get(f"without {without}") if without else {}
    if base not in ARMS or changes is None:
        raise UnknownNameError(
            f"unknown arm {name!r}; allowed: {', '.join(ARMS)}, and of the guided ones "
            f"NAME {', NAME '.join(ABLATIONS)}"
        )
    try:
        return ARMS[base]({**(settings or {}), **changes})
    except TypeError as error:
        raise T2XError(f"settings {dict(settings or {})} do not fit {name!r}: {error}") from error
