"""Matches, near misses and preferences made from scene truth: what the world's reward models learn
from.

Nothing here looks at a picture: the truth is the scene, its layout and the corruption that was put
on top. The judge that measures the rewards takes no part. Prompts are of the training kinds, as
users type them, or of the careful caption styles; no held-out pair, kind or text occurs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from t2x.world.captions import training_scene
from t2x.world.placing import fits_training, place
from t2x.world.prompts import training_caption, training_text
from t2x.world.render import Placed, any_background, render
from t2x.world.scene import CLASSES, COLORS, INVERSE, MAX_OBJECTS, RELATIONS, Group, Scene
from t2x.world.split import has_held_out_pair
from t2x.world.truth import faults, satisfies

__all__ = [
    "PERTURBATIONS",
    "PreferencePair",
    "Shown",
    "near_miss",
    "perturb",
    "preference_pair",
    "prompt_for",
    "show",
]

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
    """``prompt``, which asks for ``scene``, fits ``chosen`` better than ``rejected``; ``reason``
    says why.

    ``degrade`` says which of the two, chosen and rejected, are to be corrupted.
    """

    prompt: str
    scene: Scene
    chosen: Shown
    rejected: Shown
    reason: str
    degrade: tuple[bool, bool] = (False, False)


def show(scene: Scene, rng: random.Random, *, held_out: bool = False) -> Shown:
    """Draw ``scene``, its objects pushed about by up to three pixels one time in three.

    ``held_out`` allows held-out pairs, for measuring; without it a scene that states one, or can't
    be drawn without showing one, raises ``ValueError``.
    """
    placed = place(scene, rng, pushed=0.33, held_out=held_out)
    return Shown(scene, tuple(placed), render(placed, any_background(rng)))


def prompt_for(shown: Shown, rng: random.Random) -> str:
    """Text that asks for the scene: a user prompt of the training kinds, or a careful caption of
    this very layout.
    """
    if rng.random() >= _USER_SHARE:
        return training_caption(shown.scene, list(shown.placed), rng, _TEXT_STYLES)
    return training_text(shown.scene, rng)


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

    The result fits training unless ``held_out`` allows any.
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
        if not held_out and not fits_training(changed):
            continue
        if not _may_match(scene, changed):
            return changed, name


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
    return Shown(scene, tuple(placed), render(placed, any_background(rng)))


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
        return PreferencePair(prompt, right.scene, right, right, "corrupted", (False, True))
    missed, name = near_miss(right, rng)
    if draw < 1 / 3:
        while (worse := _worse(missed, right.scene, rng)) is None:
            missed, _ = near_miss(right, rng)
        return PreferencePair(prompt, right.scene, missed, worse, "several changes")
    both = rng.random() < 0.5
    degrade = (both, both) if rng.random() < 0.7 else (rng.random() < 0.5, rng.random() < 0.5)
    return PreferencePair(prompt, right.scene, right, missed, name, degrade)


def _worse(missed: Shown, wanted: Scene, rng: random.Random) -> Shown | None:
    """Move up to two more changes away from ``wanted``; None where that makes it no worse."""
    scene = missed.scene
    for _ in range(2):
        scene = _further(scene, wanted, rng)
    worse = show(scene, rng)
    return worse if faults(wanted, worse.placed) > faults(wanted, missed.placed) else None


def _further(scene: Scene, wanted: Scene, rng: random.Random) -> Scene:
    """Give a group whose class is wanted a class that is not, or add such an object; the scene
    itself if neither can be done.
    """
    told = {g.cls for g in (*scene.groups, *wanted.groups)}
    stranger = rng.choice([c for c in CLASSES if c not in told])
    kept = [i for i, g in enumerate(scene.groups) if g.cls in {w.cls for w in wanted.groups}]
    if kept and rng.random() < 0.7:
        i = rng.choice(kept)
        changed = _with(scene, i, Group(stranger, None, scene.groups[i].count))
    elif scene.num_objects < MAX_OBJECTS:
        changed = Scene((*scene.groups, Group(stranger)))
    else:
        return scene
    if has_held_out_pair(changed):
        changed = replace(changed, relation=None)
    return changed if fits_training(changed) else scene
