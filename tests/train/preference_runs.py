"""Rows and settings that the tests of SFT, DPO, Sem-DPO and REBEL share."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from t2x.config import build_config
from t2x.registry import load_recipe
from t2x.world.captions import caption
from t2x.world.teacher import plan, teacher_pair, teaching_prompt

FAST = {
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "save_steps": 2,
    "bf16": False,
    "lr_scheduler_type": "constant",
}


def completion(think: str, answer: str) -> str:
    return f"<think>{think}</think><answer>{answer}</answer>"


def sft_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        prompt = teaching_prompt(rng.getrandbits(48))
        rows.append(
            {
                "original_prompt": prompt.text,
                "completion": completion(*teacher_pair(prompt, rng)),
            }
        )
    return rows


def pair_rows(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """The scene in full against the scene in few words: both are right, and one is wanted."""
    rng = random.Random(seed)
    rows = []
    while len(rows) < count:
        prompt = teaching_prompt(rng.getrandbits(48))
        full, short = (
            caption(prompt.scene, style, rng.getrandbits(32)) for style in ("sentence", "tags")
        )
        rows.append(
            {
                "original_prompt": prompt.text,
                "chosen": completion(plan(prompt.scene), full),
                "rejected": completion(plan(prompt.scene), short),
            }
        )
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def run(recipe: str, out: Path, values: dict[str, Any], **trainer: Any) -> dict[str, float]:
    """Run a recipe with the settings of a YAML."""
    schema, main = load_recipe(recipe)
    given = {**values, "run": {"out": str(out), **values.get("run", {})}}
    given["trainer"] = {**FAST, **values.get("trainer", {}), **trainer}
    return main(build_config(schema, given))


def losses(out: Path) -> list[float]:
    """Losses of every step, of the last checkpoint's state."""
    last = max(out.glob("checkpoint-*"), key=lambda p: int(p.name.partition("-")[2]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    return [line["loss"] for line in history if "loss" in line]
