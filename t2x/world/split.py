"""The held-out split of the emoji world: what no training set may show.

Held out are object-colour pairs, object-relation pairs, whole phrasing kinds and the texts of
validation and test prompts. The pairs are drawn by a hash of their names, the texts by a hash of
themselves, so that the split needs no file and never moves; the phrasing kinds are named in
``t2x.world.prompts``. ``t2x.world.placing`` keeps pairs out of pictures that state no relation.

Reward models, emoji-lm and emoji-rewriter see none of these. The generator's captions keep to the
pairs alone: it stands for one that has read the web, and a plain caption is, word for word, what a
user may type. The embedded emoji-flow was trained under an older, weaker guard; its card says what
it has seen.
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
    """Whether no training picture may show a ``color`` ``cls``, and no training text name one."""
    return _unit_hash("color", cls, color) < HELD_OUT_FRACTION


def is_held_out_relation(cls: str, relation: str) -> bool:
    """Whether no training picture or text may put a group of ``cls`` on that side of another."""
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
