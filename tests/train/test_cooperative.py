"""Prompters that are trained in turns, on a reward that looks at the finished prompt."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import t2x
from t2x.config import build_config
from t2x.errors import T2XError
from t2x.registry import load_recipe
from t2x.rewriters.turns import TurnsRewriter
from t2x.world.prompts import training_prompts
from t2x.world.turn_rows import part_row

pytestmark = pytest.mark.extra("train")


class Brightness:
    """Draws a white picture of a text that ends in "light", else a dark one, with some noise."""

    model_id = "brightness"
    modality = "image"

    def generate(
        self, prompts: Sequence[str], *, negative: Any = None, seeds: Sequence[int], **_: Any
    ) -> torch.Tensor:
        levels = [
            0.8 * prompt.endswith("light") + 0.001 * (seed % 100)
            for prompt, seed in zip(prompts, seeds, strict=True)
        ]
        return torch.tensor(levels).view(-1, 1, 1, 1).expand(-1, 3, 8, 8).clone()


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("coop_test_world")
    module.Brightness = Brightness  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "coop_test_world", module)


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    prompts = folder / "prompts.jsonl"
    texts = [p.text for p in training_prompts(12, 3)]
    prompts.write_text("".join(json.dumps({"original_prompt": t}) + "\n" for t in texts))
    parts = folder / "parts.jsonl"
    rows = [part_row(i) | {"part": ("soft light", "nothing")[i % 2]} for i in range(64)]
    parts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    style = {"max_new_tokens": 8, "temperature": 1.0, "top_p": 1.0, "domain": "emoji"}
    warmup = {"max_steps": 8, "per_device_train_batch_size": 8, "learning_rate": 2e-3}
    return {
        "run": {"out": str(folder / "run")},
        "watch": {"report": 0, "bar": False},
        "data": {"train": str(prompts)},
        "reward": {
            "rewards": {"t2x.testing:FakeReward": 1.0},
            "generator": "coop_test_world:Brightness",
        },
        "prompters": [
            {"role": "subject", "policy": {"model": "emoji-rewriter"}, "sees": "prompt"},
            {
                "role": "style",
                "policy": {"model": "emoji-lm"},
                "template": style,
                "warmup": {"rows": str(parts), "trainer": warmup},
            },
        ],
        "rounds": 1,
        "trainer": {
            "max_steps": 2,
            "per_device_train_batch_size": 4,
            "num_generations": 4,
            "learning_rate": 1e-3,
            "warmup_steps": 0,
            "save_steps": 1,
        },
        **changes,
    }


def run(values: dict[str, Any]) -> dict[str, float]:
    schema, main = load_recipe("cooperative")
    return main(build_config(schema, values))


def weights(folder: Path) -> list[dict[str, torch.Tensor]]:
    return [load_file(f) for f in sorted((folder / "model").glob("*/model.safetensors"))]


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[key], other[key]) for key in one)


def test_prompters_are_trained_in_turns_and_a_run_goes_on(tmp_path: Path) -> None:
    values = settings(tmp_path)
    metrics = run(values)
    out = tmp_path / "run"
    assert metrics["turns"] == 2
    logs = [out / "turns" / turn / "log.jsonl" for turn in ("0-subject", "1-style")]
    spent = [json.loads(log.read_text().splitlines()[-1])["pictures"] for log in logs]
    assert 0 < spent[0] < spent[1] == metrics["pictures"]
    assert not [key for key in metrics if key.endswith("/pictures")]
    assert {"subject/reward", "style/reward"} <= set(metrics)
    assert metrics["subject/reward"] > 0  # brightness of the pictures, not TRL's mean of advantages
    assert not [key for key in metrics if "rollout/" in key]
    assert isinstance(t2x.load_rewriter(str(out / "model")), TurnsRewriter)
    trained = weights(out)
    for i, start in enumerate(("0-subject", "1-style")):
        begun = load_file(out / "start" / start / "model.safetensors")
        drift = max(float((trained[i][k] - begun[k]).abs().max()) for k in begun)
        assert drift > 0 or i == 0  # the first one's groups may have been alike

    # Broken off inside the second turn: the first is taken as it was, the second done again.
    shutil.rmtree(out / "model")
    (out / "turns" / "1-style" / "rollouts.json").unlink()
    again = run(values)
    assert all(map(equal, trained, weights(out)))
    assert again["style/reward"] == metrics["style/reward"]
    assert again["pictures"] == metrics["pictures"]


def test_adapters_learn_turn_by_turn(tmp_path: Path) -> None:
    """The reference of KL stays the start: TRL's copy of the adapter is gone after each turn."""
    values = settings(tmp_path, rounds=2)
    del values["prompters"][1]
    values["prompters"][0]["policy"]["lora"] = {"rank": 2}
    metrics = run(values)
    out = tmp_path / "run"
    assert metrics["turns"] == 2
    kept = [
        load_file(out / "turns" / t / "weights.safetensors") for t in ("0-subject", "1-subject")
    ]
    assert all(".default." in key for key in kept[0])
    assert kept[0].keys() == kept[1].keys()
    assert not any("lora" in key for key in weights(out)[0])


def test_the_last_prompter_learns_what_the_pictures_reward(tmp_path: Path) -> None:
    """After a warm-up on both with even odds, the part that makes pictures bright is written."""
    values = settings(tmp_path)
    values["prompters"][1]["warmup"]["trainer"]["max_steps"] = 20
    values["trainer"] |= {"max_steps": 12, "per_device_train_batch_size": 8, "save_steps": 50}
    metrics = run(values)
    out = tmp_path / "run"
    prompts = [p.text for p in training_prompts(12, 3)][:6]
    rewrites = t2x.load_rewriter(str(out / "model")).rewrite(prompts, num_generations=4, seed=9)
    said = [r.text.endswith("light") for row in rewrites for r in row[1:]]
    assert sum(said) / len(said) > 0.8
    assert metrics["style/reward"] > 0.5


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    values = settings(tmp_path, rounds=3)
    with pytest.raises(T2XError, match="of at least 6"):
        run(values)
    values = settings(tmp_path)
    values["data"]["validation"] = values["data"]["train"]
    with pytest.raises(T2XError, match=r"data\.validation is .*no effect in cooperative"):
        run(values)
    values = settings(tmp_path, rounds=0)
    with pytest.raises(T2XError, match="rounds is 0"):
        run(values)
    values = settings(tmp_path)
    values["prompters"][1] |= {"role": "magic", "template": None}
    with pytest.raises(T2XError, match="subject, arrangement, style"):
        run(values)
    values = settings(tmp_path)
    (tmp_path / "bad.jsonl").write_text('{"original_prompt": "a cat", "written": "a cat"}\n')
    values["prompters"][1]["warmup"]["rows"] = str(tmp_path / "bad.jsonl")
    with pytest.raises(T2XError, match="no column part"):
        run(values)
