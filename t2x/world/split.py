"""The held-out split of the emoji world: what no training set may show.

Three things are held out: object-colour pairs, object-relation pairs and whole phrasing kinds. The
first two are drawn by a hash of their names, so that the split needs no file and never moves; the
phrasing kinds are named in ``t2x.world.prompts``.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from t2x.world.scene import CLASSES, COLORS, INVERSE, Scene

__all__ = [
    "HELD_OUT_FRACTION",
    "has_held_out_pair",
    "has_held_out_relation",
    "held_out_pairs",
    "is_held_out_color",
    "is_held_out_relation",
    "names_held_out_color",
]

HELD_OUT_FRACTION = 0.12


@lru_cache(maxsize=1024)
def _unit_hash(*parts: str) -> float:
    """Map names to [0, 1), the same on every machine."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def is_held_out_color(cls: str, color: str) -> bool:
    """Whether no training picture or text may show a ``color`` ``cls``."""
    return _unit_hash("color", cls, color) < HELD_OUT_FRACTION


def is_held_out_relation(cls: str, relation: str) -> bool:
    """Whether no training picture or text may place ``cls`` on that side of another object."""
    return _unit_hash("relation", cls, relation) < HELD_OUT_FRACTION


def held_out_pairs(scene: Scene) -> list[str]:
    """The held-out pairs that ``scene`` states, told from either side of its relation: ``red cat``,
    ``cat left of``.
    """
    pairs = [
        f"{g.color} {g.cls}" for g in scene.groups if g.color and is_held_out_color(g.cls, g.color)
    ]
    if scene.relation is not None:
        sides = (scene.relation, INVERSE[scene.relation])
        pairs += [
            f"{g.cls} {side}"
            for g, side in zip(scene.groups, sides, strict=True)
            if is_held_out_relation(g.cls, side)
        ]
    return pairs


def has_held_out_pair(scene: Scene) -> bool:
    """Whether ``scene`` states any held-out pair."""
    return bool(held_out_pairs(scene))


def has_held_out_relation(scene: Scene) -> bool:
    """Whether ``scene`` states a held-out object-relation pair, told from either side; colours
    don't matter.
    """
    if scene.relation is None:
        return False
    first, second = scene.groups
    return is_held_out_relation(first.cls, scene.relation) or is_held_out_relation(
        second.cls, INVERSE[scene.relation]
    )


@lru_cache(maxsize=1)
def _held_out_phrases() -> tuple[str, ...]:
    return tuple(
        f" {color} {name}"
        for cls in CLASSES
        for color in COLORS
        if is_held_out_color(cls, color)
        for name in (f"{cls} ", f"{cls}s ", f"{cls}es ")
    )


def names_held_out_color(text: str) -> bool:
    """Whether ``text`` says a held-out colour right before its class, singular or plural."""
    words = f" {text} "
    return any(phrase in words for phrase in _held_out_phrases())
