"""SFT, DPO, Sem-DPO and REBEL: each runs from a configuration, learns, goes on after a kill with
the same weights, with adapters too, and saves a rewriter.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import t2x
from t2x.errors import T2XError
from t2x.registry import loading

from .preference_runs import losses, pair_rows, run, sft_rows, write

pytestmark = pytest.mark.extra("train")

RECIPES = ("sft", "dpo", "sem_dpo", "rebel")


def settings(recipe: str, folder: Path, *, rows: int = 16) -> dict[str, Any]:
    """Few rows, and what else a recipe needs."""
    made = pair_rows(rows) if recipe in ("dpo", "sem_dpo") else sft_rows(rows)
    given: dict[str, Any] = {"data": {"train": write(folder / f"{recipe}.jsonl", made)}}
    if recipe == "sft":
        given["policy"] = {"model": "emoji-lm", "template_of": "emoji-rewriter"}
    if recipe == "sem_dpo":
        given["semantic"] = {"embedder": "clip", "alpha": 5.0}
    if recipe == "rebel":
        given["reward"] = {"rewards": {"clip": 10.0}}
        given["rebel"] = {"rounds": 2, "prompts": 4}
        given["trainer"] = {"per_device_train_batch_size": 2}
    return given


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "model" / "model.safetensors")


def killed(whole: Path, copy: Path) -> None:
    """What a kill after step 3 leaves of a run that saved at step 2."""
    copy.mkdir()
    shutil.copytree(whole / "checkpoint-2", copy / "checkpoint-2")
    if (whole / "rounds").exists():
        shutil.copytree(whole / "rounds", copy / "rounds")


@pytest.mark.parametrize(
    ("recipe", "lora"),
    [*((name, None) for name in RECIPES), ("dpo", {"rank": 4})],
)
def test_runs_resumes_and_saves(recipe: str, lora: Any, tmp_path: Path) -> None:
    given = settings(recipe, tmp_path)
    given["policy"] = {**given.get("policy", {}), "lora": lora}
    steps = {} if recipe == "rebel" else {"max_steps": 4}
    metrics = run(recipe, tmp_path / "whole", given, **steps)
    assert metrics["steps"] == 4
    assert json.loads((tmp_path / "whole" / "metrics.json").read_text()) == metrics
    assert len(losses(tmp_path / "whole")) == 4
    killed(tmp_path / "whole", tmp_path / "parts")
    again = run(recipe, tmp_path / "parts", given, **steps)
    if recipe == "rebel":
        check_cost(tmp_path / "whole", metrics)
        assert again["pictures"] == metrics["pictures"]
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    for name, value in whole.items():
        torch.testing.assert_close(parts[name], value, rtol=0, atol=1e-6, msg=name)
    # Only the steps after the checkpoint were taken again.
    assert losses(tmp_path / "parts") == pytest.approx(losses(tmp_path / "whole"), abs=1e-6)
    moved = weights_of_start(given["policy"].get("model", "emoji-rewriter"))
    assert any(not torch.equal(value, moved[name]) for name, value in whole.items())
    [[rewrite]] = t2x.load_rewriter(str(tmp_path / "whole" / "model")).rewrite(["two cats"])
    assert rewrite.original == "two cats"
    assert (tmp_path / "whole" / "adapter").exists() == (lora is not None)
    if lora is not None:
        check_adapter(tmp_path / "whole")


@pytest.mark.parametrize("trainer", [{"max_steps": 3}, {"num_train_epochs": 0.5}])
def test_a_finished_run_takes_no_step_more(
    trainer: dict[str, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO", "t2x.loading")
    monkeypatch.setattr(loading, "propagate", True)  # the command line keeps it apart
    given = settings("sft", tmp_path, rows=16)
    steps = {**trainer, "save_steps": 1}
    first = run("sft", tmp_path / "run", given, **steps)
    before = weights(tmp_path / "run")
    again = run("sft", tmp_path / "run", given, **steps)
    assert again["steps"] == first["steps"] == {"max_steps": 3}.get(*trainer, 2)
    for name, value in weights(tmp_path / "run").items():
        assert torch.equal(value, before[name]), name
    assert "nothing to train" in caplog.text and "run.resume=false" in caplog.text
    more = run("sft", tmp_path / "run", given, **{**steps, "max_steps": 4})
    last = int(first["steps"])
    assert more["steps"] == 4
    assert f"checkpoint-{last} (step {last} of 4)" in caplog.text


def check_cost(out: Path, metrics: dict[str, float]) -> None:
    """Two rounds of two steps: every line says what all rounds so far took."""
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    spent = [line["pictures"] for line in lines if "loss" in line]
    assert 0 < spent[0] == spent[1] < spent[2] == spent[3] == metrics["pictures"]
    assert metrics["pictures/drawn"] == metrics["pictures"]
    state = json.loads((out / "checkpoint-4" / "rollouts.json").read_text())
    assert state["pictures"] == metrics["pictures"]


def check_adapter(out: Path) -> None:
    """The adapter on the model it was trained from is the merged model."""
    from peft import PeftModel

    from t2x.training.config import PolicyConfig
    from t2x.training.policy import load_policy

    start = load_policy(PolicyConfig())
    adapted = PeftModel.from_pretrained(start.model, out / "adapter")
    merged = load_policy(PolicyConfig(str(out / "model"))).model
    ids = torch.tensor([start.encoder.encode("two cats and a red bus")])
    with torch.no_grad():
        torch.testing.assert_close(merged(ids).logits, adapted(ids).logits)
        with adapted.disable_adapter():
            assert not torch.allclose(merged(ids).logits, adapted(ids).logits, atol=1e-2)


def weights_of_start(name: str) -> dict[str, torch.Tensor]:
    from t2x.training.config import PolicyConfig
    from t2x.training.policy import load_policy

    return dict(load_policy(PolicyConfig(name)).model.state_dict())


def test_fine_tuning_learns_the_teacher(tmp_path: Path) -> None:
    given = settings("sft", tmp_path, rows=24)
    given["data"]["validation"] = write(tmp_path / "held.jsonl", sft_rows(24, seed=9))
    metrics = run("sft", tmp_path / "run", given, max_steps=20, save_steps=20)
    curve = losses(tmp_path / "run")
    assert sum(curve[-5:]) < 0.6 * sum(curve[:5])
    assert metrics["heldout/loss"] < curve[0]


@pytest.mark.parametrize("recipe", ["dpo", "sem_dpo"])
def test_the_preferred_text_becomes_likelier(recipe: str, tmp_path: Path) -> None:
    """On pairs that were not trained on: chosen against rejected, start against end."""
    given = settings(recipe, tmp_path)
    given["data"]["validation"] = write(tmp_path / "held.jsonl", pair_rows(12, seed=9))
    metrics = run(recipe, tmp_path / "run", given, max_steps=8, save_steps=8)
    assert metrics["heldout/log_ratio/margin"] > 0.3
    assert metrics["heldout/pair_accuracy"] > 0.7
    assert metrics["heldout/loss"] < 0.6  # log 2 before


def test_sem_dpo_leaves_out_winners_that_break_their_prompt(tmp_path: Path) -> None:
    rows = pair_rows(8)
    broken = {**rows[0], "original_prompt": "three dogs and a red car, no people"}
    open_end = {**rows[1], "chosen": "<think>a plan"}
    given = settings("sem_dpo", tmp_path)
    given["data"]["train"] = write(tmp_path / "rows.jsonl", [*rows, broken, open_end])
    metrics = run("sem_dpo", tmp_path / "gated", given, max_steps=1)
    assert (metrics["pairs"], metrics["gated"], metrics["unreadable"]) == (8, 1, 1)
    assert 0 < metrics["mean_weight"] < 1
    given["semantic"]["gates"] = False
    metrics = run("sem_dpo", tmp_path / "all", given, max_steps=1)
    assert (metrics["pairs"], metrics["gated"], metrics["unreadable"]) == (9, 0, 1)


def test_rows_without_answers_are_refused(tmp_path: Path) -> None:
    rows = write(tmp_path / "prompts.jsonl", [{"original_prompt": "a cat"}])
    with pytest.raises(T2XError, match=r"no column 'chosen'.*t2x data pairs"):
        run("dpo", tmp_path / "run", {"data": {"train": rows}})


@pytest.mark.parametrize(
    ("option", "value"), [("floor", 0.5), ("temperature", 2.0), ("sets", {"weight": 1.0})]
)
def test_rebel_refuses_what_only_advantages_have(option: str, value: Any, tmp_path: Path) -> None:
    given = settings("rebel", tmp_path) | {"rollout": {option: value}}
    with pytest.raises(T2XError, match=rf"rollout\.{option} is .*no effect in rebel"):
        run("rebel", tmp_path / "run", given)


def test_rebel_says_what_is_given_twice(tmp_path: Path) -> None:
    given = settings("rebel", tmp_path)
    with pytest.raises(T2XError, match=r"rebel\.eta"):
        run("rebel", tmp_path / "run", given, beta=0.5)
    with pytest.raises(T2XError, match="sum or standardised"):
        run(
            "rebel",
            tmp_path / "run",
            given | {"reward": {"rewards": {"clip": 1.0}, "combine": "gdpo"}},
        )
    with pytest.raises(T2XError, match="fewer than the 99 of a round"):
        run("rebel", tmp_path / "run", given | {"rebel": {"prompts": 99}})
