"""Arms at equal cost: the same number of pictures for all, drawn once, resumed, and summed up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from t2x import __version__
from t2x.errors import T2XError, UnknownNameError
from t2x.scoring.ensemble import RewardEnsemble
from t2x.types import Media, Rewrite
from t2x.world.captions import dense_prompt
from t2x.world.evaluate import evaluate_arms, picture_seed
from t2x.world.judge import judge_pictures
from t2x.world.prompts import validation_prompts
from t2x.world.render import render_scene
from t2x.world.scene import TASKS, Group, Scene
from t2x.world.search_arms import EqualCost, _Bench, evaluate_at_equal_cost

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


def test_scores_are_the_judge_s_of_final_and_of_single_pictures(result: dict) -> None:
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


def test_one_picture_is_of_a_seed_that_no_arm_has_used(result: dict, painter: Painter) -> None:
    prompts = validation_prompts(N, SEED)
    unused = [picture_seed(SEED, i, BUDGET) for i in range(N)]
    media = Painter().generate([p.text for p in prompts], seeds=unused)
    right = [v.correct for v in judge_pictures([p.scene for p in prompts], media)]
    one = result["arms"]["raw"]["one_picture"]
    tasks = {
        t: [r for r, p in zip(right, prompts, strict=True) if p.scene.task == t] for t in TASKS
    }
    assert one["tasks"] == pytest.approx({t: sum(row) / len(row) for t, row in tasks.items()})
    assert {seed for _, seed in painter.calls} >= set(unused)


class Coin:
    """Draws what was asked for half the pairs of text and seed, and nothing for the others."""

    model_id = "coin"
    modality = "image"

    def __init__(self, n: int, budget: int) -> None:
        self.scenes = {
            picture_seed(SEED, i, number): p.scene
            for i, p in enumerate(validation_prompts(n, SEED))
            for number in range(budget + 1)
        }

    def generate(self, prompts: Sequence[str], *, seeds: Sequence[int], **options: Any) -> Media:
        pictures = []
        for text, seed in zip(prompts, seeds, strict=True):
            picture = render_scene(self.scenes[seed], seed)
            heads = hashlib.sha256(f"{text} {seed}".encode()).digest()[0] % 2
            pictures.append(picture if heads else np.full_like(picture, 255))
        return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255


class Looks:
    """A rewriter whose texts are all worth the same."""

    model_id = "looks"

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        return [[Rewrite(p, f"{p}, {word}") for word in LOOKS[:num_generations]] for p in prompts]


LOOKS = ("high quality", "sharp focus", "studio light", "soft light", "plain background") * 4


def test_one_picture_owes_nothing_to_selection() -> None:
    """Where every text is as good as any other, one picture is right half the time in every arm,
    and the picture that the reward takes nearly always."""
    n, budget = 72, 4
    table = evaluate_at_equal_cost(
        EqualCost(
            ("raw", "rewrite", "best-of-n"),
            n,
            SEED,
            budget,
            generator=Coin(n, budget),
            rewriter=Looks(),
            rewards=[First()],
            split="validation",
        )
    )
    assert table["arms"]["best-of-n"]["overall"] > 0.85
    for arm in table["arms"].values():
        assert arm["one_picture"]["overall"] == pytest.approx(0.5, abs=0.13)
        assert arm["cost"]["pictures"] == budget  # the one is no part of it


def test_writers_of_other_arms_count_and_forget(tmp_path: Path) -> None:
    bench = _Bench.load(setup(("raw", "t2x.testing:FakeRewriter"), chunk=8))
    [row, *_] = bench.rows(0)
    [writer] = bench.others
    assert writer.count_flops and not writer._told and not bench.writer._told
    assert row["arms"]["t2x.testing:FakeRewriter"]["text"]


def test_searches_may_be_named_as_in_the_registry() -> None:
    one, other = (measured(("raw", name)) for name in ("best-of-n", "search:best-of-n"))
    assert _scores(one, "best-of-n") == _scores(other, "search:best-of-n")
    with pytest.raises(T2XError, match="give each once"):
        setup(("best-of-n", "search:best-of-n")).check()
    with pytest.raises(T2XError, match=r"search:best-of-n draws several pictures .*--budget"):
        evaluate_arms(("raw", "search:best-of-n"), N, 0, generator=Painter())


def test_other_weights_are_another_run(tmp_path: Path) -> None:
    folder = tmp_path / "rewriter"
    folder.mkdir()
    (folder / "weights").write_text("one")
    named = EqualCost(n=N, rewriter=str(folder))
    before = named.settings()
    assert before["t2x"] == __version__ and before == named.settings()
    assert {"emoji-flow", "emoji-flow-turbo", "emoji-clip"} <= set(before["weights"])
    (folder / "weights").write_text("two")
    assert named.settings()["weights"] != before["weights"]


def test_loaded_rewards_are_written_with_their_weights() -> None:
    ensembles = [RewardEnsemble([First()], {"colour": weight}) for weight in (1.0, 2.0)]
    light, heavy = (setup(rewards=[e]).settings()["rewards"] for e in ensembles)
    assert light == {"ensemble": {"colour": 1.0}} and heavy == {"ensemble": {"colour": 2.0}}


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
