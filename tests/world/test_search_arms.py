"""Arms at equal cost: the same number of pictures for all, drawn once, resumed, and summed up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t2x.errors import T2XError, UnknownNameError
from t2x.types import Media
from t2x.world.captions import dense_prompt
from t2x.world.evaluate import evaluate_arms, picture_seed
from t2x.world.prompts import validation_prompts
from t2x.world.render import render_scene
from t2x.world.scene import Group, Scene
from t2x.world.search_arms import EqualCost, evaluate_at_equal_cost

N, SEED, BUDGET = 30, 4, 3
ARMS = ("raw", "dense", "rules", "best-of-n")


class Painter:
    """Draws the true scene of dense texts and of half the seeds of any other; else a cat."""

    model_id = "painter"
    modality = "image"

    def __init__(self) -> None:
        prompts = validation_prompts(N, SEED)
        self.scenes = {p.text: p.scene for p in prompts}
        self.dense = {
            dense_prompt(p.scene, picture_seed(SEED, i)): p.scene for i, p in enumerate(prompts)
        }
        self.calls: list[tuple[str, int]] = []

    def generate(self, prompts: Sequence[str], *, seeds: Sequence[int], **options: Any) -> Media:
        self.calls += zip(prompts, seeds, strict=True)
        cat = Scene((Group("cat"),))
        pictures = []
        for text, seed in zip(prompts, seeds, strict=True):
            scene = self.dense.get(text) or (self.scenes.get(text, cat) if seed % 2 else cat)
            pictures.append(render_scene(scene, seed))
        return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255


class First:
    """Likes the picture with the most colour: what it measures does not matter here."""

    name = "colour"
    modality = "image"
    scale = "deviation"
    range = (0.0, 1.0)
    differentiable = True

    def score(self, prompts: Sequence[str], media: Media, **options: Any) -> torch.Tensor:
        return torch.stack([item.std() for item in media])


def setup(arms: Sequence[str] = ARMS, painter: Painter | None = None, **options: Any) -> EqualCost:
    parts: dict[str, Any] = {"generator": painter or Painter(), "rewriter": "rules"}
    parts |= {"rewards": [First()], "split": "validation", **options}
    return EqualCost(arms, N, SEED, BUDGET, **parts)


def measured(arms: Sequence[str] = ARMS, painter: Painter | None = None, **options: Any) -> dict:
    return evaluate_at_equal_cost(setup(arms, painter), **options)


@pytest.fixture(scope="module")
def painter() -> Painter:
    return Painter()


@pytest.fixture(scope="module")
def result(painter: Painter) -> dict:
    return measured(painter=painter)


def test_every_arm_costs_the_same_pictures_and_none_is_drawn_twice(
    result: dict, painter: Painter
) -> None:
    assert {arm["cost"]["pictures"] for arm in result["arms"].values()} == {BUDGET}
    calls = painter.calls[1:]  # the first one, alone, counts FLOPs
    assert painter.calls[0] == calls[0] and len(set(calls)) == len(calls)
    assert len(calls) < len(ARMS) * BUDGET * N  # raw and the searches share some
    for arm in result["arms"].values():
        assert arm["cost"]["seconds"] > 0 and arm["cost"]["reward_calls"] >= BUDGET


def test_scores_are_the_judge_s_of_final_and_of_first_pictures(result: dict) -> None:
    arms = result["arms"]
    assert arms["dense"]["overall"] >= 0.9 and arms["dense"]["one_picture"]["overall"] >= 0.9
    assert arms["raw"]["overall"] < 0.9
    assert arms["dense"]["gap_closed"] == pytest.approx(1)
    for arm in arms.values():
        assert arm["ci95"][0] <= arm["overall"] <= arm["ci95"][1]
    gap = result["differences"]["dense - raw"]
    assert gap["mean"] == pytest.approx(arms["dense"]["overall"] - arms["raw"]["overall"])
    assert "best-of-n - raw" in result["one_picture_differences"]
    assert json.loads(json.dumps(result))["budget"] == BUDGET


def test_one_picture_is_that_of_the_arms_without_a_budget(monkeypatch: Any, result: dict) -> None:
    monkeypatch.setattr("t2x.world.evaluate.held_out_prompts", validation_prompts)
    plain = evaluate_arms(("raw", "dense"), N, SEED, generator=Painter())
    for name in ("raw", "dense"):
        one = result["arms"][name]["one_picture"]
        assert one["overall"] == plain["arms"][name]["overall"]
        assert one["tasks"] == plain["arms"][name]["tasks"]


def test_a_stopped_run_goes_on_and_gives_the_same(tmp_path: Path, result: dict) -> None:
    two = ("dense", "best-of-n")
    out, heard = tmp_path / "rows.jsonl", []

    def stop(what: str, done: int, total: int) -> None:
        if done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_at_equal_cost(setup(two, chunk=8), out=out, progress=stop)
    assert len(out.read_text("utf-8").splitlines()) == 16
    again = evaluate_at_equal_cost(
        setup(two, chunk=8), out=out, progress=lambda *said: heard.append(said)
    )
    assert min(done for _, done, _ in heard) == 16 and heard[-1][1:] == (N, N)
    for name in two:
        assert _scores(again, name) == _scores(result, name)
    with pytest.raises(T2XError, match="begun with something else"):
        measured(("raw",), out=out)


def _scores(table: dict, name: str) -> dict:
    arm = table["arms"][name]
    kept = {key: arm[key] for key in ("overall", "ci95", "tasks", "kinds")}
    return {**kept, "one": arm["one_picture"]["overall"]}


def test_bad_calls() -> None:
    with pytest.raises(T2XError, match="each once"):
        measured(("raw", "raw"))
    with pytest.raises(T2XError, match="best-of-n, best-of-n; give each once"):
        measured(("best-of-n", "best-of-n"))
    with pytest.raises(UnknownNameError, match="unknown arm 'bogus'"):
        measured(("bogus",))
    with pytest.raises(T2XError, match=r"evolution draws several pictures .*--budget"):
        evaluate_arms(("raw", "evolution"), N, 0, generator=Painter())
    with pytest.raises(T2XError, match="unknown split 'test'; allowed: held-out"):
        setup(split="test").check()
    with pytest.raises(T2XError, match="workers load models of their own"):
        measured(workers=2)


@pytest.mark.slow
def test_workers_give_the_same_rows(tmp_path: Path) -> None:
    small = EqualCost(("raw", "best-of-n"), 30, 1, 2, rewriter="rules", chunk=16)
    one = evaluate_at_equal_cost(small, out=tmp_path / "one.jsonl")
    two = evaluate_at_equal_cost(small, out=tmp_path / "two.jsonl", workers=2)
    for name in small.arms:
        assert _scores(one, name) == _scores(two, name)
