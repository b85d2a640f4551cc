"""Reward models by their recipe: each kind trains, resumes, learns, and loads as a reward."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from t2x.config import load_config
from t2x.errors import T2XError
from t2x.media import save_png
from t2x.registry import load_recipe, load_reward
from t2x.training.picture_rows import load_pairs, load_questions

pytestmark = pytest.mark.extra("train")

CONFIGS = Path(__file__).parents[2] / "configs" / "train" / "world"


def run(name: str, out: Path, *changes: str) -> dict[str, float]:
    schema, main = load_recipe("reward_model")
    small = ("trainer.per_device_train_batch_size=2", "trainer.warmup_steps=0", "watch.report=0")
    return main(load_config(schema, CONFIGS / f"{name}.yaml", [f"run.out={out}", *small, *changes]))


def same_weights(one: Path, other: Path) -> bool:
    first, second = load_file(one), load_file(other)
    return all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize(
    ("name", "file", "reward"),
    [
        ("reward_model", "open_clip_model.safetensors", "hps"),
        ("reward_model_key_points", "model.safetensors", "align"),
    ],
)
def test_a_run_goes_on_where_it_stopped(name: str, file: str, reward: str, tmp_path: Path) -> None:
    """Killed behind a checkpoint, the run ends with the same weights, bit by bit."""
    fresh = "fresh=true&n=6"
    kind = "key-points" if "key" in name else "preferences"
    small = ("trainer.max_steps=2", "trainer.save_steps=1", f"data.validation=world:{kind}?{fresh}")
    metrics = run(name, tmp_path / "whole", *small)
    assert 0 <= metrics["validation/auc"] <= 1
    assert metrics["steps"] == 2
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    shutil.rmtree(tmp_path / "parts" / "checkpoint-2")
    shutil.rmtree(tmp_path / "parts" / "model")
    run(name, tmp_path / "parts", *small)
    assert same_weights(*(tmp_path / part / "model" / file for part in ("whole", "parts")))
    score = load_reward(reward, source=str(tmp_path / "whole" / "model")).score(
        ["two cats"], torch.rand(1, 3, 64, 64)
    )
    assert bool(score.isfinite().all())
    before = load_reward(reward, source="emoji-clip" if reward == "hps" else "emoji-vlm")
    assert not torch.equal(score, before.score(["two cats"], torch.rand(1, 3, 64, 64)))
    assert json.loads((tmp_path / "whole" / "metrics.json").read_text()) == metrics


def _swapped(folder: Path, count: int) -> str:
    """Preferences of the world with the worse picture as the chosen one."""
    rows = load_pairs(f"world:preferences?n={count}")
    lines = []
    for i in range(count):
        save_png(rows[i].chosen, folder / f"{i}a.png")
        save_png(rows[i].rejected, folder / f"{i}b.png")
        names = {"chosen": f"{i}b.png", "rejected": f"{i}a.png"}
        lines.append(json.dumps({"original_prompt": rows[i].prompt, **names}))
    (folder / "pairs.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder / "pairs.jsonl")


def test_preferences_of_a_file_are_learnt(tmp_path: Path) -> None:
    """Whatever the labels say: here that the worse picture is better."""
    path = _swapped(tmp_path, 10)
    small = (f"data.train={path}", f"data.validation={path}", "half=false")
    before = run("reward_model", tmp_path / "none", *small, "trainer.max_steps=1",
                 "trainer.learning_rate=0.0")  # fmt: skip
    after = run("reward_model", tmp_path / "some", *small, "trainer.max_steps=10",
                "trainer.per_device_train_batch_size=10")  # fmt: skip
    assert before["validation/accuracy"] < 0.4
    assert after["validation/accuracy"] > 0.7


def test_a_choice_model_is_fitted_and_loads(tmp_path: Path) -> None:
    metrics = run("reward_model", tmp_path, "kind=choice", "data.limit=60", "penalty=1e-5",
                  "data.validation=world:preferences?n=60")  # fmt: skip
    assert metrics["pairs"] == 60
    assert metrics["validation/accuracy"] > 0.8  # of the very pairs that it was fitted to
    reward = load_reward("rl-vlm-f", source=str(tmp_path / "model"))
    assert reward.score(["two cats"], torch.rand(1, 3, 64, 64)).isfinite().all()


def test_key_points_are_learnt_by_adapters(tmp_path: Path) -> None:
    """Answers turned round: the merged model says the opposite of what it was."""
    rows = load_questions("world:key-points?n=40&seed=5")
    kept = [r for i in range(40) if (r := rows[i]).answer in ("yes", "no")][:12]
    lines: list[dict[str, Any]] = []
    for i, row in enumerate(kept):
        assert row.picture is not None
        save_png(row.picture, tmp_path / f"{i}.png")
        other = "no" if row.answer == "yes" else "yes"
        asked = {"question": row.question.text, "answer": other, "picture": f"{i}.png"}
        lines.append({"original_prompt": "-", **asked})
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    metrics = run(
        "reward_model_key_points", tmp_path / "out", f"data.train={path}",
        f"data.validation={path}", "policy.lora.rank=8", "trainer.max_steps=15",
        "trainer.per_device_train_batch_size=12", "trainer.learning_rate=0.01",
    )  # fmt: skip
    assert metrics["validation/auc"] > 0.8
    saved = load_file(tmp_path / "out" / "model" / "model.safetensors")
    assert not any("lora" in key for key in saved)


def test_adapters_of_a_preference_model_are_refused(tmp_path: Path) -> None:
    with pytest.raises(T2XError, match=r"leave policy\.lora out"):
        run("reward_model", tmp_path, "policy.lora.rank=4")


def test_metrics_of_pairs() -> None:
    from t2x.train.reward_model import pair_metrics

    nan = float("nan")
    found = pair_metrics(torch.tensor([2.0, 1.0, 3.0, nan]), torch.tensor([1.0, 1.0, 4.0, 0.0]))
    assert found["validation/accuracy"] == pytest.approx(0.5)  # a win, a tie, a loss
    assert found["validation/missing"] == 1
    assert found["validation/auc"] == pytest.approx(8 / 12)


@pytest.mark.parametrize(
    "change", ["template_of=reprompt", "revision=main", "dtype=bfloat16", "device=cpu",
               "trust_remote_code=true", "template.user=x"],
)  # fmt: skip
def test_what_a_reward_model_makes_no_use_of_is_refused(change: str, tmp_path: Path) -> None:
    option = re.split(r"[.=]", change)[0]
    with pytest.raises(T2XError, match=rf"policy\.{option} is .*no effect in reward_model"):
        run("reward_model", tmp_path, f"policy.{change}")
