"""``selection: {method: ...}`` in the GRPO recipe, with a generator and a reward that are fakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2x.registry import load_recipe
from t2x.selection import SelectionConfig
from t2x.training.config import DataConfig, RewardConfig, RunConfig

pytestmark = [
    pytest.mark.extra("train"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

COLOURS = ("red", "blue", "green", "yellow", "black", "white")


def run(tmp_path: Path, name: str, selection: SelectionConfig, **trainer: Any) -> dict[str, float]:
    data = tmp_path / "prompts.jsonl"
    prompts = [f"a {colour} {thing}" for colour in COLOURS for thing in ("bus", "cup")]
    data.write_text("\n".join(json.dumps({"original_prompt": p}) for p in prompts))
    schema, main = load_recipe("grpo")
    settings = {
        "max_steps": 4,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 48,
        "bf16": False,
        "save_steps": 2,
    } | trainer
    reward = RewardConfig(
        {"t2x.testing:FakeReward": 1.0}, generator="t2x.testing:FakeGenerator", pictures=2
    )
    config = schema(
        data=DataConfig(str(data)),
        reward=reward,
        run=RunConfig(tmp_path / name, seed=3),
        selection=selection,
        trainer=settings,
    )
    metrics: dict[str, float] = main(config)
    return metrics


def state(tmp_path: Path, name: str, step: int) -> Any:
    return json.loads((tmp_path / name / f"checkpoint-{step}/selection.json").read_text())


def test_the_recipe_chooses_learns_and_goes_on(tmp_path: Path) -> None:
    config = SelectionConfig("mopps", decay=1.0)
    assert run(tmp_path, "whole", config)["steps"] == 4
    whole = state(tmp_path, "whole", 4)
    trials = sum(whole["learnt"]["alpha"]) + sum(whole["learnt"]["beta"]) - 24
    assert 0 < trials <= 4 * 4  # four steps of four rewrites, less those that were cut off
    assert run(tmp_path, "parts", config, max_steps=2)["steps"] == 2
    assert run(tmp_path, "parts", config)["steps"] == 4
    parts = state(tmp_path, "parts", 4)
    assert parts["drawn"] == whole["drawn"] and parts["last"] == whole["last"]


def test_the_default_leaves_the_trainer_as_it_is(tmp_path: Path) -> None:
    run(tmp_path, "plain", SelectionConfig(), max_steps=2)
    assert not (tmp_path / "plain/checkpoint-2/selection.json").exists()
