"""Pictures whose truth is known object by object, and the strict test of a text's scene against it.

Training data of the vision-language model: the truth comes from the renderer, never from the judge.
Backgrounds, places, extra objects and tints vary more than in any one set of captions, and some
objects are mixtures of two that no name fits, as half-trained generators draw them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from t2x.world.captions import training_scene
from t2x.world.render import COLOR_RGB, Placed, layout, light_background, render, sprite
from t2x.world.scene import CLASSES, COLORS, INVERSE, MAX_OBJECTS, Group, Scene
from t2x.world.split import has_held_out_pair

__all__ = [
    "NAMELESS",
    "Shown",
    "draw_shown",
    "offset",
    "patch_labels",
    "shows",
    "told_scene",
]

NAMELESS = "something"  # the class of an object that is a mixture of two
_SURE_OFFSET, _MIN_OFFSET = 7.0, 4.0  # pixels between mean centres: told in questions; true
_SIDES = {"left of": (1, 0), "right of": (-1, 0), "above": (0, 1), "below": (0, -1)}
_HINT, _PATCH = 0.08, 8


@dataclass(frozen=True)
class Shown:
    """One picture, (64, 64, 3) uint8, and all the ``objects`` in it."""

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
    """What a picture shows: no held-out pair, stated or by the places of two groups."""
    while True:
        scene = _filled(training_scene(rng), rng)
        if len(scene.groups) == 2:
            scene = replace(scene, relation=rng.choice(tuple(INVERSE)))
        if not has_held_out_pair(scene):
            return scene


def _background(rng: random.Random) -> tuple[float, float, float]:
    if rng.random() < 0.6:
        return light_background(rng)
    base = rng.uniform(0.78, 0.97)
    r, g, b = (min(1.0, base + rng.uniform(-0.07, 0.07)) for _ in range(3))
    return r, g, b


def _mixed(
    placed: list[Placed], background: tuple[float, float, float], rng: random.Random
) -> Shown:
    """A picture with one object that is half one class and half another."""
    index = rng.randrange(len(placed))
    other = replace(
        placed[index],
        cls=rng.choice([c for c in CLASSES if c != placed[index].cls]),
        size=placed[index].size + rng.randint(-3, 3),
    )
    second = render([*placed[:index], other, *placed[index + 1 :]], background)
    first = render(placed, background)
    if rng.random() < 0.5:
        share = rng.uniform(0.4, 0.6)
        picture = (first * share + second * (1 - share)).astype(np.uint8)
    else:  # left half of one, right half of the other, or upper and lower
        picture = first.copy()
        if rng.random() < 0.5:
            picture[:, placed[index].x :] = second[:, placed[index].x :]
        else:
            picture[placed[index].y :] = second[placed[index].y :]
    placed[index] = replace(placed[index], cls=NAMELESS, color=None)
    return Shown(picture, tuple(placed))


def draw_shown(rng: random.Random, *, nameless: float = 0.06) -> Shown:
    """Draw a picture of the training split; a share ``nameless`` holds an object of no class."""
    placed = layout(_content(rng), rng)
    if rng.random() < 0.4:
        placed = [
            replace(
                p, x=p.x + rng.randint(-3, 3), y=p.y + rng.randint(-3, 3), size=_resized(p, rng)
            )
            for p in placed
        ]
    background = _background(rng)
    if rng.random() < nameless:
        return _mixed(placed, background, rng)
    return Shown(render(placed, background), tuple(placed))


def _resized(placed: Placed, rng: random.Random) -> int:
    return max(14, round(placed.size * rng.uniform(0.8, 1.1)))


@lru_cache(maxsize=1024)
def _natural_share(cls: str, color: str) -> float:
    """Share of an untinted sprite's pixels that look more like ``color`` than like any other."""
    image = sprite(cls, None, 24)
    pixels = image[image[..., 3] > 0.9][:, :3] * 255
    table = np.array([COLOR_RGB[c] for c in COLORS], np.float32)
    nearest = np.square(pixels[:, None] - table).sum(-1).argmin(1)
    return float((nearest == COLORS.index(color)).mean())


def _color_fits(cls: str, seen: str | None, wanted: str | None) -> bool | None:
    """Whether a ``seen`` tint is the ``wanted`` colour; None where natural colours leave it
    open.
    """
    if wanted is None or seen == wanted:
        return True
    if seen is None and _natural_share(cls, wanted) > _HINT:
        return None
    return False


def offset(relation: str, first: Sequence[Placed], second: Sequence[Placed]) -> float:
    """How far, in pixels, the mean centre of ``first`` lies on the told side of that of
    ``second``.
    """
    dx, dy = _SIDES[relation]
    means = [(np.mean([p.x for p in g]), np.mean([p.y for p in g])) for g in (first, second)]
    return float((means[1][0] - means[0][0]) * dx + (means[1][1] - means[0][1]) * dy)


def _relation_fits(scene: Scene, order: Sequence[Placed]) -> bool | None:
    if scene.relation is None:
        return True
    cut = scene.groups[0].count
    value = offset(scene.relation, order[:cut], order[cut:])
    if _MIN_OFFSET - 2 < value < _SURE_OFFSET:
        return None
    return value >= _MIN_OFFSET


def _all(*values: bool | None) -> bool | None:
    """Conjunction in which None means not known."""
    if False in values:
        return False
    return None if None in values else True


def shows(scene: Scene, objects: Sequence[Placed]) -> bool | None:
    """Whether a picture of these objects shows exactly ``scene`` and nothing else.

    The same classes in the same numbers, the colours that the scene states, the side that it
    states. None: too close to call (places nearly level, a colour that the natural object has).
    """
    if Counter(p.cls for p in objects) != _class_counts(scene):
        return False
    wanted = [g for g in scene.groups for _ in range(g.count)]
    verdicts: set[bool | None] = set()
    for order in permutations(objects):
        if any(p.cls != g.cls for p, g in zip(order, wanted, strict=True)):
            continue
        colors = [_color_fits(p.cls, p.color, g.color) for p, g in zip(order, wanted, strict=True)]
        verdict = _all(*colors)
        verdicts.add(verdict if verdict is False else _all(verdict, _relation_fits(scene, order)))
        if True in verdicts:
            return True
    return None if None in verdicts else False


def _class_counts(scene: Scene) -> Counter[str]:
    counts: Counter[str] = Counter()
    for group in scene.groups:
        counts[group.cls] += group.count
    return counts


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
        true = [s for s in stated if shows(s, objects)]
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
