"""Scenes of the emoji world: what a picture shows, told apart from how it is drawn and how it is
said.

A scene is one to four objects in groups; ``sample_scene`` draws up to three groups. A group is a
class, a colour (None: the emoji's natural colours) and a count. A two-group scene may state a
relation: all of the first group lie on that side of all of the second. The six tasks are those of
GenEval (Ghosh et al. 2023, arXiv 2310.11513); its prompts are not used anywhere.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "CLASSES",
    "COLORS",
    "EMOJI",
    "INVERSE",
    "MAX_OBJECTS",
    "RELATIONS",
    "TASKS",
    "Group",
    "Scene",
    "sample_scene",
]

# COCO / GenEval classes that have a Noto emoji. "orange" is left out: it would be a class and a
# colour at once.
EMOJI: dict[str, str] = {
    "cat": "🐈",
    "dog": "🐕",
    "horse": "🐎",
    "cow": "🐄",
    "sheep": "🐑",
    "elephant": "🐘",
    "bear": "🐻",
    "zebra": "🦓",
    "giraffe": "🦒",
    "bird": "🐦",
    "teddy bear": "🧸",
    "apple": "🍎",
    "banana": "🍌",
    "broccoli": "🥦",
    "carrot": "🥕",
    "pizza": "🍕",
    "hot dog": "🌭",
    "sandwich": "🥪",
    "donut": "🍩",
    "cake": "🎂",
    "wine glass": "🍷",
    "cup": "🥤",
    "bicycle": "🚲",
    "motorcycle": "🏍️",
    "car": "🚗",
    "bus": "🚌",
    "truck": "🚚",
    "train": "🚂",
    "airplane": "✈️",
    "boat": "⛵",
    "traffic light": "🚦",
    "stop sign": "🛑",
    "umbrella": "☂️",
    "backpack": "🎒",
    "handbag": "👜",
    "tie": "👔",
    "kite": "🪁",
    "skateboard": "🛹",
    "chair": "🪑",
    "couch": "🛋️",
    "potted plant": "🪴",
    "tv": "📺",
    "laptop": "💻",
    "book": "📕",
    "clock": "⏰",
}
CLASSES: tuple[str, ...] = tuple(EMOJI)
COLORS: tuple[str, ...] = (
    "red",
    "orange",
    "yellow",
    "green",
    "blue",
    "purple",
    "pink",
    "brown",
    "black",
    "white",
)
RELATIONS: tuple[str, ...] = ("left of", "right of", "above", "below")
INVERSE: dict[str, str] = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
}
TASKS: tuple[str, ...] = (
    "single_object",
    "two_object",
    "counting",
    "colors",
    "position",
    "color_attr",
)
MAX_OBJECTS = 4


@dataclass(frozen=True)
class Group:
    """``count`` objects of class ``cls``, all in ``color`` (None: natural)."""

    cls: str
    color: str | None = None
    count: int = 1

    def __post_init__(self) -> None:
        if self.cls not in EMOJI:
            raise ValueError(f"unknown class {self.cls!r}; allowed: {', '.join(CLASSES)}")
        if self.color is not None and self.color not in COLORS:
            raise ValueError(f"unknown colour {self.color!r}; allowed: {', '.join(COLORS)}")
        if not 1 <= self.count <= MAX_OBJECTS:
            raise ValueError(f"count is {self.count}; allowed: 1 to {MAX_OBJECTS}")


@dataclass(frozen=True)
class Scene:
    """Groups of objects; ``relation`` places ``groups[0]`` with respect to ``groups[1]`` and needs
    exactly two groups."""

    groups: tuple[Group, ...]
    relation: str | None = None

    def __post_init__(self) -> None:
        if not 1 <= sum(g.count for g in self.groups) <= MAX_OBJECTS:
            raise ValueError(f"a scene holds 1 to {MAX_OBJECTS} objects, got {self.groups}")
        if len({(g.cls, g.color) for g in self.groups}) != len(self.groups):
            raise ValueError(f"two groups are the same: {self.groups}")
        if self.relation is not None:
            if self.relation not in RELATIONS:
                raise ValueError(
                    f"unknown relation {self.relation!r}; allowed: {', '.join(RELATIONS)}"
                )
            if len(self.groups) != 2:
                raise ValueError(f"a relation needs two groups, got {len(self.groups)}")

    @property
    def num_objects(self) -> int:
        """Number of objects over all groups."""
        return sum(g.count for g in self.groups)

    @property
    def task(self) -> str:
        """The GenEval task that this scene tests, or ``"mixed"`` when it tests several at once."""
        colored = [g.color is not None for g in self.groups]
        many = any(g.count > 1 for g in self.groups)
        if len(self.groups) == 1:
            if many:
                return "mixed" if colored[0] else "counting"
            return "colors" if colored[0] else "single_object"
        if len(self.groups) > 2 or many:
            return "mixed"
        if self.relation:
            return "mixed" if any(colored) else "position"
        if all(colored):
            return "color_attr"
        return "mixed" if any(colored) else "two_object"

    def mirrored(self) -> Scene:
        """The same scene told from the second group: A left of B becomes B right of A."""
        if self.relation is None:
            return self
        return Scene((self.groups[1], self.groups[0]), INVERSE[self.relation])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Scene:
        """Inverse of :meth:`to_dict`."""
        return Scene(tuple(Group(**g) for g in data["groups"]), data.get("relation"))


def sample_scene(task: str, rng: random.Random) -> Scene:
    """Draw a scene that tests ``task`` (one of ``TASKS`` or ``"mixed"``), uniform over classes and
    colours."""
    if task == "mixed":
        return _sample_mixed(rng)
    pair = rng.sample(CLASSES, 2)
    first, second = rng.sample(COLORS, 2)
    if task == "single_object":
        return Scene((Group(pair[0]),))
    if task == "counting":
        return Scene((Group(pair[0], None, rng.randint(2, MAX_OBJECTS)),))
    if task == "colors":
        return Scene((Group(pair[0], first),))
    if task == "two_object":
        return Scene((Group(pair[0]), Group(pair[1])))
    if task == "position":
        return Scene((Group(pair[0]), Group(pair[1])), rng.choice(RELATIONS))
    if task == "color_attr":
        return Scene((Group(pair[0], first), Group(pair[1], second)))
    raise ValueError(f"unknown task {task!r}; allowed: {', '.join((*TASKS, 'mixed'))}")


def _sample_mixed(rng: random.Random) -> Scene:
    """Draw colours, counts and relations together: coloured counts, uneven pairs, three kinds of
    object."""
    num_groups = rng.choices((1, 2, 3), (2, 5, 2))[0]
    classes = rng.sample(CLASSES, num_groups)
    colors = rng.sample(COLORS, num_groups)
    picked = [c if rng.random() < 0.6 else None for c in colors]
    if num_groups == 1:
        return Scene((Group(classes[0], colors[0], rng.randint(2, MAX_OBJECTS)),))
    counts: tuple[int, ...]
    if num_groups == 3:
        counts = rng.choice(((1, 1, 1), (1, 1, 1), (2, 1, 1)))
    else:
        counts = rng.choice(((1, 1), (2, 1), (1, 2), (2, 2)))
    groups = tuple(Group(*args) for args in zip(classes, picked, counts, strict=True))
    relation = rng.choice(RELATIONS) if num_groups == 2 and rng.random() < 0.6 else None
    return Scene(groups, relation)
