"""What policies of the emoji world that are no rewriters yet learn to write before they are trained
on pictures: a teacher's rewrite alone, or, for the second of two prompters, a few words of quality
behind it, or nothing.

What this generator draws well is not said: that is for the pictures to show.
"""

from __future__ import annotations

import random

from t2x.rewriters.turns import NOTHING
from t2x.search.clauses import TRIMMINGS
from t2x.world.teacher import teacher_pair, teaching_prompt

__all__ = ["part_row", "rewrite_row"]

_MOST = 2  # trimmings in one part


def part_row(number: int) -> dict[str, str]:
    """Row ``number``: ``original_prompt``, what was ``written`` for it, and the ``part`` behind."""
    rng = random.Random(f"part {number}")
    prompt = teaching_prompt(rng.getrandbits(48))
    _, written = teacher_pair(prompt, rng)
    part = ", ".join(rng.sample(TRIMMINGS, rng.randint(0, _MOST))) or NOTHING
    return {"original_prompt": prompt.text, "written": written, "part": part}


def rewrite_row(number: int) -> dict[str, str]:
    """Row ``number``: ``original_prompt`` and the teacher's rewrite as ``completion``, no plan
    before it."""
    rng = random.Random(f"rewrite {number}")
    prompt = teaching_prompt(rng.getrandbits(48))
    return {"original_prompt": prompt.text, "completion": teacher_pair(prompt, rng)[1]}
