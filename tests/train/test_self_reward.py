"""A model that rewrites, judges itself and learns from that, by its recipe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import t2x
from t2x.config import build_config
from t2x.errors import T2XError
from t2x.registry import load_recipe
from t2x.rewriters.completion import Completion
from t2x.rollouts.records import Outcome
from t2x.scoring.vlm import load_vlm
from t2x.training.answers import answer_odds
from t2x.training.picture_rows import load_questions
from t2x.types import Rewrite
from t2x.world.prompts import training_prompts
from t2x.world.reward_auc import auc

pytestmark = pytest.mark.extra("train")


def settings(folder: Path, **changes: Any) -> dict[str, Any]:
    prompts = folder / "prompts.jsonl"
    texts = [p.text for p in training_prompts(4, 3)]
    prompts.write_text("".join(json.dumps({"original_prompt": t}) + "\n" for t in texts))
    user = 'In plain words, what is "{prompt}"?'
    return {
        "run": {"out": str(folder / "run")},
        "watch": {"report": 0, "bar": False},
        "data": {"train": str(prompts), "validation": str(prompts)},
        "policy": {"model": "emoji-vlm"},
        "template": {"user": user, "max_new_tokens": 24, "temperature": 2.0, "domain": "emoji"},
        "generator": "t2x.testing:FakeGenerator",
        "finder": "emoji",
        "rounds": {"number": 1, "prompts": 4, "generations": 3, "pictures": 1, "margin": 0.0},
        "trainer": {
            "per_device_train_batch_size": 2,
            "learning_rate": 3e-4,
            "num_train_epochs": 2,
            "logging_steps": 1,
            "save_steps": 1,
        },
        **changes,
    }


def run(values: dict[str, Any]) -> dict[str, float]:
    schema, main = load_recipe("self_reward")
    return main(build_config(schema, values))


def test_a_round_learns_from_its_own_scores_and_goes_on(tmp_path: Path) -> None:
    values = settings(tmp_path)
    metrics = run(values)
    out = tmp_path / "run"
    rows = [json.loads(line) for line in (out / "rounds/1/pairs.jsonl").read_text().splitlines()]
    assert metrics["round1/pairs"] == len(rows) > 0
    card = json.loads((out / "rounds/1/pairs.json").read_text())
    assert (card["pairs"], sum(card["kinds"].values())) == (len(rows), 12)
    assert all(row["score_chosen"] > row["score_rejected"] for row in rows)
    assert metrics["round1/dpo/rewards/margins"] > 0
    assert {"round0/heldout/gain/align", "round1/heldout/gain/hps"} <= set(metrics)

    # The folder is a rewriter and a judge.
    [[rewrite]] = t2x.load_rewriter(str(out / "model")).rewrite(["two cats"])
    assert rewrite.status in ("accepted", "unchanged")
    judge = t2x.load_reward("align", source=str(out / "model"))
    assert bool(judge.score(["two cats"], torch.rand(1, 3, 64, 64)).isfinite().all())

    # Broken off behind the first step of DPO: the same end, bit by bit.
    trained = load_file(out / "model" / "model.safetensors")
    statistics = (out / "rounds/1/rollouts.json").read_text()
    shutil.rmtree(out / "model")
    (out / "rounds" / "1" / "metrics.json").unlink()
    last = max((out / "rounds" / "1").glob("checkpoint-*"), key=lambda p: int(p.name[11:]))
    assert last.name != "checkpoint-1"
    again = run(values)
    assert again["round1/pairs"] == metrics["round1/pairs"]
    found = load_file(out / "model" / "model.safetensors")
    assert all(torch.equal(trained[key], found[key]) for key in trained)
    assert (out / "rounds/1/rollouts.json").read_text() == statistics


def test_supervised_steps_teach_rewriting_and_keep_the_judge(tmp_path: Path) -> None:
    rewrites = tmp_path / "rewrites.jsonl"
    row = {"original_prompt": "two cats", "completion": "vector art of two cats, white background"}
    rewrites.write_text(json.dumps(row) + "\n")
    values = settings(tmp_path)
    fresh = "world:key-points?n=60&fresh=true"
    values["sft"] = {
        "rewrites": str(rewrites),
        "answers": None,
        "trainer": {"max_steps": 12, "learning_rate": 1e-3, "per_device_train_batch_size": 1},
    }
    schema, _ = load_recipe("self_reward")
    config = build_config(schema, values)
    from t2x.train import self_reward as recipe
    from t2x.training.answers import load_trainable_vlm

    vlm = load_trainable_vlm("emoji-vlm")
    recipe.teach(vlm, config, config.sft)
    recipe.save(vlm, config, tmp_path / "model")
    [[rewrite]] = t2x.load_rewriter(str(tmp_path / "model")).rewrite(["two cats"])
    assert rewrite.text == row["completion"]
    questions = load_questions(fresh)
    asked = [questions[i] for i in range(60)]
    truth = torch.tensor([bool(q.right) for q in asked])
    saved = load_vlm(str(tmp_path / "model"))
    assert auc(answer_odds(saved, asked), truth) > 0.7

    # A second call takes what was learnt.
    other = load_trainable_vlm("emoji-vlm")
    recipe.teach(other, config, config.sft)
    pairs = zip(vlm.model.parameters(), other.model.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_mixed_rows_have_the_share_that_was_asked_for() -> None:
    from t2x.rewriters.templates import Template
    from t2x.train.self_reward import SftConfig, _taught

    vlm = load_vlm("emoji-vlm")
    sft = SftConfig("world:rewrites?n=60", "world:key-points?n=50", share=0.4)
    rows = _taught(sft, Template(user="{prompt}"), vlm)
    taught = [rows[i] for i in range(50)]
    assert sum(row.picture is not None for row in taught) == 20
    words = [row.question.text for row in taught if row.picture is None]
    assert len(set(words)) > 25  # none is left out or repeated


def outcome(reward: float, kind: Any = "rewrite", text: str = "a", **scores: float) -> Any:
    own = {name: (value,) for name, value in scores.items()}
    plain = dict.fromkeys(scores, (0.5,))
    made = Outcome(Rewrite("p", text), kind, 0, (1,), own, plain, reward, 0.5)
    return Completion(text), made


def test_pairs_are_best_and_worst() -> None:
    from t2x.train.self_reward import best_and_worst

    nan = float("nan")
    group = [outcome(0.4, text="a"), outcome(0.9, text="b"), outcome(0.6, text="c")]
    best, worst = best_and_worst(group, 0.1)
    assert (best[0].text, worst[0].text) == ("b", "a")
    assert best_and_worst(group, 0.5) is None
    # A policy's failure loses, whatever its fixed score says of others; it never wins.
    best, worst = best_and_worst([*group, outcome(-2.0, "broken", "d")], 0.1)
    assert worst[0].text == "d"
    assert best_and_worst([outcome(1.0, "failed", "a"), outcome(0.0, "broken", "b")], 0.1) is None
    # What was not measured takes no part, and neither do equal texts.
    assert best_and_worst([outcome(0.4), outcome(nan, text="b")], 0.1) is None
    assert best_and_worst([outcome(0.4), outcome(0.9)], 0.1) is None


def test_a_judge_that_favours_itself_is_seen() -> None:
    """It finds all four better than the plain prompt, of which the outside finds two worse."""
    from t2x.train.self_reward import compare

    rows = [(0.9, 0.6), (0.8, 0.7), (0.9, 0.4), (0.8, 0.3)]
    outcomes = [outcome(1.0, align=a, hps=b)[1] for a, b in rows]
    found = compare(outcomes, "hps")
    assert found["heldout/self_preference"] == 1.0
    assert found["heldout/gain/align"] == pytest.approx(0.35)
    assert found["heldout/gain/hps"] == pytest.approx(0.0)
    assert set(compare(outcomes, None)) == {"heldout/align", "heldout/gain/align"}


def test_settings_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    values = settings(tmp_path)
    with pytest.raises(T2XError, match="one user message"):
        run(values | {"template": {"system": "You rewrite."}})
    with pytest.raises(T2XError, match="generations is 1; give at least 2"):
        run(values | {"rounds": {"generations": 1}})
    with pytest.raises(T2XError, match=r"policy\.revision is 'main', which has no effect"):
        run(values | {"policy": {"model": "emoji-vlm", "revision": "main"}})
    for option, value in (("workers", 2), ("floor", 0.1), ("sets", {"weight": 1.0})):
        with pytest.raises(T2XError, match=rf"rollout\.{option} is .*no effect in self_reward"):
            run(values | {"rollout": {option: value}})
    with pytest.raises(T2XError, match="below 1"):
        run(values | {"sft": {"share": 1.0}})
