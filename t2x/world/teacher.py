"""The teacher of supervised fine-tuning: right about the content, ignorant of the generator.

Its answers are spread over several caption styles, some of which this generator draws badly; which
are best is left for preference optimisation and reinforcement learning to find from pictures. It
has no example of the held-out kinds, nor of ``MISSING_KINDS``. Its reasoning is a short plan.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from t2x.world.captions import STYLES, caption, telling_styles
from t2x.world.placing import allowed_relations, fits_training, place
from t2x.world.prompts import UserPrompt, split_of, training_prompt
from t2x.world.scene import Scene

__all__ = ["MISSING_KINDS", "STYLE_SHARES", "placeable", "plan", "teacher_pair", "teaching_prompt"]

MISSING_KINDS: tuple[str, ...] = ("active",)
# No measurement went into these shares.
STYLE_SHARES: dict[str, float] = {
    "layout": 0.48,
    "sentence": 0.17,
    "tags": 0.12,
    "stock": 0.1,
    "poetic": 0.09,
    "plain": 0.04,
}
_THROWS = 24
if not set(STYLE_SHARES) <= set(STYLES):
    raise ValueError(f"the teacher writes a style that captions lack: {set(STYLE_SHARES)}")


def plan(scene: Scene) -> str:
    """The content in a fixed short form: ``2 x cat; 1 x red pizza; left of``."""
    parts = [
        f"{g.count} x {g.color} {g.cls}" if g.color else f"{g.count} x {g.cls}"
        for g in scene.groups
    ]
    return "; ".join([*parts, scene.relation] if scene.relation else parts)


def placeable(scene: Scene, rng: random.Random) -> Scene:
    """Give two groups a relation to be laid out by: one that puts the first group first in reading
    order (left or top) where the split allows it.

    Colours don't matter. Raises ValueError if all four relations are held out, as for no two
    classes they are.
    """
    if len(scene.groups) != 2 or scene.relation:
        return scene
    allowed = allowed_relations(scene)
    first, last = ["left of", "above"], ["right of", "below"]
    for relation in (*rng.sample(first, 2), *rng.sample(last, 2)):
        if relation in allowed:
            return replace(scene, relation=relation)
    raise ValueError(f"every relation of {scene} is held out")


def _layout_in_order(scene: Scene, rng: random.Random) -> str:
    """A layout that lists groups in the scene's order, if a few throws of the places give one."""
    names = [f"{g.color} {g.cls}." if g.color else f" {g.cls}." for g in scene.groups]
    for _ in range(1 if scene.relation else _THROWS):
        text = STYLES["layout"](scene, place(scene, rng), rng)
        if all(text.rfind(one) < text.find(other) for one, other in pairwise(names)):
            break
    return text


def teacher_pair(prompt: UserPrompt, rng: random.Random) -> tuple[str, str]:
    """Reasoning and answer for one training prompt, the style drawn from ``STYLE_SHARES``.

    A plain answer is of the training split, since a user may type the very same. The other styles
    are no user's: there every scene is answered.
    """
    scene = prompt.scene
    shares = {k: STYLE_SHARES[k] for k in telling_styles(scene, STYLE_SHARES)}
    if not fits_training(scene):  # three groups that every layout puts on held-out sides
        del shares["layout"]
    while True:
        style = rng.choices(list(shares), list(shares.values()))[0]
        if style == "layout":
            return plan(scene), _layout_in_order(placeable(scene, rng), rng)
        answer = caption(scene, style, rng.getrandbits(32))
        if style != "plain" or split_of(answer) == "train":
            return plan(scene), answer


def teaching_prompt(seed: int) -> UserPrompt:
    """The prompt number ``seed`` of the teacher's data set, of no missing kind."""
    rng = random.Random(f"teaching {seed}")
    while True:
        prompt = training_prompt(rng.getrandbits(48))
        if prompt.kind not in MISSING_KINDS:
            return prompt
