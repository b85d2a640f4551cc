"""What a claim says and how it is tested: ``configs/claims/NAME.yaml`` as dataclasses.

    claim: GRPO with reasoning beats GRPO without.
    arms:
      reasoning:
        steps:
          - {recipe: sft, config: world/sft, overrides: [policy.model=emoji-lm]}
          - {recipe: grpo, config: world/grpo, overrides: ["policy.model={sft}"]}
    comparisons:
      - {first: reasoning, second: plain, metric: score}

``{sft}`` is what the step of that name made. The model of the last step is evaluated; an arm
without steps is a ``source``, evaluated as it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Literal

from t2x.config import load_config, to_dict
from t2x.errors import T2XError, UnknownNameError

__all__ = [
    "METRICS",
    "Arm",
    "Claim",
    "Comparison",
    "Condition",
    "Curve",
    "EqualCost",
    "Evaluation",
    "Step",
    "known_claims",
    "load_claim",
]

MINUTES = 20.0
# Of each prompt: what it says of one, and whether strata are tasks.
METRICS = {
    "score": "share of right pictures, by the judge, mean of the tasks",
    "similarity": "cosine of the proposal with the user's text",
    "violations": "share of proposals that break a constraint",
    "words": "words of a proposal",
    "diversity": "log det(L + I) of the rewrites of a prompt",
    "pictures": "share of pictures saved on the way to the same score",
}
_OF_SETS = ("diversity",)


@dataclass(frozen=True)
class Step:
    """One run: ``t2x train RECIPE --config CONFIG OVERRIDES``, or ``t2x COMMAND`` for data.

    Args:
        recipe: of `t2x train`; the run's folder, seed and thread are set by the queue.
        config, overrides: of the recipe.
        command: words of another command of t2x in place of a recipe: ``{out}`` is the file
            ``product`` that it writes, ``{seed}`` the seed; with ``--json``.
        product: what the step leaves in its folder, and ``{NAME}`` stands for in later steps.
        name: the recipe's or command's own without.
        minutes: of one job, 20 at most. A training that needs longer goes on from its checkpoint.
        slices: jobs that it may take.
    """

    recipe: str = ""
    config: str = ""
    overrides: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    product: str = "model"
    name: str = ""
    minutes: float = MINUTES
    slices: int = 3

    def __post_init__(self) -> None:
        if bool(self.recipe) == bool(self.command):
            raise T2XError("a step has a recipe or a command; give one")
        if not 0 < self.minutes <= MINUTES or self.slices < 1:
            raise T2XError(
                f"step {self.called}: a job takes more than 0 and at most {MINUTES:.0f} minutes, "
                f"and slices are 1 or more; got {self.minutes} minutes, {self.slices} slices"
            )

    @property
    def called(self) -> str:
        """Its name for later steps."""
        return self.name or self.recipe or self.command[min(1, len(self.command) - 1)]

    @property
    def texts(self) -> list[str]:
        """What may name earlier steps."""
        return self.overrides or self.command


@dataclass(frozen=True)
class Arm:
    """What is compared: the model behind the last of the ``steps``, or a ``source`` of
    `t2x eval world` where there is nothing to train."""

    steps: list[Step] = field(default_factory=list)
    source: str = ""

    def __post_init__(self) -> None:
        if bool(self.steps) == bool(self.source):
            raise T2XError("an arm has steps, or a source that is evaluated as it is; give one")
        known = {"out", "seed", "prompt"}  # the last stands in templates
        for step in self.steps:
            named = {name for text in step.texts for name in re.findall(r"\{(\w+)\}", text)}
            if unknown := sorted(named - known):
                raise T2XError(
                    f"step {step.called} names {{{unknown[0]}}}, and no step before it is called "
                    f"so; before it are: {', '.join(sorted(known))}"
                )
            known.add(step.called)
        if self.steps and self.steps[-1].product != "model":
            raise T2XError(f"the last step, {self.steps[-1].called}, leaves no model to evaluate")


@dataclass(frozen=True)
class Comparison:
    """``first`` beats ``second`` in ``metric`` by more than ``margin``. With ``better: lower`` the
    sign is turned, so that an effect above 0 always speaks for the claim."""

    first: str
    second: str
    metric: str = "score"
    better: Literal["higher", "lower"] = "higher"
    margin: float = 0.0


@dataclass(frozen=True)
class Condition(Comparison):
    """What must be equal for the claim to mean anything: ``first`` is not worse than ``second`` by
    more than ``-margin`` (below 0)."""

    margin: float = -0.02


@dataclass(frozen=True)
class EqualCost:
    """The arms' training must cost the same: ``key`` of a run's metrics, summed over the steps,
    differs by at most ``tolerance`` of the larger."""

    key: str = "pictures"
    tolerance: float = 0.1


@dataclass(frozen=True)
class Evaluation:
    """How every trained model is measured: `t2x eval world`, or `t2x eval sets` with ``group``
    rewrites of each prompt. ``minimum`` prompts are needed for a verdict."""

    n: int = 1000
    minimum: int = 1000
    seed: int = 7
    generator: str = "emoji-flow"
    group: int = 1
    minutes: float = MINUTES


@dataclass(frozen=True)
class Curve:
    """Keys of a run's log.jsonl that are kept and drawn, and that "pictures" is read from: what it
    took to come ``share`` of the way from the start to the end of the second arm's curve."""

    x: str = "pictures"
    y: str = "heldout/reward"
    share: float = 0.9


