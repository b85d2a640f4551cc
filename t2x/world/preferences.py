"""Matches, near misses and preferences made from scene truth: what the world's reward models learn
from.

Nothing here looks at a picture: the truth is the scene, its layout and the corruption that was put
on top. The judge that measures the rewards takes no part. Prompts are of the training kinds, as
users type them, or of the careful caption styles; no held-out pair, kind or text occurs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from t2x.world.captions import STYLES, training_scene
from t2x.world.prompts import KINDS, SEEN_KINDS, sample_prompt, split_of
from t2x.world.render import COLOR_RGB, Placed, layout, light_background, render
from t2x.world.scene import CLASSES, COLORS, INVERSE, MAX_OBJECTS, RELATIONS, Group, Scene
from t2x.world.split import has_held_out_pair
from t2x.world.sprites import load_sprites

__all__ = [
    "PERTURBATIONS",
    "PreferencePair",
    "Shown",
    "natural_colors",
    "near_miss",
    "perturb",
    "preference_pair",
    "prompt_for",
    "satisfies",
    "show",
]

MIN_OFFSET = 4.0  # pixels between the mean centres of two groups for a relation to hold
_UNSURE_OFFSET = 3.0  # closer to MIN_OFFSET than this, it is left open
_TEXT_STYLES = ("layout", "sentence", "tags", "stock", "plain", "poetic")
_USER_SHARE = 0.7


@dataclass(frozen=True)
class Shown:
    """A picture (64, 64, 3) uint8 with its truth: the scene and where its objects lie."""

    scene: Scene
    placed: tuple[Placed, ...]
    picture: NDArray[np.uint8]


@dataclass(frozen=True)
class PreferencePair:
    """``prompt`` fits ``chosen`` better than ``rejected``, and ``reason`` says why.

    ``degrade`` says which of the two, chosen and rejected, are to be corrupted.
    """

    prompt: str
    chosen: Shown
    rejected: Shown
    reason: str
    degrade: tuple[bool, bool] = (False, False)


def _safe_layout(scene: Scene, rng: random.Random, held_out: bool) -> list[Placed]:
    """Place a scene so that a two-group picture shows no held-out relation, stated or not."""
    while True:
        stated = scene
        if len(scene.groups) == 2 and scene.relation is None:
            stated = replace(scene, relation=rng.choice(RELATIONS))
        if held_out or not has_held_out_pair(stated):
            return layout(stated, rng)


def _background(rng: random.Random) -> tuple[float, float, float]:
    """Mostly the light one, sometimes dull as a snapshot's or off in colour."""
    if rng.random() < 0.6:
        return light_background(rng)
    base = rng.uniform(0.8, 0.97)
    r, g, b = (min(1.0, base + rng.uniform(-0.06, 0.06)) for _ in range(3))
    return r, g, b


def show(scene: Scene, rng: random.Random, *, held_out: bool = False) -> Shown:
    """Draw ``scene``, its objects pushed about by up to three pixels one time in three.

    ``held_out`` allows held-out pairs, for measuring; a scene that states one needs it.
    """
    placed = _safe_layout(scene, rng, held_out)
    if rng.random() < 0.33:
        placed = [
            replace(p, x=p.x + rng.randint(-3, 3), y=p.y + rng.randint(-3, 3)) for p in placed
        ]
    return Shown(scene, tuple(placed), render(placed, _background(rng)))


def prompt_for(shown: Shown, rng: random.Random) -> str:
    """Text that asks for the scene: a user prompt of the training kinds, or a careful caption of
    this very layout.
    """
    if rng.random() >= _USER_SHARE:
        return STYLES[rng.choice(_TEXT_STYLES)](shown.scene, list(shown.placed), rng)
    kinds = [k for k in SEEN_KINDS if KINDS[k].suits(shown.scene)]
    while True:
        text = sample_prompt(shown.scene, rng.choice(kinds), rng).text
        if split_of(text) == "train":
            return text


# ---- near misses -------------------------------------------------------------------------------


def _with(scene: Scene, index: int, group: Group) -> Scene:
    return replace(scene, groups=(*scene.groups[:index], group, *scene.groups[index + 1 :]))


def _other_class(scene: Scene, rng: random.Random) -> str:
    return rng.choice([c for c in CLASSES if c not in {g.cls for g in scene.groups}])


def _recolor(scene: Scene, rng: random.Random) -> Scene | None:
    """Another colour, or natural colours, where one is stated."""
    colored = [i for i, g in enumerate(scene.groups) if g.color]
    if not colored:
        return None
    i = rng.choice(colored)
    group = scene.groups[i]
    color = None if rng.random() < 0.25 else rng.choice([c for c in COLORS if c != group.color])
    return _with(scene, i, replace(group, color=color))


