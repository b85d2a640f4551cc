"""One prompt with and without a rewrite: pictures of the same seeds, and their scores against the
user's own words.

Scores that could not be measured are NaN; they leave means and differences, and are counted.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any

from t2x.plain import plain
from t2x.types import Rewrite

if TYPE_CHECKING:
    from PIL.Image import Image

ARMS = ("original", "rewritten")
_SAME = 1e-6  # smaller differences are rounding

__all__ = ["ARMS", "RewardColumn", "SideBySide"]


@dataclass(frozen=True)
class RewardColumn:
    """Scores by one reward: one per seed in either arm, higher is better, NaN is not measured.

    ``scale`` says in words what the numbers are, ``range`` is (lowest, highest) and may be
    infinite; ``problem`` is one line if the reward could not be used at all.
    """

    name: str
    original: tuple[float, ...]
    rewritten: tuple[float, ...]
    scale: str = ""
    range: tuple[float, float] = (-math.inf, math.inf)
    problem: str = ""

    @property
    def pairs(self) -> list[tuple[float, float]]:
        """(original, rewritten) of the seeds where both were measured."""
        both = zip(self.original, self.rewritten, strict=True)
        return [pair for pair in both if all(map(math.isfinite, pair))]

    @property
    def missing(self) -> int:
        """Scores, of both arms together, that could not be measured."""
        return sum(not math.isfinite(value) for value in (*self.original, *self.rewritten))

    def mean(self, arm: str) -> float:
        """Mean of an arm over the seeds where both arms were measured; NaN if there are none."""
        values = [pair[ARMS.index(arm)] for pair in self.pairs]
        return fmean(values) if values else math.nan

    @property
    def difference(self) -> float:
        """Mean of rewritten minus original over the same seeds; 0 within rounding, or NaN."""
        change = self.mean("rewritten") - self.mean("original")
        return 0.0 if abs(change) < _SAME else change

    @property
    def won(self) -> int:
        """Seeds whose rewritten picture scores higher."""
        return sum(after - before >= _SAME for before, after in self.pairs)

    @property
    def lost(self) -> int:
        """Seeds whose rewritten picture scores lower."""
        return sum(before - after >= _SAME for before, after in self.pairs)

    @property
    def axis(self) -> tuple[float, float]:
        """Ends of a bar that shows these scores: the reward's range, without its negative half if
        nothing reaches there; an end that is infinite becomes 0 or the furthest score."""
        values = [value for pair in self.pairs for value in pair] or [0.0, 1.0]
        low, high = self.range
        if min(values) >= 0:
            low = max(low, 0.0)
        low = min(values) if math.isinf(low) else low
        high = max(values) if math.isinf(high) else high
        return low, high if high > low else low + 1.0

    def share(self, value: float) -> float:
        """Where a score lies on the axis, in [0, 1]."""
        low, high = self.axis
        return min(1.0, max(0.0, (value - low) / (high - low)))

    def record(self) -> dict[str, Any]:
        """Give the scores and what follows from them."""
        measured = len(self.pairs)
        return {
            "scale": self.scale,
            "range": list(self.range),
            "problem": self.problem,
            "original": list(self.original),
            "rewritten": list(self.rewritten),
            "mean": {arm: self.mean(arm) for arm in ARMS},
            "difference": self.difference,
            "seeds": {
                "measured": measured,
                "won": self.won,
                "lost": self.lost,
                "tied": measured - self.won - self.lost,
            },
            "missing": self.missing,
        }


@dataclass(frozen=True)
class SideBySide:
    """Outcome of the demo.

    ``pictures`` holds per arm one RGB picture per seed. ``settings`` and ``versions`` are plain
    values; ``seconds`` holds the time of each phase and is the only part that changes from run to
    run. ``syntax`` is what became of each arm's syntax (``PreparedPrompt.record``), of those that
    have any. ``command`` repeats the run; it is "" if a part of it was given as a Python object,
    and ``objects`` then says what each of those was.
    """

    rewrite: Rewrite
    seeds: tuple[int, ...]
    pictures: Mapping[str, tuple[Image, ...]]
    rewards: tuple[RewardColumn, ...]
    generator: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    objects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    picked: bool = False
    seconds: Mapping[str, float] = field(default_factory=dict)
    syntax: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """The user's own words."""
        return self.rewrite.original

    @property
    def changed(self) -> bool:
        """Whether the arms differ; if not, both hold the same pictures."""
        return self.rewrite.changed

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why checks were not passed, one line each."""
        return tuple(c.reason or c.name for c in self.rewrite.checks if not c.passed)

    def summary(self) -> str:
        """One sentence on what the rewrite did to the scores, for better or worse."""
        if not self.changed:
            why = f" ({'; '.join(self.reasons)})" if self.reasons else ""
            return f"Rewrite {self.rewrite.status}{why}: both sides show the same pictures."
        measured = [reward for reward in self.rewards if reward.pairs]
        if not measured:
            return "No reward could be measured, so the pictures have to speak for themselves."
        up = [reward.name for reward in measured if reward.difference > 0]
        down = [reward.name for reward in measured if reward.difference < 0]
        sentence = f"The rewrite scores {_counted(up, down, measured)}"
        if unmeasured := [reward.name for reward in self.rewards if not reward.pairs]:
            sentence += f"; not measured: {', '.join(unmeasured)}"
        return f"{sentence}."

    def record(self) -> dict[str, Any]:
        """Give everything but the pixels as JSON values, NaN and infinity as None; only "seconds"
        differs between runs."""
        rewrite = asdict(self.rewrite)
        record: dict[str, Any] = {
            "prompt": self.prompt,
            "picked": self.picked,
            "summary": self.summary(),
            "rewrite": {key: rewrite[key] for key in rewrite if key != "original"},
            "generator": {"model": self.generator, "settings": self.settings},
            "arms": {
                arm: {
                    "prompt": self.rewrite.text if arm == "rewritten" else self.prompt,
                    "negative": self.rewrite.negative if arm == "rewritten" else "",
                    "pictures": [
                        {"seed": seed, "size": [image.height, image.width], "sha256": _hash(image)}
                        for seed, image in zip(self.seeds, self.pictures[arm], strict=True)
                    ],
                    **({"syntax": self.syntax[arm]} if arm in self.syntax else {}),
                }
                for arm in ARMS
            },
            "rewards": {reward.name: reward.record() for reward in self.rewards},
            "versions": self.versions,
            "command": self.command or None,
            "objects": self.objects,
            "seconds": self.seconds,
        }
        values: dict[str, Any] = plain(record)
        return values


def _counted(up: list[str], down: list[str], measured: list[RewardColumn]) -> str:
    """Say on how many rewards the mean rose and fell."""
    total = len(measured)
    noun = "reward" if total == 1 else "rewards"
    if not up and not down:
        return f"the same on all {total} {noun}" if total > 1 else "the same"
    parts: list[str] = []
    for word, names in (("higher", up), ("lower", down)):
        if len(names) == total:
            return f"{word} on all {total} {noun}" if total > 1 else f"{word} on {names[0]}"
        if names:
            of_all = "" if parts else f" of {total} {noun}"
            parts.append(f"{word} on {len(names)}{of_all} ({', '.join(names)})")
    return ", ".join(parts)


def _hash(image: Image) -> str:
    """SHA-256 of the RGB bytes, row by row."""
    return hashlib.sha256(image.convert("RGB").tobytes()).hexdigest()
