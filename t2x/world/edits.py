"""Edits in the emoji world: a picture, an instruction in plain English, and what should be there
afterwards.

Objects that an edit leaves alone stay in their slots, so that source and target tell the same
layout but for the change. What counts as background is known too: all but the object that changes,
where the judge sees it on the source, or the slot of one that is added.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from t2x.world.captions import DENSE_STYLE, STYLES
from t2x.world.detector import Detection
from t2x.world.render import IMAGE_SIZE, Placed, layout
from t2x.world.scene import CLASSES, COLORS, Group, Scene
from t2x.world.words import articled

__all__ = ["EDIT_KINDS", "WorldEdit", "background", "sample_edit"]

EDIT_KINDS = ("colour", "swap", "add", "remove")
_MARGIN = 3  # pixels around an object that are not background


@dataclass(frozen=True)
class WorldEdit:
    """One edit of ``kind`` (of ``EDIT_KINDS``): ``source`` and ``target`` scenes with texts that
    tell them, the ``instruction``, and the object that ``changes``: as it is on the source, or (an
    added one) where it should come to lie.
    """

    kind: str
    source: Scene
    target: Scene
    source_prompt: str
    target_prompt: str
    instruction: str
    changes: Placed


def sample_edit(number: int) -> WorldEdit:
    """Edit ``number``; kinds take turns. Scenes hold one to three objects of different classes."""
    rng = random.Random(f"edit {number}")
    kind = EDIT_KINDS[number % len(EDIT_KINDS)]
    count = rng.choice((1, 2, 3) if kind in ("colour", "swap") else (2, 3))
    classes, colors = rng.sample(CLASSES, count + 1), rng.sample(COLORS, count + 1)
    tinted = [color if rng.random() < 0.6 else None for color in colors]
    full = Scene(tuple(Group(*pair) for pair in zip(classes, tinted[:count], strict=False)))
    placed = layout(full, rng)
    at = rng.randrange(count)
    old = placed[at]
    rest = [p for p in placed if p is not old]
    if kind in ("colour", "swap"):
        new = replace(old, color=colors[-1]) if kind == "colour" else replace(old, cls=classes[-1])
        after = [new if p is old else p for p in placed]
        words = f"make the {old.cls} {new.color}"
        if kind == "swap":
            words = f"replace the {old.cls} with {_named(new)}"
        return _edit(kind, placed, after, words, old)
    if kind == "add":
        return _edit(kind, rest, placed, f"add {_named(old)}", old)
    return _edit(kind, placed, rest, f"remove the {old.cls}", old)


def _named(placed: Placed) -> str:
    return articled(f"{placed.color} {placed.cls}" if placed.color else placed.cls)


def _edit(
    kind: str, before: Sequence[Placed], after: Sequence[Placed], words: str, changes: Placed
) -> WorldEdit:
    source, target = (Scene(tuple(Group(p.cls, p.color) for p in s)) for s in (before, after))
    tell = STYLES[DENSE_STYLE]
    was, will = (
        tell(source, list(before), random.Random(0)),
        tell(target, list(after), random.Random(0)),
    )
    return WorldEdit(kind, source, target, was, will, words, changes)


def background(edit: WorldEdit, detections: Sequence[Detection]) -> NDArray[np.bool_]:
    """Pixels of the source that an edit should leave alone, (64, 64); ``detections``: the judge's,
    on the source. Nothing is background if the object that changes is not among them."""
    x, y, size = edit.changes.x, edit.changes.y, edit.changes.size
    if edit.kind != "add":
        found = [d for d in detections if d.cls == edit.changes.cls]
        if not found:
            return np.zeros((IMAGE_SIZE, IMAGE_SIZE), bool)
        x, y, size = found[0].x, found[0].y, found[0].size
    reach = (size + 1) // 2 + _MARGIN
    mask = np.ones((IMAGE_SIZE, IMAGE_SIZE), bool)
    mask[max(y - reach, 0) : y + reach + 1, max(x - reach, 0) : x + reach + 1] = False
    return mask
