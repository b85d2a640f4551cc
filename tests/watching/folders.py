"""Run folders made up for tests."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any


def write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def made_up_run(
    folder: Path, *, steps: int = 200, every: int = 20, seed: int = 0, hacked: bool = False
) -> Path:
    """A run whose training reward rises; the held-out reward falls from the middle on if
    ``hacked``."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for step in range(steps + 1):
        done = step / steps
        line: dict[str, Any] = {"step": step, "seconds": 3.0 * step}
        if step:
            line |= {
                "loss": rng.gauss(0.0, 0.01),
                "reward": 0.4 + 0.3 * (1 - math.exp(-3 * done)) + rng.gauss(0, 0.03),
                "reward/vqa": 0.5 + 0.2 * done + rng.gauss(0, 0.03),
                "reward/clip": 0.3 + 0.05 * done + rng.gauss(0, 0.01),
                "gain": 0.2 * done + rng.gauss(0, 0.03),
                "kl": 0.08 * done + abs(rng.gauss(0, 0.003)),
                "entropy": 1.1 - 0.4 * done + rng.gauss(0, 0.02),
                "length": 24 + 3 * done + rng.gauss(0, 0.4),
                "distinct_2": 0.7 - 0.1 * done + rng.gauss(0, 0.01),
                "zero_variance": min(1.0, max(0.0, 0.1 + 0.3 * done + rng.gauss(0, 0.05))),
                "truncated": 0.0,
                "failed": max(0.0, 0.05 * (1 - done)),
                "learning_rate": 1e-5 * (1 - done),
                "grad_norm": 0.5 + abs(rng.gauss(0, 0.1)),
            }
        if step % every == 0:
            held = 0.45 + 0.12 * (1 - math.exp(-4 * done))
            if hacked:
                held -= 0.3 * max(0.0, done - 0.4)
            held += rng.gauss(0, 0.004)
            line |= {
                "heldout/reward": held,
                "heldout/align": held + 0.01,
                "heldout/gain": held - 0.44,
                "heldout/gain_error": 0.012,
                "heldout/similarity": 0.95 - 0.1 * done,
                "heldout/violations": 0.02 + 0.05 * done,
            }
        lines.append(line)
    write_lines(folder / "log.jsonl", lines)
    (folder / "config.yaml").write_text(f"run:\n  seed: {seed}\ntrainer:\n  beta: 0.04\n")
    return folder
