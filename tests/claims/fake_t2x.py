"""Stands in for the command t2x: a run counts itself and may sleep, fail or need several slices.

    fake_t2x.py train RECIPE --config FILE --json KEY=VALUE... run.out=FOLDER run.seed=S ...
    fake_t2x.py eval world ... --arms arm=FOLDER ... --json

It says what it is given as JSON, like the real one, and appends a line to ``$LEDGER`` whenever it
begins and ends.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path


def ledger(word: str, name: str) -> None:
    with open(os.environ["LEDGER"], "a") as file:
        file.write(f"{word} {name}\n")


def train(words: list[str]) -> dict[str, object]:
    given = dict(word.split("=", 1) for word in words if "=" in word)
    out, seed = Path(given["run.out"]), int(given["run.seed"])
    name = f"{words[0]} {given.get('level', '')} {seed}"
    ledger("begin", name)
    if "fail" in given and seed == int(given["fail"]):
        sys.exit(f"{out}: it broke on purpose")
    # Some work that a checkpoint saves half of.
    checkpoint = out / "checkpoint-1"
    for part in range(2):
        if part or not checkpoint.exists():
            time.sleep(float(given.get("sleep", 0)))
        checkpoint.mkdir(parents=True, exist_ok=True)
    model = out / "model"
    model.mkdir(exist_ok=True)
    level = float(given.get("level", 0.5))
    (model / "level").write_text(str(level + 0.002 * seed))
    rate = 1 + 2 * level
    log = [
        {"step": step, "pictures": 10 * step, "heldout/reward": 1 - 0.9 ** (rate * step)}
        for step in range(0, 60, 5)
    ]
    (out / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    ledger("end", name)
    return {"recipe": words[0], "metrics": {"pictures": float(given.get("pictures", 600))}}


def evaluate(words: list[str]) -> dict[str, object]:
    folder = Path(words[words.index("--arms") + 1].partition("=")[2])
    n = int(words[words.index("--n") + 1])
    ledger("begin", f"eval {folder.parent.parent.name}")
    level = float((folder / "level").read_text())
    rng = random.Random(f"prompts {folder}")
    hard = [random.Random(i).random() for i in range(n)]
    correct = [int(h + 0.1 * rng.random() < level) for h in hard]
    ledger("end", f"eval {folder.parent.parent.name}")
    rows = {
        "correct": correct,
        "similarity": [0.5 + 0.3 * level + 0.01 * rng.random() for _ in range(n)],
        "violated": [0.0] * n,
        "exact": [1.0] * n,
        "words": [9] * n,
    }
    arm = {"overall": sum(correct) / n, "drift": {}, "cost": {"seconds": 1.0}}
    return {
        "arms": {"arm": arm},
        "rows": {"tasks": [f"task {i % 6}" for i in range(n)], "arms": {"arm": rows}},
    }


if __name__ == "__main__":
    command, words = sys.argv[1], sys.argv[2:]
    print(json.dumps(train(words) if command == "train" else evaluate(words)))