def _swap_colors(scene: Scene, rng: random.Random) -> Scene | None:
    """Two groups trade colours, or one colour leaks to the other."""
    pairs = [
        (i, j)
        for i, a in enumerate(scene.groups)
        for j, b in enumerate(scene.groups)
        if i < j and a.color != b.color
    ]
    if not pairs:
        return None
    i, j = rng.choice(pairs)
    a, b = scene.groups[i], scene.groups[j]
    if a.color and b.color and rng.random() < 0.3:
        return _with(scene, j, replace(b, color=a.color))
    if not (a.color and b.color) and rng.random() < 0.5:
        return _with(
            _with(scene, i, replace(a, color=a.color or b.color)),
            j,
            replace(b, color=b.color or a.color),
        )
    return _with(_with(scene, i, replace(a, color=b.color)), j, replace(b, color=a.color))


def _recount(scene: Scene, rng: random.Random) -> Scene | None:
    i = rng.randrange(len(scene.groups))
    group = scene.groups[i]
    room = MAX_OBJECTS - scene.num_objects
    choices = [n for n in (group.count - 1, group.count + 1) if n >= 1 and n - group.count <= room]
    return _with(scene, i, replace(group, count=rng.choice(choices))) if choices else None


def _reclass(scene: Scene, rng: random.Random) -> Scene | None:
    i = rng.randrange(len(scene.groups))
    return _with(scene, i, replace(scene.groups[i], cls=_other_class(scene, rng)))


def _flip(scene: Scene, rng: random.Random) -> Scene | None:
    """The opposite relation, or now and then one along the other axis."""
    if scene.relation is None:
        return None
    if rng.random() < 0.75:
        return replace(scene, relation=INVERSE[scene.relation])
    return replace(scene, relation=rng.choice([r for r in RELATIONS if r != scene.relation]))


def _trade_places(scene: Scene, rng: random.Random) -> Scene | None:
    """Two groups trade classes: with counts or colours it is another scene."""
    if len(scene.groups) != 2:
        return None
    a, b = scene.groups
    return replace(scene, groups=(replace(a, cls=b.cls), replace(b, cls=a.cls)))


def _add(scene: Scene, rng: random.Random) -> Scene | None:
    if scene.num_objects == MAX_OBJECTS:
        return None
    return Scene((*scene.groups, Group(_other_class(scene, rng))))


def _drop(scene: Scene, rng: random.Random) -> Scene | None:
    if len(scene.groups) == 1:
        return None
    gone = rng.randrange(len(scene.groups))
    return Scene(tuple(g for i, g in enumerate(scene.groups) if i != gone))


PERTURBATIONS: dict[str, tuple[Callable[[Scene, random.Random], Scene | None], float]] = {
    "recolor": (_recolor, 1.5),
    "swap colors": (_swap_colors, 3.0),
    "recount": (_recount, 1.0),
    "reclass": (_reclass, 0.7),
    "flip": (_flip, 4.0),
    "trade": (_trade_places, 1.0),
    "add": (_add, 0.7),
    "drop": (_drop, 0.5),
}


def perturb(scene: Scene, rng: random.Random, *, held_out: bool = False) -> tuple[Scene, str]:
    """Change one thing, so that a picture of the result does not show ``scene``; give it and the
    name of the change.

    The result holds no held-out pair unless ``held_out`` allows it.
    """
    names, weights = list(PERTURBATIONS), [w for _, w in PERTURBATIONS.values()]
    while True:
        name = rng.choices(names, weights)[0]
        try:
            changed = PERTURBATIONS[name][0](scene, rng)
        except ValueError:  # too many objects, or two equal groups
            continue
        if changed is None or changed == scene:
            continue
        if not held_out and has_held_out_pair(changed):
            continue
        if not _may_match(scene, changed):
            return changed, name


def near_miss(shown: Shown, rng: random.Random, *, held_out: bool = False) -> tuple[Shown, str]:
    """Draw a picture that is one change away; recoloured objects mostly stay where they were."""
    while True:
        scene, name = perturb(shown.scene, rng, held_out=held_out)
        missed = show(scene, rng, held_out=held_out)
        told = Counter(g.cls for g in scene.groups for _ in range(g.count))
        # A picture may show other objects than its scene tells: then there is nothing to keep.
        same = told == Counter(p.cls for p in shown.placed)
        if same and name in ("recolor", "swap colors") and rng.random() < 0.7:
            missed = _in_place(shown, scene, rng)
        if satisfies(shown.scene, missed.placed) is False:
            return missed, name


def _in_place(shown: Shown, scene: Scene, rng: random.Random) -> Shown:
    """The same layout in the colours of ``scene``, whose groups are those of ``shown`` in order."""
    colors = [g.color for g in scene.groups for _ in range(g.count)]
    placed = [replace(p, color=c) for p, c in zip(shown.placed, colors, strict=True)]
    return Shown(scene, tuple(placed), render(placed, _background(rng)))


