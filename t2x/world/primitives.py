"""Primitives of the emoji world: what a scene asks for, and what a user's words do, read by the
world's own rules (synonyms, riddles, slips) where they understand them.
"""

from __future__ import annotations

from collections.abc import Iterator

from t2x.guidance.primitives import Primitive, Primitives, read_prompt
from t2x.world.key_points import denied_classes, read_scene
from t2x.world.scene import Scene

__all__ = ["emoji_primitives", "scene_primitives"]


def scene_primitives(scene: Scene) -> tuple[Primitive, ...]:
    """Objects, counts from two on, colours, and the relation of a scene."""
    return tuple(_told(scene))


def _told(scene: Scene) -> Iterator[Primitive]:
    yield from (Primitive("object", g.cls) for g in scene.groups)
    yield from (Primitive("count", g.cls, str(g.count)) for g in scene.groups if g.count > 1)
    yield from (Primitive("attribute", g.cls, g.color) for g in scene.groups if g.color)
    if scene.relation is not None:
        first, second = scene.groups
        yield Primitive("relation", first.cls, scene.relation, second.cls)


def emoji_primitives(prompt: str, *, editing: bool | None = None) -> Primitives:
    """Primitives of a prompt in the world's own names; those of :func:`read_prompt` where the
    world's rules understand nothing, and of edits.
    """
    general = read_prompt(prompt, editing=editing)
    text = prompt.casefold()
    scene = read_scene(text) if general.intent.action == "generate" else None
    if scene is None:
        return general
    ruled_out = tuple(Primitive("negation", name) for name in denied_classes(text))
    return Primitives(prompt, scene_primitives(scene) + ruled_out, general.intent, "emoji")
