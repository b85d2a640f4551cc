"""How guidance is asked for in words: rewards with weights, a mode, a budget, options; all checked
before anything is loaded.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from t2x.config import ConfigError, build_config, check_ranges, load_config
from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig, parse_rewards
from t2x.plain import plain
from t2x.registry import check_names, import_attr
from t2x.reward_facts import FACTS

__all__ = [
    "DEFAULT_MODE",
    "MODES",
    "GuidanceRecipe",
    "Mode",
    "SearchSettings",
    "check_reader",
    "make_recipe",
]


@dataclass(frozen=True)
class SearchSettings:
    """Search among whole pictures, without gradients (``t2x.guidance.search``).

    ``method``: *best-of-n*, *zero-order* (``neighbours`` of the best noise at ``distance``), or
    *paths* (``paths`` of ``branches`` between the parts ``begin`` and ``until`` of a run).
    ``pictures``: what may be spent on each, in whole pictures.
    """

    method: Literal["best-of-n", "zero-order", "paths"] = "best-of-n"
    pictures: int = 4
    neighbours: int = 4
    distance: float = 0.5
    paths: int = 2
    branches: int = 2
    begin: float = 0.25
    until: float = 0.75

    def __post_init__(self) -> None:
        allowed = ("best-of-n", "zero-order", "paths")
        if self.method not in allowed:
            raise T2XError(f"search: method is {self.method!r}; allowed: {', '.join(allowed)}")
        check_ranges(
            "search",
            self,
            {
                "pictures": (1, math.inf),
                "neighbours": (1, math.inf),
                "distance": (0.0, 1.0),
                "paths": (1, math.inf),
                "branches": (1, math.inf),
                "begin": (0.0, 1.0),
                "until": ("begin", 1.0),
            },
        )


@dataclass(frozen=True)
class Mode:
    """A way to use rewards.

    ``draw`` is "module:function" from a ``t2x.guidance.drawing.Batch`` to what was drawn,
    ``settings`` "module:Class" of the mode's own options, if it has any, ``bought`` what a budget
    decides, ``steered`` the mode of gradients that act, ``traced`` whether there are steps to show.
    """

    about: str
    draw: str
    bought: str
    settings: str = ""
    steered: Literal["", "E", "J"] = ""
    traced: bool = True


_DRAWING = "t2x.guidance.drawing"
_PARTICLES = "t2x.guidance.particle_config:ParticleConfig"
MODES = {
    "E": Mode(
        "gradients through the decoder",
        f"{_DRAWING}:steered",
        "num_inference_steps",
        steered="E",
    ),
    "J": Mode(
        "gradients through decoder and denoiser",
        f"{_DRAWING}:steered",
        "num_inference_steps",
        steered="J",
    ),
    "particles": Mode(
        "trajectories that compete", f"{_DRAWING}:selected", "count", settings=_PARTICLES
    ),
    "E+particles": Mode("both", f"{_DRAWING}:selected", "count", settings=_PARTICLES, steered="E"),
    "J+particles": Mode("both", f"{_DRAWING}:selected", "count", settings=_PARTICLES, steered="J"),
    "noise": Mode(
        "the first noise is optimised, for models of few steps",
        f"{_DRAWING}:optimised",
        "iterations",
        settings="t2x.guidance.noise_optimisation:NoiseConfig",
        traced=False,
    ),
    "search": Mode(
        "the best of several pictures",
        f"{_DRAWING}:searched",
        "pictures",
        settings="t2x.guidance.recipe:SearchSettings",
        traced=False,
    ),
}


_STEERING = {field.name for field in dataclasses.fields(GuidanceConfig)} - {"rewards", "mode"}
# What won at equal cost where that was measured (docs/guidance.md), and needs no gradients.
DEFAULT_MODE = "search"


@dataclass(frozen=True)
class GuidanceRecipe:
    """What was asked for.

    ``config`` holds the rewards and, where they do, how gradients steer, ``mode`` is a key of
    ``MODES``, ``budget`` denoiser evaluations per picture (classifier-free guidance takes 2 a step,
    a backward pass counts 2 forward ones) or None for the mode's own number, ``settings`` what the
    mode adds.
    """

    config: GuidanceConfig
    mode: str = "E"
    budget: int | None = None
    settings: Any = None

    def record(self) -> dict[str, Any]:
        """All of it as JSON values, for keys of stores and for files."""
        values: dict[str, Any] = plain(self, exact=True)
        return values


def make_recipe(
    rewards: str | Mapping[str, float] | GuidanceConfig | GuidanceRecipe,
    *,
    mode: str | None = None,
    budget: int | None = None,
    options: Mapping[str, Any] | Sequence[str] = (),
    loaded: Sequence[str] = (),
) -> GuidanceRecipe:
    """Check and resolve what was asked for.

    ``rewards``: "vqa=1,clip=0.3", weights by name, or a configuration that is whole but for the
    mode and the budget. ``mode``: a key of ``MODES``; None is that of the configuration, else "E"
    where an option is about gradients, else ``DEFAULT_MODE``. ``options``: values of
    ``GuidanceConfig`` by name, and of the mode's own settings; or "name=value" texts. ``loaded``:
    names of rewards that need no loading; without weights each weighs 1. Raises T2XError for
    rewards, modes and options that are not known, values out of range, and combinations that mean
    nothing.
    """
    if isinstance(rewards, GuidanceRecipe):
        if mode is not None or budget is not None or options:
            raise T2XError("a recipe is whole; change its fields in place of adding options")
        return rewards
    config = rewards if isinstance(rewards, GuidanceConfig) else None
    given = _options(options)
    name = mode or (config.mode if config is not None else _mode_of(given))
    if name not in MODES:
        known = "; ".join(f"{key}: {entry.about}" for key, entry in MODES.items())
        raise T2XError(f"unknown guidance mode {name!r}; allowed: {known}")
    if budget is not None and budget < 1:
        raise T2XError(f"a budget is at least 1 denoiser evaluation per picture, got {budget}")
    entry = MODES[name]
    own = import_attr(entry.settings) if entry.settings else None
    mine, theirs = _sorted(given, name, own)
    if budget is not None and entry.bought in mine:
        raise T2XError(f"in mode {name} a budget decides {entry.bought}; give one of the two")
    config = _config(rewards if config is None else config, theirs)
    if not config.rewards:
        config = dataclasses.replace(config, rewards=dict.fromkeys(loaded, 1.0))
    if entry.steered:
        config = dataclasses.replace(config, mode=entry.steered)
    _check_rewards(config, loaded, differentiated=bool(entry.steered) or name == "noise")
    return GuidanceRecipe(config, name, budget, build_config(own, mine) if own else None)


def check_reader(recipe: GuidanceRecipe, reader: object) -> None:
    """Raise T2XError for a reader of prompts where no policy would ask it."""
    if reader is None:
        return
    from t2x.guidance.policy import role_of

    config = recipe.config
    weighs = MODES[recipe.mode].steered and len(config.rewards) > 1
    looks = any(role_of(name) == "region" for name in config.rewards)
    if not config.adaptive or not (weighs or looks):
        raise T2XError(
            "a reader is asked by the policy, which decides the weights of several rewards in a "
            "mode with gradients, and tells grounded and region where to look; got mode "
            f"{recipe.mode}, adaptive {config.adaptive} and the rewards {', '.join(config.rewards)}"
        )


def _mode_of(given: Mapping[str, Any]) -> str:
    return "E" if given.keys() & _STEERING else DEFAULT_MODE


def _sorted(
    given: dict[str, Any], mode: str, own: type | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the mode's own settings, and of ``GuidanceConfig``. Where gradients steer a plain
    name is theirs first, and ``particles.NAME`` the mode's own."""
    shared = _STEERING if MODES[mode].steered else set[str]()
    names = {field.name for field in dataclasses.fields(own)} if own else set[str]()
    section = mode.rpartition("+")[2]
    mine: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for key, value in given.items():
        if key == section and names and isinstance(value, dict):
            mine |= value
        elif key in shared:
            theirs[key] = value
        elif key in names:
            mine[key] = value
        else:
            raise ConfigError(_unknown(key, mode, shared, names))
    return mine, theirs


