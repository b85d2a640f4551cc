"""Reads captions of the world: which style is it, and does it tell exactly a given scene?

``tells_scene`` needs no picture and is the proxy that training watches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias

from t2x.world.captions import NUMBER_WORDS
from t2x.world.render import SLOT_CENTERS
from t2x.world.rules import parse
from t2x.world.scene import CLASSES, COLORS, Scene

__all__ = ["same_scene", "style_of", "tells_scene", "told_otherwise"]

_Object: TypeAlias = "tuple[tuple[str, str | None], str]"  # (class, colour), slot

_SLOT = re.compile(r"([a-z ]+): an? ([a-z ]+)")
_HEAD = re.compile(rf"({'|'.join(NUMBER_WORDS[1:])}) objects?\. ")
_SIDE = {"left of": (0, -1), "right of": (0, 1), "above": (1, -1), "below": (1, 1)}
_TRIMMINGS = re.compile(
    r"^(?:(?:stock illustration|vector art|isolated set|an? \w+ and \w+ scene) of |exactly )"
    r"|,? (?:white background|soft light, highly detailed masterpiece|on a plain background, .*)$"
)
_LEADS = {
    "sentence": ("exactly ",),
    "stock": ("stock illustration of ", "vector art of ", "isolated set of "),
    "plain": ("a photo of ", "a picture of "),
}


def style_of(text: str) -> str:
    """Which caption style ``text`` is written in; ``"other"`` for none of them."""
    if _HEAD.match(text):
        return "layout"
    for style, leads in _LEADS.items():
        if text.startswith(leads):
            return style
    if " scene of " in text:
        return "poetic"
    return "tags" if re.search(r"(sticker|studio|quality|sharp)$", text) else "other"


def same_scene(one: Scene | None, other: Scene | None) -> bool:
    """Whether two scenes show the same groups in the same relation, told from either side."""
    if one is None or other is None:
        return one is other
    if one.relation or other.relation:
        return other in (one, one.mirrored())
    return set(one.groups) == set(other.groups)


def tells_scene(text: str, scene: Scene) -> bool:
    """Whether a caption says the scene's objects, colours and relation, all of them and no more."""
    if not _HEAD.match(text):
        return same_scene(parse(_TRIMMINGS.sub("", text)), scene)
    objects = _layout_objects(text)
    wanted = Counter({(g.cls, g.color): g.count for g in scene.groups})
    if objects is None or Counter(key for key, _ in objects) != wanted:
        return False
    if scene.relation is None:
        return True
    return _placed([_slots(objects, g.cls, g.color) for g in scene.groups], scene.relation)


def _slots(objects: Sequence[_Object], cls: str, *colors: str | None) -> list[str]:
    """Slots of the objects of a class, in one of ``colors`` if any is given."""
    return [slot for (name, c), slot in objects if name == cls and (not colors or c in colors)]


def _placed(slots: Sequence[Sequence[str]], relation: str) -> bool:
    """Whether objects in the first slots are in ``relation`` to those in the second, on average."""
    axis, sign = _SIDE[relation]
    first, second = (sum(SLOT_CENTERS[s][axis] for s in own) / len(own) for own in slots)
    return (first - second) * sign > 0


def told_otherwise(scene: Scene, text: str, *, any_count: Sequence[str] = ()) -> str:
    """What a caption tells otherwise of the scene's things: a count, a colour, their relation.

    "" if nothing, or if the caption or one of the things can't be read. Counts of the classes
    ``any_count`` are free, as is the colour of what the scene leaves in its own; a list of tags
    says nothing of places.
    """
    if _HEAD.match(text):
        objects = _layout_objects(text) or []
        has = Counter(key for key, _ in objects)
    else:
        told = parse(_TRIMMINGS.sub("", text))
        has = Counter({(g.cls, g.color): g.count for g in told.groups} if told else {})
    for group in scene.groups:
        colors = {color: n for (cls, color), n in has.items() if cls == group.cls}
        if not colors:
            return ""
        if group.color is not None and set(colors) != {group.color}:
            return f"the {group.cls} is not {group.color}"
        if group.cls not in any_count and sum(colors.values()) != group.count:
            return f"{group.cls}: {sum(colors.values())} instead of {group.count}"
    if scene.relation is None:
        return ""
    if _HEAD.match(text):
        kept = _placed([_slots(objects, g.cls) for g in scene.groups], scene.relation)
    else:
        kept = told is None or told.relation is None or _same_side(told, scene)
    first, second = scene.groups
    return "" if kept else f"the {first.cls} is not {scene.relation} the {second.cls}"


def _same_side(told: Scene, scene: Scene) -> bool:
    first, second = (group.cls for group in scene.groups)
    sides = {
        (one.groups[0].cls, one.groups[-1].cls, one.relation) for one in (told, told.mirrored())
    }
    return (first, second, scene.relation) in sides


def _layout_objects(text: str) -> list[_Object] | None:
    """Objects of a layout caption as ((class, colour), slot); None where it breaks its own form."""
    head = _HEAD.match(text)
    assert head is not None
    parts = text[head.end() :].rstrip(".").split(". ")
    objects = []
    for part in parts:
        match = _SLOT.fullmatch(part)
        if match is None or match[1] not in SLOT_CENTERS:
            return None
        color, _, name = match[2].partition(" ")
        key = (name, color) if color in COLORS else (match[2], None)
        if key[0] not in CLASSES:
            return None
        objects.append((key, match[1]))
    slots = {slot for _, slot in objects}
    if len(slots) < len(objects) or len(objects) != NUMBER_WORDS.index(head[1]):
        return None
    return objects
