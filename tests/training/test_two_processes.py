"""Two processes under accelerate train what one trains: on a CPU, what two GPUs would do."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from t2x.world.weights import model_dir

pytestmark = [pytest.mark.slow, pytest.mark.extra("train"), pytest.mark.timeout(3000)]
SCRIPT = Path(__file__).with_name("run_in_processes.py")
LAUNCH = Path(str(files("t2x.configs"))) / "accelerate" / "2cpu.yaml"
# Adam would turn a gradient of rounding errors into a whole step.
TRAINER = {"optim": "sgd", "max_steps": 2, "lr_scheduler_type": "constant", "bf16": False,
           "learning_rate": 1.0, "logging_steps": 1, "save_strategy": "no"}  # fmt: skip


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def train(recipe: str, values: dict[str, Any], processes: int) -> dict[str, float]:
    """Give the metrics of a run; each process takes its share of ``batch`` rows."""
    values = json.loads(json.dumps(values))
    batch = values["trainer"]["per_device_train_batch_size"]
    values["trainer"]["per_device_train_batch_size"] = batch // processes
    command = [sys.executable, str(SCRIPT), recipe, json.dumps(values)]
    if processes > 1:
        launch = ["accelerate.commands.launch", "--config_file", str(LAUNCH)]
        launch += ["--main_process_port", str(free_port()), "--num_cpu_threads_per_process", "1"]
        command = [sys.executable, "-m", *launch, *command[1:]]
    done = subprocess.run(
        command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("metrics: ")]
    found: dict[str, float] = json.loads(line.removeprefix("metrics: "))
    assert found["processes"] == processes
    return found


def weights(folder: Path) -> dict[str, torch.Tensor]:
    (path,) = folder.glob("*.safetensors")
    return {name: value.float() for name, value in load_file(path).items()}


def assert_equal_training(one: Path, two: Path) -> None:
    """What both runs changed is the same within a hundredth of it."""
    start = weights(model_dir("emoji-rewriter"))
    first, second = weights(one / "model"), weights(two / "model")
    moved = sum(float((first[name] - start[name]).square().sum()) for name in start)
    apart = sum(float((first[name] - second[name]).square().sum()) for name in start)
    assert moved > 1e-6  # the runs do train
    assert apart < 1e-4 * moved


def test_sft(tmp_path: Path) -> None:
    found = {}
    for processes in (1, 2):
        values = {
            "policy": {"model": "emoji-rewriter", "dtype": "float32"},
            "data": {"train": "world:sft?n=16&seed=0"},
            "run": {"out": str(tmp_path / str(processes)), "seed": 0},
            "trainer": {**TRAINER, "per_device_train_batch_size": 8},
        }
        found[processes] = train("sft", values, processes)
    assert_equal_training(tmp_path / "1", tmp_path / "2")
    assert found[1]["steps"] == found[2]["steps"] == 2
    assert found[1]["loss"] == pytest.approx(found[2]["loss"], rel=1e-3)


def test_grpo_with_one_store_and_render_workers_beside_the_trainers(tmp_path: Path) -> None:
    """One process draws itself; of two, each has a worker that draws, and both share a store."""
    found = {}
    for processes in (1, 2):
        values = {
            "policy": {"model": "emoji-rewriter", "dtype": "float32"},
            "data": {"train": "world:prompts?n=8&seed=3"},
            "reward": {
                "rewards": {"vqa": 1.0},
                "generator": "emoji-flow-turbo",
                "pictures": 2,
                "store": str(tmp_path / f"store{processes}"),
            },
            "rollout": {"workers": processes - 1, "batch_size": 8},
            "run": {"out": str(tmp_path / str(processes)), "seed": 0},
            "trainer": {
                **TRAINER,
                "per_device_train_batch_size": 16,
                "num_generations": 8,
                "temperature": 1.5,
            },
        }
        found[processes] = train("grpo", values, processes)
    assert_equal_training(tmp_path / "1", tmp_path / "2")
    drawn = [stored(tmp_path / f"store{processes}") for processes in (1, 2)]
    assert drawn[0] and drawn[0] == drawn[1]


def stored(folder: Path) -> set[str]:
    """Keys of a store's pictures; they do not depend on who drew them."""
    with sqlite3.connect(folder / "index.sqlite") as db:
        return {key for (key,) in db.execute("SELECT key FROM entries")}
