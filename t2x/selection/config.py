"""The ``selection`` section of a recipe's YAML: ``selection: {method: mopps, fair_share: 0.1}``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from t2x.errors import T2XError

__all__ = ["METHODS", "SelectionConfig"]

Method = Literal["uniform", "mopps", "pcl", "p1", "hive", "erpo"]
METHODS: tuple[str, ...] = get_args(Method)
# Which method reads which option, and its default.
_OPTIONS: dict[str, dict[str, float]] = {
    "fair_share": {**dict.fromkeys(METHODS, 0.0), "p1": 0.125},
    "pool": {"mopps": 8, "pcl": 4, "p1": 4, "hive": 4},
    "target": {"mopps": 0.5, "pcl": 0.5},
    "decay": {"mopps": 0.5, "pcl": 0.9, "p1": 0.5, "hive": 0.5},
    "ridge": {"pcl": 1.0},
    "temperature_step": {"erpo": 0.1},
    "temperature_ceiling": {"erpo": 1.5},
}
_RANGES: dict[str, tuple[float, float]] = {
    "fair_share": (0.0, 1.0),
    "pool": (0, math.inf),
    "target": (0.0, 1.0),
    "decay": (0.0, 1.0),
    "ridge": (1e-9, math.inf),
    "temperature_step": (0.0, math.inf),
    "temperature_ceiling": (0.0, math.inf),
}


@dataclass(frozen=True)
class SelectionConfig:
    """How the prompts of the next rollouts are chosen.

    ``method``: *uniform* (each prompt once a pass, in random order), *mopps* (Beta posterior of
    each prompt's success rate, Thompson sampling; arXiv 2507.04632), *pcl* (a value model predicts
    the rate from the prompt; arXiv 2510.01135), *p1* (largest variance between rewrites beyond
    that of seeds; arXiv 2604.08801), *hive* (history, then prompt entropy under the current
    policy; arXiv 2603.25184) or *erpo* (uniform, with a higher temperature for spent prompts;
    arXiv 2511.04800).

    For every method: ``fair_share``, the share of each draw that goes to the prompts that have
    waited longest, so that none starves (any above 0 is one prompt at least); ``margin``, by how
    much a rewrite must be ahead of the no-rewrite arm to be a success (p1 needs none). A policy
    whose rewrites are nearly all better than no rewrite has solved every prompt by that; with
    ``median`` the margin is the median lead of the last rewrites, and half of them succeed.

    ``pool``: candidates for each prompt that is chosen, 0 for all prompts. ``target``: the success
    rate that is looked for. ``decay``: what is left of a prompt's past at each new result
    (for pcl: of all that the head has learnt, at each step), 1 for all.
    ``ridge``: of the value head. ``temperature_step`` and ``temperature_ceiling``: how much the
    temperature rises each time that a prompt is found spent, and how far.

    None is the method's own default: pool 8 and decay 0.5 for mopps (the released recipes have 8
    and 16, and 0.5 and 1), pool 4 for the rest, decay 0.9 for pcl, 0.5 for p1 and hive (ours).
    ``fair_share`` is 0 by default, but 0.125 for p1, which never looks again at what it once found
    without variance.

    Raises T2XError for a value out of range and for an option that the method does not read.
    """

    method: Method = "uniform"
    fair_share: float | None = None
    margin: float | Literal["median"] = 0.0
    pool: int | None = None
    target: float | None = None
    decay: float | None = None
    ridge: float | None = None
    temperature_step: float | None = None
    temperature_ceiling: float | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise T2XError(f"selection.method is {self.method!r}; give one of {', '.join(METHODS)}")
        for name, readers in _OPTIONS.items():
            if getattr(self, name) is not None and self.method not in readers:
                raise T2XError(
                    f"selection.{name} is an option of {', '.join(readers)}, and the method is "
                    f"{self.method}; leave it out"
                )
        if self.margin != "median" and not (
            isinstance(self.margin, (int, float)) and math.isfinite(self.margin)
        ):
            raise T2XError(f"selection.margin is {self.margin!r}; give a number, or median")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                limits = f"from {low:g} to {high:g}" if high < math.inf else f"{low:g} or more"
                raise T2XError(f"selection.{name} is {value}; give a number {limits}")

    def option(self, name: str) -> float:
        """What was given for an option that the method reads, or the method's default."""
        given = getattr(self, name)
        return _OPTIONS[name][self.method] if given is None else float(given)

    def candidates(self, size: int, prompts: int) -> int:
        """How many candidates a draw of ``size`` out of ``prompts`` has; methods that do not
        choose have no more than they take."""
        if self.method not in _OPTIONS["pool"]:
            return size
        factor = int(self.option("pool"))
        return min(factor * size, prompts) if factor else prompts
