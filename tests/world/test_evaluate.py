"""The arms: same prompts and noise for all, scores that follow what the generator draws."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from t2x.errors import T2XError, UnknownNameError
from t2x.types import Media
from t2x.world.captions import STYLES, dense_prompt
from t2x.world.evaluate import evaluate_arms, picture_seed, run_arms, style_scores
from t2x.world.prompts import held_out_prompts, validation_prompts
from t2x.world.render import render_scene
from t2x.world.scene import TASKS, Group, Scene

N, SEED = 78, 5  # enough for all three pools of kinds


class Oracle:
    """Draws the scene that a text is known to mean; a cat for any other text."""

    model_id = "oracle"
    modality = "image"

    def __init__(self, scenes: dict[str, Scene]) -> None:
        self.scenes = scenes
        self.calls: list[tuple[str, int]] = []

    def generate(self, prompts: Sequence[str], *, seeds: Sequence[int], **options: object) -> Media:
        self.calls += zip(prompts, seeds, strict=True)
        cat = Scene((Group("cat"),))
        pictures = [
            render_scene(self.scenes.get(text, cat), seed)
            for text, seed in zip(prompts, seeds, strict=True)
        ]
        return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """Understands dense prompts only."""
    prompts = held_out_prompts(N, SEED)
    return Oracle(
        {dense_prompt(p.scene, picture_seed(SEED, i)): p.scene for i, p in enumerate(prompts)}
    )


@pytest.fixture(scope="module")
def result(oracle: Oracle) -> dict:
    return evaluate_arms(("raw", "none", "dense", "rules"), N, SEED, generator=oracle, batch_size=8)


def test_negative_prompts_are_drawn_with(oracle: Oracle) -> None:
    """Arms that differ in the negative prompt alone are two pictures."""
    given: list[list[str] | None] = []

    class Draws(Oracle):
        def generate(self, prompts, *, negative=None, seeds, **options):  # type: ignore[no-untyped-def]
            given.append(negative)
            return super().generate(prompts, seeds=seeds, **options)

    prompts = held_out_prompts(N, SEED)[:2]
    writers = {
        "plain": lambda rows: [p.text for p in rows],
        "without": lambda rows: [(p.text, "dogs") for p in rows],
    }
    scores = run_arms(writers, prompts, Draws(oracle.scenes), seed=SEED)
    assert given == [["", "", "dogs", "dogs"]]
    assert scores["without"].texts == scores["plain"].texts == [p.text for p in prompts]
    run_arms({"plain": writers["plain"]}, prompts, Draws(oracle.scenes), seed=SEED)
    assert given[1] is None


def test_scores_follow_the_pictures(result: dict) -> None:
    arms = result["arms"]
    assert arms["dense"]["overall"] >= 0.95
    assert arms["raw"]["overall"] <= 0.1
    assert set(arms["raw"]["tasks"]) == set(TASKS)
    for arm in arms.values():
        assert arm["overall"] == pytest.approx(np.mean(list(arm["tasks"].values())))
        low, high = arm["ci95"]
        assert low <= arm["overall"] <= high
        assert arm["seconds_per_picture"] > 0
    assert arms["dense"]["gap_closed"] == pytest.approx(1)


def test_differences_are_paired_and_decided(result: dict) -> None:
    gap = result["differences"]["dense - raw"]
    assert gap["holds"] == "true"
    assert gap["low"] > 0.8
    assert result["differences"]["none - raw"]["mean"] == 0
    assert result["differences"]["none - raw"]["holds"] == "undecided"


def test_same_text_and_seed_are_drawn_once(oracle: Oracle, result: dict) -> None:
    assert len(set(oracle.calls)) == len(oracle.calls)
    seeds = {seed for _, seed in oracle.calls}
    assert seeds == {picture_seed(SEED, i) for i in range(N)}


def test_statuses_and_kinds_are_counted(result: dict) -> None:
    assert result["arms"]["none"]["statuses"] == {"unchanged": N}
    kinds = result["arms"]["raw"]["kinds"]
    assert sum(kind["n"] for kind in kinds.values()) == N
    assert any(kind["held_out"] for kind in kinds.values())
    assert any(not kind["held_out"] for kind in kinds.values())


def test_result_is_plain_data(result: dict) -> None:
    assert json.loads(json.dumps(result))["n"] == N


def test_styles_are_ranked_on_validation() -> None:
    prompts = validation_prompts(12, 3)
    known = {
        dense_prompt(p.scene, picture_seed(3, i), "tags"): p.scene for i, p in enumerate(prompts)
    }
    ranked = style_scores(12, 3, styles=("stock", "tags"), generator=Oracle(known))
    assert list(ranked) == ["tags", "stock"]
    assert ranked["tags"]["overall"] >= 0.9
    assert set(ranked) <= set(STYLES)


def test_seeds_differ_by_sample_and_run() -> None:
    seeds = {picture_seed(s, i) for s in range(3) for i in range(100)}
    assert len(seeds) == 300
    assert max(seeds) < 2**63


@pytest.mark.parametrize(
    ("arms", "n", "words"),
    [((), 12, "none"), (("raw", "raw"), 12, "once"), (("raw",), 3, "at least 6")],
)
def test_bad_calls(arms: tuple[str, ...], n: int, words: str) -> None:
    with pytest.raises(T2XError, match=words):
        evaluate_arms(arms, n, 0, generator=Oracle({}))


def test_an_unknown_arm_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(UnknownNameError, match="unknown arm 'bogus'; allowed: raw, dense"):
        evaluate_arms(("raw", "bogus"), 12, 0, generator="no-such-folder/at-all")


def test_drift_and_cost_stand_beside_the_score(result: dict) -> None:
    arms = result["arms"]
    for arm in arms.values():
        assert set(arm["cost"]) == {"seconds", "tokens_written", "tokens_read"}
    raw = arms["raw"]["drift"]
    assert raw["similarity"] == pytest.approx(1) and raw["length_ratio"] == 1
    assert raw["violations"] == 0 and raw["failed"] == 0
    dense = arms["dense"]["drift"]
    assert 0 < dense["similarity"] < 1 and dense["exact"] == 1
    assert 0.5 < arms["rules"]["drift"]["exact"] < 1
    assert arms["raw"]["cost"]["tokens_written"] == 0


def test_the_closed_share_of_the_gap_has_an_interval(result: dict) -> None:
    raw, dense, rules = (result["arms"][name] for name in ("raw", "dense", "rules"))
    assert raw["gap_closed_ci95"] == [0, 0] and dense["gap_closed_ci95"] == [1, 1]
    low, high = rules["gap_closed_ci95"]
    assert low <= rules["gap_closed"] <= high


def test_rows_hold_what_every_prompt_gave(oracle: Oracle) -> None:
    table = evaluate_arms(("raw", "twin=none"), 30, SEED, generator=oracle, rows=True)
    rows = table["rows"]
    assert rows["tasks"] == [p.task for p in held_out_prompts(30, SEED)]
    assert set(rows["arms"]) == {"raw", "twin"}
    assert all(len(values) == 30 for values in rows["arms"]["twin"].values())
    assert rows["arms"]["raw"] == rows["arms"]["twin"]
