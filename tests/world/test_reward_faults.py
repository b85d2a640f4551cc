"""Pairs with one fault: the changed scene is wrong in that alone, and the table finds a reward that
sees it and one that does not.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.types import Context, Media
from t2x.world.captions import dense_prompt
from t2x.world.judge import FAULTS, Judge
from t2x.world.prompts import UserPrompt, held_out_prompts
from t2x.world.render import render_scene
from t2x.world.reward_auc import reward_aucs
from t2x.world.reward_faults import KINDS, blind_to, draw_fault_pairs, fault_table, plant
from t2x.world.scene import Group, Scene

N, SEED = 48, 5


class Renderer:
    """Draws the scene of a dense prompt that ``plan`` knows, and a cat for any other text."""

    model_id = "renderer"
    modality = "image"

    def __init__(self, prompts: Sequence[UserPrompt], seed: int) -> None:
        from t2x.world.reward_faults import _plan

        self.scenes = {}
        for i, (prompt, changed, _) in enumerate(_plan(prompts, seed)):
            self.scenes[dense_prompt(prompt.scene, seed + 2 * i)] = prompt.scene
            self.scenes[dense_prompt(changed, seed + 2 * i + 1)] = changed

    def generate(self, prompts: Sequence[str], *, seeds: Sequence[int], **options: object) -> Media:
        cat = Scene((Group("cat"),))
        pictures = [
            render_scene(self.scenes.get(text, cat), seed)
            for text, seed in zip(prompts, seeds, strict=True)
        ]
        return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255


class Reward:
    """Scores by a function of the pictures; the prompts are known to it."""

    modality = "image"
    scale = "test"
    range = (0.0, 1.0)
    differentiable = False

    def __init__(self, name: str, scenes: dict[str, Scene] | None) -> None:
        self.name, self.scenes = name, scenes

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        assert isinstance(media, Tensor)
        if self.scenes is None:
            return torch.full((len(media),), math.nan)
        arrays = (media.permute(0, 2, 3, 1) * 255).round().byte().numpy()
        judged = [Judge().check(self.scenes[p], a) for p, a in zip(prompts, arrays, strict=True)]
        return torch.tensor([float(v.correct) for v in judged])


@pytest.fixture(scope="module")
def table() -> dict:
    prompts = held_out_prompts(N, SEED)
    known = Reward("all-knowing", {p.text: p.scene for p in prompts})
    rewards = [known, Reward("silent", None)]
    return fault_table(rewards, generator=Renderer(prompts, SEED), n=N, seed=SEED, batch_size=16)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_the_one_that_the_judge_finds(fault: str) -> None:
    scene = Scene((Group("cat", "red", 2), Group("dog", "blue")), "left of")
    judge, rng = Judge(), random.Random(3)
    for seed in range(5):
        changed = plant(scene, fault, rng)
        assert changed is not None
        picture = render_scene(changed, seed)
        assert judge.check(changed, picture).correct
        assert judge.check(scene, picture).fault == fault
        assert judge.check(scene, render_scene(scene, seed)).fault == ""


def test_what_a_scene_does_not_state_cannot_be_wrong() -> None:
    rng = random.Random(0)
    assert plant(Scene((Group("cat"),)), "colour", rng) is None
    assert plant(Scene((Group("cat", "red"),)), "relation", rng) is None


def test_perfect_reward_and_missing_one(table: dict) -> None:
    assert sum(table["pairs"][f] for f in FAULTS) == table["pairs"]["blur"]
    assert sum(table["asked"].values()) == N
    assert min(table["pairs"][f] for f in FAULTS) >= 4
    for fault in FAULTS:
        entry = table["rewards"]["all-knowing"][fault]
        assert entry["auc"] == entry["paired"] == 1
        assert entry["ci95"] == [1, 1]
        silent = table["rewards"]["silent"][fault]
        assert math.isnan(silent["auc"])
        assert silent["missing"] == table["pairs"][fault]
    assert not set(blind_to(table["rewards"]["all-knowing"])) & set(FAULTS)
    assert blind_to(table["rewards"]["silent"]) == list(KINDS)
    json.dumps(table)


def test_pairs_that_the_judge_rejects_are_left_out() -> None:
    prompts = held_out_prompts(12, SEED)
    renderer = Renderer(prompts, SEED)
    renderer.scenes = dict(list(renderer.scenes.items())[:-2])  # the last pair comes out as cats
    pairs = draw_fault_pairs(renderer, prompts, seed=SEED)
    assert len(pairs.prompts) == 11
    assert prompts[-1].text not in pairs.prompts
    assert pairs.right.shape == pairs.wrong.shape == (11, 3, 64, 64)
    renderer.scenes = {}
    with pytest.raises(T2XError, match="none of 12 pairs"):
        draw_fault_pairs(renderer, prompts, seed=SEED)


def test_too_few_prompts_are_refused() -> None:
    with pytest.raises(T2XError, match="give at least 6"):
        fault_table([], n=3)


def test_faults_of_pictures_as_drawn() -> None:
    prompts = held_out_prompts(12, SEED)
    renderer = Renderer([], SEED)
    renderer.scenes = {p.text: p.scene for p in prompts[:6]}  # the other half comes out as cats
    known = Reward("all-knowing", {p.text: p.scene for p in prompts})
    found = reward_aucs([known], generator=renderer, n=12, per_prompt=1, seed=SEED)
    assert found["accepted"] == 0.5
    assert sum(found["first"].values()) == 6
    row = found["rewards"]["all-knowing"]
    assert row["pooled"] == row["faults"]["object"] == 1
    assert math.isnan(row["faults"]["relation"])
