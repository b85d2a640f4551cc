"""The teacher of supervised fine-tuning: right about the content, ignorant of the generator.

Its answers are spread over several caption styles, some of which this generator draws badly; which
are best is left for preference optimisation and reinforcement learning to find from pictures. It
has no example of the held-out kinds, nor of ``MISSING_KINDS``. Its reasoning is a short plan.
"""

from __future__ import annotations

import random
from dataclasses import replace

from t2x.world.captions import STYLES, caption
from t2x.world.prompts import UserPrompt, training_prompt
from t2x.world.scene import RELATIONS, Scene
from t2x.world.split import has_held_out_pair

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
    """Give two groups a relation to be laid out by, so that no layout shows a held-out one."""
    if len(scene.groups) != 2 or scene.relation:
        return scene
    while True:
        stated = replace(scene, relation=rng.choice(RELATIONS))
        if not has_held_out_pair(stated):
            return stated


def teacher_pair(prompt: UserPrompt, rng: random.Random) -> tuple[str, str]:
    """Reasoning and answer for one training prompt, the style drawn from ``STYLE_SHARES``."""
    # Tags have no words for a relation, and a teacher is right about the content.
    shares = {k: v for k, v in STYLE_SHARES.items() if k != "tags" or not prompt.scene.relation}
    style = rng.choices(list(shares), list(shares.values()))[0]
    scene = placeable(prompt.scene, rng) if style == "layout" else prompt.scene
    return plan(prompt.scene), caption(scene, style, rng.getrandbits(32))


def teaching_prompt(seed: int) -> UserPrompt:
    """The prompt number ``seed`` of the teacher's data set, of no missing kind."""
    rng = random.Random(f"teaching {seed}")
    while True:
        prompt = training_prompt(rng.getrandbits(48))
        if prompt.kind not in MISSING_KINDS:
            return prompt
