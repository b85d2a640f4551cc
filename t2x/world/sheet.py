"""A sheet of random scenes of the emoji world, to look at."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from t2x.errors import T2XError

GAP = 2

__all__ = ["draw_sheet"]


def draw_sheet(
    out: str | Path, *, n: int, seed: int = 0, task: str | None = None, scale: int = 4
) -> list[dict[str, Any]]:
    """Write ``n`` rendered scenes as one PNG; give task, caption and scene of each in row order.

    ``task`` is one of ``t2x.world.scene.TASKS``, or None for all in turn. ``scale`` enlarges each
    pixel. Raises ``T2XError`` for an unknown task.
    """
    import torch

    from t2x.media import save_png
    from t2x.world.captions import dense_prompt
    from t2x.world.corruption import to_pictures
    from t2x.world.render import render_scene
    from t2x.world.scene import TASKS, sample_scene

    if task is not None and task not in TASKS:
        raise T2XError(f"unknown task {task!r}; known are: {', '.join(TASKS)}")
    rng = random.Random(seed)
    tasks = [task or TASKS[i % len(TASKS)] for i in range(n)]
    scenes = [sample_scene(name, rng) for name in tasks]
    seeds = [rng.randrange(2**31) for _ in scenes]
    pictures = to_pictures(
        [render_scene(s, number) for s, number in zip(scenes, seeds, strict=True)]
    )
    columns = math.ceil(math.sqrt(n))
    height, width = pictures[0].shape[1:]
    rows = math.ceil(n / columns)
    sheet = torch.ones(3, rows * (height + GAP) - GAP, columns * (width + GAP) - GAP)
    for i, picture in enumerate(pictures):
        top, left = i // columns * (height + GAP), i % columns * (width + GAP)
        sheet[:, top : top + height, left : left + width] = picture
    save_png(sheet.repeat_interleave(scale, 1).repeat_interleave(scale, 2), out)
    return [
        {"task": name, "caption": dense_prompt(scene, number), "scene": scene.to_dict()}
        for name, scene, number in zip(tasks, scenes, seeds, strict=True)
    ]