@dataclass(frozen=True)
class Claim:
    """A claim with its protocol. ``screening``: one seed, which can't decide for other seeds."""

    claim: str
    paper: str
    arms: dict[str, Arm]
    comparisons: list[Comparison]
    conditions: list[Condition] = field(default_factory=list)
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])
    screening: bool = False
    evaluation: Evaluation = field(default_factory=Evaluation)
    curve: Curve = field(default_factory=Curve)
    equal_cost: EqualCost | None = None
    notes: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if not self.comparisons:
            raise T2XError("a claim needs a comparison")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise T2XError(f"seeds are {self.seeds}; give one or more, each once")
        if self.screening != (len(self.seeds) == 1):
            raise T2XError(
                f"a claim with one seed is screening, and only that; got {len(self.seeds)} seeds "
                f"and screening: {str(self.screening).lower()}"
            )
        for comparison in (*self.comparisons, *self.conditions):
            self._check(comparison)

    def _check(self, comparison: Comparison) -> None:
        for arm in (comparison.first, comparison.second):
            if arm not in self.arms:
                raise T2XError(f"no arm {arm!r}; the arms are: {', '.join(self.arms)}")
        if comparison.metric not in METRICS:
            raise T2XError(f"unknown metric {comparison.metric!r}; allowed: {', '.join(METRICS)}")
        if comparison.metric in _OF_SETS and self.evaluation.group < 2:
            raise T2XError(f"{comparison.metric} is of sets; give evaluation.group, 2 or more")

    @cached_property
    def digest(self) -> str:
        """Changes with everything that the protocol says but its words."""
        said = {k: v for k, v in to_dict(self).items() if k not in ("claim", "paper", "notes")}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]


def known_claims(folder: Path | None = None) -> list[str]:
    """Names of all claims that have a protocol."""
    return sorted(path.stem for path in _folder(folder).glob("*.yaml"))


def load_claim(name: str, folder: Path | None = None) -> Claim:
    """Read the protocol of a claim; raises UnknownNameError with the known ones, ConfigError for a
    protocol that is none."""
    path = _folder(folder) / f"{name}.yaml"
    if name not in known_claims(folder):
        raise UnknownNameError(
            f"unknown claim {name!r}; known are: {', '.join(known_claims(folder)) or 'none'}"
        )
    return replace(load_config(Claim, path), name=name)


def _folder(folder: Path | None) -> Path:
    return Path(str(files("t2x.configs"))) / "claims" if folder is None else folder
