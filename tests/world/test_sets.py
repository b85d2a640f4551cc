"""Sets of rewrites: diversity of the texts, fidelity of all their pictures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from t2x.errors import T2XError
from t2x.types import Media
from t2x.world.arms import picture_seed
from t2x.world.captions import dense_prompt
from t2x.world.prompts import held_out_prompts
from t2x.world.render import render_scene
from t2x.world.scene import Group, Scene
from t2x.world.sets import evaluate_sets

N, GROUP, SEED = 30, 3, 5


class Oracle:
    """Draws the scene that a dense text means; a cat for any other text."""

    model_id = "oracle"
    modality = "image"

    def __init__(self) -> None:
        self.seeds: list[int] = []
        self.scenes = {
            dense_prompt(p.scene, picture_seed(SEED, i, g)): p.scene
            for i, p in enumerate(held_out_prompts(N, SEED))
            for g in range(GROUP)
        }

    def generate(self, prompts: Sequence[str], *, seeds: Sequence[int], **options: object) -> Media:
        self.seeds += seeds
        cat = Scene((Group("cat"),))
        drawn = [
            render_scene(self.scenes.get(text, cat), seed)
            for text, seed in zip(prompts, seeds, strict=True)
        ]
        return torch.from_numpy(np.stack(drawn)).permute(0, 3, 1, 2).float() / 255


def test_copies_have_the_least_diversity_and_every_picture_counts() -> None:
    oracle = Oracle()
    found = evaluate_sets(("raw", "dense"), N, SEED, group=GROUP, generator=oracle, rows=True)
    raw, dense = found["arms"]["raw"], found["arms"]["dense"]
    assert raw["diversity"] == pytest.approx(math.log(1 + GROUP), abs=1e-4)
    assert raw["distinct"] == 1 and dense["distinct"] >= 1
    assert raw["diversity"] <= dense["diversity"] <= GROUP * math.log(2)
    assert dense["overall"] >= 0.9 and raw["overall"] <= 0.1
    rows = found["rows"]["arms"]["dense"]
    assert len(rows["correct"]) == len(rows["diversity"]) == N
    # Each member of a set has noise of its own, the same for both arms.
    assert len(set(oracle.seeds)) == N * GROUP
    assert json.loads(json.dumps(found))["group"] == GROUP


def test_a_set_of_one_is_refused() -> None:
    with pytest.raises(T2XError, match="at least 2"):
        evaluate_sets(("raw",), N, SEED, group=1, generator=Oracle())