# ---- truth -------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def natural_colors(cls: str) -> frozenset[str]:
    """Names of the two palette colours that lie nearest to the natural look: asking for one of
    these is left open.
    """
    rgba = load_sprites()[cls]
    mean = (rgba[..., :3] * rgba[..., 3:]).sum((0, 1)) / rgba[..., 3:].sum()
    order = sorted(COLORS, key=lambda c: float(np.abs(mean * 255 - np.array(COLOR_RGB[c])).sum()))
    return frozenset(order[:2])


def _color_fits(cls: str, seen: str | None, wanted: str | None) -> bool | None:
    if wanted is None or seen == wanted:
        return True
    if seen is None and wanted in natural_colors(cls):
        return None
    return False


def _may_match(wanted: Scene, shown: Scene) -> bool:
    """Whether some picture of ``shown`` could show what ``wanted`` says, relations aside if
    ``shown`` states none.
    """
    objects = [
        Placed(g.cls, g.color, 0, 0, 0, "center") for g in shown.groups for _ in range(g.count)
    ]
    fits = satisfies(replace(wanted, relation=None), objects)
    if wanted.relation and shown.relation:
        a = {(g.cls, g.color): i for i, g in enumerate(wanted.groups)}
        b = {(g.cls, g.color): i for i, g in enumerate(shown.mirrored().groups)}
        same = shown.relation == wanted.relation and shown.groups == wanted.groups
        turned = shown.mirrored().relation == wanted.relation and a == b
        return fits is not False and (same or turned)
    return fits is not False


def satisfies(scene: Scene, placed: Sequence[Placed]) -> bool | None:
    """Whether objects show exactly ``scene``: True, False, or None where it is a matter of taste.

    Exactly its classes and counts, colours right where stated, and the relation as the difference
    of the groups' mean centres.
    """
    wanted = Counter[str]()
    for g in scene.groups:
        wanted[g.cls] += g.count
    if wanted != Counter(p.cls for p in placed):
        return False
    return _assign(list(scene.groups), list(placed), scene.relation, [])


def _assign(
    groups: list[Group], rest: list[Placed], relation: str | None, done: list[list[Placed]]
) -> bool | None:
    """Give each group its objects in every possible way; the best one counts."""
    if not groups:
        return _relation_holds(relation, done) if relation else True
    group = groups[0]
    best: bool | None = False
    for chosen in _subsets([p for p in rest if p.cls == group.cls], group.count):
        fits = [_color_fits(p.cls, p.color, group.color) for p in chosen]
        if False in fits:
            continue
        left = [p for p in rest if not any(p is c for c in chosen)]
        below = _assign(groups[1:], left, relation, [*done, chosen])
        here = None if (None in fits and below) else below
        if here:
            return True
        if here is None:
            best = None
    return best


def _subsets(items: list[Placed], size: int) -> list[list[Placed]]:
    if size == 0:
        return [[]]
    return [
        [items[i], *more] for i in range(len(items)) for more in _subsets(items[i + 1 :], size - 1)
    ]


def _relation_holds(relation: str, groups: list[list[Placed]]) -> bool | None:
    first, second = groups
    dx = float(np.mean([p.x for p in second]) - np.mean([p.x for p in first]))
    dy = float(np.mean([p.y for p in second]) - np.mean([p.y for p in first]))
    offset = {"left of": dx, "right of": -dx, "above": dy, "below": -dy}[relation]
    if abs(offset - MIN_OFFSET) < _UNSURE_OFFSET:
        return None
    return offset > MIN_OFFSET


# ---- preferences -------------------------------------------------------------------------------


def preference_pair(seed: int) -> PreferencePair:
    """The training preference number ``seed``.

    Two in three: right scene against one that is off by a change, both clean, both corrupted, or
    only one of them. One in six: the same scene clean against corrupted. One in six: one change
    against several.
    """
    rng = random.Random(f"preference {seed}")
    right = show(training_scene(rng), rng)
    prompt = prompt_for(right, rng)
    draw = rng.random()
    if draw < 1 / 6:
        return PreferencePair(prompt, right, right, "corrupted", (False, True))
    missed, name = near_miss(right, rng)
    if draw < 1 / 3:
        return PreferencePair(prompt, missed, _worse(missed, right.scene, rng), "several changes")
    both = rng.random() < 0.5
    degrade = (both, both) if rng.random() < 0.7 else (rng.random() < 0.5, rng.random() < 0.5)
    return PreferencePair(prompt, right, missed, name, degrade)


def _worse(missed: Shown, wanted: Scene, rng: random.Random) -> Shown:
    """Move two more changes away from ``wanted``: other classes throughout, or objects added."""
    scene = missed.scene
    shared = {g.cls for g in wanted.groups}
    for _ in range(2):
        kept = [i for i, g in enumerate(scene.groups) if g.cls in shared]
        if kept:
            i = rng.choice(kept)
            options = [c for c in CLASSES if c not in shared | {g.cls for g in scene.groups}]
            cls = rng.choice(options)
            changed = _with(scene, i, Group(cls, None, scene.groups[i].count))
            scene = changed if not has_held_out_pair(changed) else replace(changed, relation=None)
    return show(scene, rng)