def _options(options: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    if isinstance(options, Mapping):
        return dict(options)
    if isinstance(options, str):
        raise T2XError(f"options are a list of name=value, got the text {options!r}")
    for text in options:
        name, given, _ = text.partition("=")
        if not given or not name.strip():
            raise T2XError(
                f"an option of guidance is written NAME=VALUE, like size=0.3; got {text!r}"
            )
    return load_config(_Values, None, [f"values.{text}" for text in options]).values


@dataclass(frozen=True)
class _Values:
    """Any names with values, as the command line gives them."""

    values: dict[str, Any] = dataclasses.field(default_factory=dict)


def _unknown(key: str, mode: str, shared: set[str], mine: set[str]) -> str:
    known = sorted(shared | mine)
    close = difflib.get_close_matches(key, sorted(_STEERING | mine), n=1)
    of = "" if not close or close[0] in known else ", which is of the modes with gradients, as E"
    hint = f"did you mean {close[0]!r}{of}? " if close else ""
    where = {"rewards": "weights are given with the rewards; ", "mode": "the mode by its own; "}
    return (
        f"unknown guidance option {key!r} of mode {mode}: {where.get(key, hint)}"
        f"known are: {', '.join(known)}"
    )


def _config(
    rewards: str | Mapping[str, float] | GuidanceConfig, changes: Mapping[str, Any]
) -> GuidanceConfig:
    """The configuration with some values changed, each of its type."""
    if isinstance(rewards, GuidanceConfig):
        before = {f.name: getattr(rewards, f.name) for f in dataclasses.fields(rewards)}
        weights = before.pop("rewards")
        built = build_config(GuidanceConfig, {**before, **changes})
        return dataclasses.replace(built, rewards=weights)
    weights = parse_rewards(rewards) if isinstance(rewards, str) else dict(rewards)
    return dataclasses.replace(build_config(GuidanceConfig, changes), rewards=weights)


def _check_rewards(config: GuidanceConfig, loaded: Sequence[str], *, differentiated: bool) -> None:
    if not config.rewards:
        raise T2XError("guidance needs rewards; name some, for instance vqa=1,clip=0.3")
    if not any(config.rewards.values()):
        raise T2XError("all weights of guidance are 0; give one that is not, or leave guidance out")
    if not loaded:
        check_names("rewards", config.rewards)
        flat = [n for n in config.rewards if n in FACTS and not FACTS[n].differentiable]
        if flat and differentiated:
            raise T2XError(
                f"no gradient comes from {', '.join(flat)}; guide by others, or choose among "
                "whole pictures: mode particles or search"
            )
    elif unknown := sorted(set(config.rewards) - set(loaded)):
        raise T2XError(f"weights for {', '.join(unknown)}; the rewards are: {', '.join(loaded)}")
