"""Pictures whose truth is known object by object: training data of the vision-language model.

Backgrounds, places, extra objects and tints vary more than in any one set of captions, and some
objects are mixtures of two that no name fits, as half-trained generators draw them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from t2x.world.captions import training_scene
from t2x.world.placing import fits_training, place, shows_held_out
from t2x.world.render import Placed, any_background, render
from t2x.world.scene import CLASSES, COLORS, INVERSE, MAX_OBJECTS, Group, Scene
from t2x.world.split import has_held_out_pair
from t2x.world.truth import satisfies

__all__ = [
    "NAMELESS",
    "Drawn",
    "draw_shown",
    "patch_labels",
    "told_scene",
]

NAMELESS = "something"  # the class of an object that is a mixture of two
_PATCH = 8  # pixels


@dataclass(frozen=True)
class Drawn:
    """One picture, (64, 64, 3) uint8, and all the ``objects`` in it, told by no scene."""

    picture: NDArray[np.uint8]
    objects: tuple[Placed, ...]

    @property
    def nameless(self) -> bool:
        """Whether an object is of no class."""
        return any(p.cls == NAMELESS for p in self.objects)


def _filled(scene: Scene, rng: random.Random) -> Scene:
    """Decide what a scene leaves open: tints of its colourless groups, and objects it is silent
    about.
    """
    groups: list[Group] = []
    for group in scene.groups:
        if group.color is None and rng.random() < 0.3:
            group = replace(group, color=rng.choice(COLORS))
        groups.append(group)
    if groups[0].count > 1 and rng.random() < 0.1:  # one of several alike is not alike
        odd = rng.choice([c for c in COLORS if c != groups[0].color])
        groups[0] = replace(groups[0], count=groups[0].count - 1)
        groups.append(Group(groups[0].cls, odd))
    room = MAX_OBJECTS - sum(g.count for g in groups)
    if room and rng.random() < 0.25:
        others = [c for c in CLASSES if c not in {g.cls for g in groups}]
        groups += [Group(c) for c in rng.sample(others, rng.randint(1, min(2, room)))]
    return Scene(tuple(groups))


def _content(rng: random.Random) -> Scene:
    """What a picture shows, decided where a scene leaves it open."""
    while True:
        scene = _filled(training_scene(rng), rng)
        if fits_training(scene):
            return scene


def _mixed(
    placed: list[Placed], background: tuple[float, float, float], rng: random.Random
) -> Drawn | None:
    """A picture with one object that is half one class and half another, neither of them where it
    is held out; None if the others leave no such class.
    """
    index = rng.randrange(len(placed))
    size = placed[index].size + rng.randint(-3, 3)
    others = [
        [*placed[:index], replace(placed[index], cls=cls, size=size), *placed[index + 1 :]]
        for cls in CLASSES
        if cls != placed[index].cls
    ]
    fit = [objects for objects in others if not shows_held_out(objects)]
    if not fit:
        return None
    first, second = render(placed, background), render(rng.choice(fit), background)
    if rng.random() < 0.5:
        share = rng.uniform(0.4, 0.6)
        picture = (first * share + second * (1 - share)).astype(np.uint8)
    else:  # left half of one, right half of the other, or upper and lower
        picture = first.copy()
        if rng.random() < 0.5:
            picture[:, placed[index].x :] = second[:, placed[index].x :]
        else:
            picture[placed[index].y :] = second[placed[index].y :]
    nameless = replace(placed[index], cls=NAMELESS, color=None)
    return Drawn(picture, (*placed[:index], nameless, *placed[index + 1 :]))


def draw_shown(rng: random.Random, *, nameless: float = 0.06) -> Drawn:
    """Draw a picture of the training split; a share ``nameless`` holds an object of no class."""
    mix = rng.random() < nameless
    while True:
        placed = place(_content(rng), rng, pushed=0.4)
        if rng.random() < 0.4:
            placed = [replace(p, size=_resized(p, rng)) for p in placed]
        background = any_background(rng)
        shown = _mixed(placed, background, rng) if mix else None
        if shown is not None or not mix:
            return shown or Drawn(render(placed, background), tuple(placed))


def _resized(placed: Placed, rng: random.Random) -> int:
    return max(14, round(placed.size * rng.uniform(0.8, 1.1)))


def told_scene(objects: Sequence[Placed], rng: random.Random) -> Scene | None:
    """A scene that these objects show exactly; it may leave tints and places untold.

    None if an object has no name, or if what could be told is held out.
    """
    if any(p.cls == NAMELESS for p in objects):
        return None
    counts = Counter((p.cls, p.color) for p in objects)
    classes = Counter(cls for cls, _ in counts)
    groups = [
        Group(cls, color if classes[cls] > 1 or rng.random() < 0.75 else None, count)
        for (cls, color), count in counts.items()
    ]
    scene = Scene(tuple(rng.sample(groups, len(groups))))
    if len(groups) == 2 and rng.random() < 0.6:
        stated = [replace(scene, relation=r) for r in INVERSE]
        true = [s for s in stated if satisfies(s, objects)]
        scene = rng.choice(true) if true else scene
    return None if has_held_out_pair(scene) else scene


def patch_labels(objects: Sequence[Placed]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What each 8x8 patch shows, row by row: class, (64,) with 0 background, 1 to 45 ``CLASSES``,
    46 nameless; and colour, (64,) with 0 natural, 1 to 10 ``COLORS``, -100 where there is none.
    """
    centers = np.arange(_PATCH // 2, 64, _PATCH)
    kinds = np.zeros((8, 8), np.int64)
    colors = np.full((8, 8), -100, np.int64)
    for p in objects:
        rows = np.abs(centers - p.y) < 0.42 * p.size
        columns = np.abs(centers - p.x) < 0.42 * p.size
        inside = np.ix_(rows, columns)
        kinds[inside] = 1 + (len(CLASSES) if p.cls == NAMELESS else CLASSES.index(p.cls))
        colors[inside] = (
            -100 if p.cls == NAMELESS else 0 if p.color is None else 1 + COLORS.index(p.color)
        )
    return kinds.ravel(), colors.ravel()
