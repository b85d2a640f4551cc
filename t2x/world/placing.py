"""Where training puts the objects of a scene: one rule for every picture and every text that tells
places.

The training split holds out object-relation pairs (``t2x.world.split``). A scene that states none
can still show one: objects beside each other stand in a relation whether or not anybody says it.
So places are drawn until no group lies on a held-out side of another, neither in pixels nor by the
slots that a text may name. A group here is all objects of one class and colour, and lies where the
mean of their centres lies, as in every other test of a relation.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

from t2x.world.render import QUADRANTS, SLOT_CENTERS, Placed, layout
from t2x.world.scene import INVERSE, RELATIONS, Scene
from t2x.world.split import (
    has_held_out_relation,
    held_out_pairs,
    is_held_out_color,
    is_held_out_relation,
)
from t2x.world.truth import MIN_OFFSET, offset

__all__ = ["allowed_relations", "fits_training", "place", "shows_held_out"]

_PUSH = 3  # pixels


def allowed_relations(scene: Scene) -> list[str]:
    """Relations that the two groups of ``scene`` may have in training, whatever their colours."""
    return [r for r in RELATIONS if not has_held_out_relation(replace(scene, relation=r))]


def shows_held_out(placed: Sequence[Placed]) -> bool:
    """Whether objects show a held-out pair: a colour, or one group on such a side of another, by at
    least as much as makes a relation true, in pixels or by their slots.
    """
    if any(p.color and is_held_out_color(p.cls, p.color) for p in placed):
        return True
    in_slots = [replace(p, x=SLOT_CENTERS[p.slot][0], y=SLOT_CENTERS[p.slot][1]) for p in placed]
    return _held_out_side(placed) or _held_out_side(in_slots)


def _held_out_side(placed: Sequence[Placed]) -> bool:
    groups: dict[tuple[str, str | None], list[Placed]] = defaultdict(list)
    for p in placed:
        groups[p.cls, p.color].append(p)
    return any(
        offset(relation, first, second) >= MIN_OFFSET
        for first, second in combinations(groups.values(), 2)
        for relation in RELATIONS
        if is_held_out_relation(first[0].cls, relation)
        or is_held_out_relation(second[0].cls, INVERSE[relation])
    )


def fits_training(scene: Scene) -> bool:
    """Whether ``scene`` states no held-out pair and can be drawn without showing one."""
    if held_out_pairs(scene):
        return False
    if len(scene.groups) == 2:
        return scene.relation is not None or bool(allowed_relations(scene))
    return len(scene.groups) == 1 or _fits_quadrants(scene)


def _fits_quadrants(scene: Scene) -> bool:
    objects = [g for g in scene.groups for _ in range(g.count)]
    return any(
        not shows_held_out(
            [
                Placed(g.cls, g.color, *SLOT_CENTERS[slot], size=0, slot=slot)
                for g, slot in zip(objects, slots, strict=True)
            ]
        )
        for slots in permutations(QUADRANTS, len(objects))
    )


def place(
    scene: Scene, rng: random.Random, *, pushed: float = 0.0, held_out: bool = False
) -> list[Placed]:
    """Lay ``scene`` out so that nothing held out shows; with odds of ``pushed`` every object is
    pushed about by up to three pixels.

    ``held_out`` allows everything, for measuring. Raises ``ValueError`` without it for a scene that
    has no such layout.
    """
    if not held_out and not fits_training(scene):
        pairs = ", ".join(held_out_pairs(scene)) or "any places of its groups"
        raise ValueError(
            f"{scene} can't be drawn for training: held out is {pairs}; draw another scene, or "
            "allow it for measuring by held_out=True"
        )
    while True:
        stated = scene
        if not held_out and len(scene.groups) == 2 and scene.relation is None:
            stated = replace(scene, relation=rng.choice(allowed_relations(scene)))
        placed = layout(stated, rng)
        if pushed and rng.random() < pushed:
            placed = [
                replace(p, x=p.x + rng.randint(-_PUSH, _PUSH), y=p.y + rng.randint(-_PUSH, _PUSH))
                for p in placed
            ]
        if held_out or not shows_held_out(placed):
            return placed
