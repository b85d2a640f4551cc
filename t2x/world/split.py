"""The held-out split of the emoji world: what no training set may show.

Three things are held out: object-colour pairs, object-relation pairs and whole phrasing kinds. The
first two are drawn by a hash of their names, so that the split needs no file and never moves; the
phrasing kinds are named in ``t2x.world.prompts``.
"""

from __future__ import annotations

import hashlib

from t2x.world.scene import INVERSE, Scene

__all__ = [
    "HELD_OUT_FRACTION",
    "has_held_out_pair",
    "has_held_out_relation",
    "is_held_out_color",
    "is_held_out_relation",
]

HELD_OUT_FRACTION = 0.12


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


def has_held_out_pair(scene: Scene) -> bool:
    """Whether ``scene`` shows any held-out pair, told from either side of its relation."""
    if any(g.color and is_held_out_color(g.cls, g.color) for g in scene.groups):
        return True
    return has_held_out_relation(scene)


def has_held_out_relation(scene: Scene) -> bool:
    """Whether ``scene`` states a held-out object-relation pair, told from either side."""
    if scene.relation is None:
        return False
    first, second = scene.groups
    return is_held_out_relation(first.cls, scene.relation) or is_held_out_relation(
        second.cls, INVERSE[scene.relation]
    )
