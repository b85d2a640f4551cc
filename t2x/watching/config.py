"""The section ``watch`` of a recipe's configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from t2x.errors import T2XError
from t2x.watching.alarms import AlarmConfig

__all__ = ["HeldOutSection", "SampleSection", "WatchConfig"]


@dataclass(frozen=True)
class HeldOutSection:
    """What is measured on validation prompts while a rewriter is trained.

    Args:
        rewards: names with weights; others than the training's, or they would share its faults. A
            judge that the trained model is evaluated by has no place here.
        options: of rewards, by name.
        generator: what draws; None is the training's own.
        prompts: how many, the first of the validation rows.
        pictures: seeds per prompt, the same at every measurement and for the user's own words.
        every: steps between two measurements; the first is before the training, the last at its
            end.
        similarity: encoder of sentences for the drift (``minilm``, a folder or a hub id); None
            counts the user's content words that are left, which costs nothing.
    """

    rewards: dict[str, float]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    generator: str | None = None
    prompts: int = 48
    pictures: int = 1
    every: int = 20
    similarity: str | None = None

    def __post_init__(self) -> None:
        if not self.rewards:
            raise T2XError("held_out.rewards is empty; give names with weights, as align: 1.0")
        for name in ("prompts", "pictures", "every"):
            if getattr(self, name) < 1:
                raise T2XError(f"held_out.{name} is {getattr(self, name)}; give at least 1")


@dataclass(frozen=True)
class SampleSection:
    """Pictures that are kept: of the first ``prompts`` held-out prompts, ``pictures`` of each, with
    the same seeds every time; every ``every`` steps (a multiple of ``held_out.every``).
    """

    prompts: int = 6
    pictures: int = 1
    every: int = 100

    def __post_init__(self) -> None:
        for name in ("prompts", "pictures", "every"):
            if getattr(self, name) < 1:
                raise T2XError(f"samples.{name} is {getattr(self, name)}; give at least 1")


@dataclass(frozen=True)
class WatchConfig:
    """How a training is watched. ``log.jsonl`` is written always.

    Args:
        held_out: measured on validation prompts; None measures nothing and stops nothing for it.
        samples: pictures of the held-out prompts; None keeps none.
        alarms: limits, and which of them end the run.
        report: steps between two writings of report.html, which is written at the end too; 0 never
            writes it.
        bar: whether to draw a progress bar.
        keep_best: save a checkpoint where the held-out reward is the highest so far, spare it from
            ``save_total_limit``, and end with its weights. Without it, a run that an alarm ended
            ends with those that it had then.
    """

    held_out: HeldOutSection | None = None
    samples: SampleSection | None = None
    alarms: AlarmConfig = field(default_factory=AlarmConfig)
    report: int = 100
    bar: bool = True
    keep_best: bool = False

    def __post_init__(self) -> None:
        if self.report < 0:
            raise T2XError(f"watch.report is {self.report}; give steps, or 0 for none")
        if self.held_out is None and (self.samples is not None or self.keep_best):
            raise T2XError("watch.samples and watch.keep_best need watch.held_out")
        if self.samples is not None and self.held_out is not None:
            if self.samples.every % self.held_out.every:
                raise T2XError(
                    f"samples.every is {self.samples.every}; give a multiple of held_out.every, "
                    f"{self.held_out.every}"
                )
            if self.samples.prompts > self.held_out.prompts:
                raise T2XError(
                    f"samples.prompts is {self.samples.prompts}, of {self.held_out.prompts} "
                    "held-out prompts; give fewer"
                )
            if self.samples.pictures > self.held_out.pictures:
                raise T2XError(
                    f"samples.pictures is {self.samples.pictures} of {self.held_out.pictures} "
                    "held-out pictures; give fewer"
                )
