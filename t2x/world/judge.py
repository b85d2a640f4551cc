"""The judge: whether a picture of the emoji world shows exactly what a scene says.

It plays the part that an object detector plays in GenEval (Ghosh et al. 2023, arXiv 2310.11513),
by template matching (``t2x.world.detector``). It never trains, guides or labels anything. What it
may choose is little, and on validation prompts alone: the caption style of the ``dense`` arm, and a
generator's sampling settings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from t2x.world.detector import UNKNOWN, Detection, detect
from t2x.world.scene import Scene

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = [
    "FAULTS",
    "NATURAL_COLORS",
    "UNKNOWN",
    "Detection",
    "Judge",
    "Verdict",
    "color_matches",
    "detect",
    "judge_pictures",
]

FAULTS = ("object", "count", "colour", "relation")  # in the order in which they are looked for
MIN_OFFSET = 4.0  # pixels between the mean centres of two groups that make a relation

# What a person would call the colour of an untinted emoji; other classes have no single one.
NATURAL_COLORS: dict[str, frozenset[str]] = {
    cls: frozenset(colors.split())
    for cls, colors in {
        "cat": "orange yellow",
        "horse": "brown orange",
        "sheep": "white",
        "bear": "brown",
        "giraffe": "orange yellow",
        "bird": "blue",
        "teddy bear": "brown",
        "apple": "red",
        "banana": "yellow",
        "broccoli": "green",
        "carrot": "orange",
        "car": "red",
        "motorcycle": "red",
        "traffic light": "black",
        "stop sign": "red",
        "umbrella": "purple blue",
        "backpack": "red",
        "handbag": "brown",
        "skateboard": "black",
        "chair": "brown",
        "couch": "blue",
        "potted plant": "green",
        "book": "red",
        "clock": "red",
    }.items()
}


@dataclass(frozen=True)
class Verdict:
    """Whether a picture shows exactly its scene; ``fault`` (of ``FAULTS``) is the first kind of
    thing that is wrong, "" if none is, and ``reason`` says it in words.
    """

    correct: bool
    detections: tuple[Detection, ...]
    reason: str = ""
    fault: str = ""


def color_matches(cls: str, seen: str | None, wanted: str | None) -> bool:
    """Whether ``seen`` (None: natural) is right where ``wanted`` (None: any) is asked for."""
    if wanted is None or seen == wanted:
        return True
    return seen is None and wanted in NATURAL_COLORS.get(cls, frozenset())


def _assign(scene: Scene, found: Sequence[Detection]) -> list[list[Detection]] | None:
    """Give each detection to a group so that classes and colours are right; None if none can."""
    wanted = [index for index, group in enumerate(scene.groups) for _ in range(group.count)]
    for order in permutations(found):
        pairs = list(zip(wanted, order, strict=True))
        if all(
            d.cls == scene.groups[i].cls and color_matches(d.cls, d.color, scene.groups[i].color)
            for i, d in pairs
        ):
            return [[d for i, d in pairs if i == k] for k in range(len(scene.groups))]
    return None


def _relation_holds(relation: str, first: Sequence[Detection], second: Sequence[Detection]) -> bool:
    dx = np.mean([d.x for d in second]) - np.mean([d.x for d in first])
    dy = np.mean([d.y for d in second]) - np.mean([d.y for d in first])
    offset = {"left of": dx, "right of": -dx, "above": dy, "below": -dy}[relation]
    return bool(offset >= MIN_OFFSET)


def _describe(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{n} {cls}" for cls, n in sorted(counts)) or "nothing"


class Judge:
    """Decides whether pictures show exactly what a scene says, no more and no less."""

    def check(self, scene: Scene, picture: NDArray[np.uint8]) -> Verdict:
        """Judge one (64, 64, 3) uint8 picture."""
        return self.verdict(scene, detect(picture))

    def check_batch(
        self, scenes: Sequence[Scene], pictures: Sequence[NDArray[np.uint8]]
    ) -> list[Verdict]:
        """Judge N pictures, (N, 64, 64, 3) uint8, each against its own scene."""
        return [self.check(s, p) for s, p in zip(scenes, pictures, strict=True)]

    def verdict(self, scene: Scene, detections: Sequence[Detection]) -> Verdict:
        """Compare what was found with what was asked for."""
        found = tuple(detections)
        seen = Counter(d.cls for d in found)
        wanted = Counter[str]()
        for group in scene.groups:
            wanted[group.cls] += group.count
        if seen != wanted:
            reason = f"wanted {_describe(wanted.items())}; found {_describe(seen.items())}"
            return Verdict(False, found, reason, "count" if set(seen) == set(wanted) else "object")
        groups = _assign(scene, found)
        if groups is None:
            colors = ", ".join(f"{d.color or 'natural'} {d.cls}" for d in found)
            return Verdict(False, found, f"wrong colours: found {colors}", "colour")
        if scene.relation and not _relation_holds(scene.relation, *groups):
            return Verdict(False, found, f"not {scene.relation}", "relation")
        return Verdict(True, found)


def judge_pictures(scenes: Sequence[Scene], media: Media) -> list[Verdict]:
    """Judge media, (N, 3, 64, 64) or a list of (1, 3, 64, 64), each against its own scene."""
    from t2x.media import to_pil

    pictures = [np.asarray(picture) for picture in to_pil(media)]
    return Judge().check_batch(scenes, pictures)
