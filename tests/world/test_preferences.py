"""Scene truth: what satisfies what, near misses, prompts and preferences without held-out pairs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from t2x.world.captions import training_scene
from t2x.world.preferences import (
    PERTURBATIONS,
    near_miss,
    perturb,
    preference_pair,
    prompt_for,
    satisfies,
    show,
)
from t2x.world.render import Placed
from t2x.world.scene import Group, Scene
from t2x.world.split import has_held_out_pair


def placed(cls: str, color: str | None = None, x: int = 32, y: int = 32) -> Placed:
    return Placed(cls, color, x, y, 24, "center")


CAT_LEFT_OF_DOG = Scene((Group("cat"), Group("dog")), "left of")


@pytest.mark.parametrize(
    ("scene", "objects", "expected"),
    [
        (Scene((Group("cat"),)), [placed("cat", "red")], True),
        (Scene((Group("cat", "red"),)), [placed("cat", "red")], True),
        (Scene((Group("cat", "red"),)), [placed("cat", "blue")], False),
        (Scene((Group("banana", "yellow"),)), [placed("banana")], None),
        (Scene((Group("cat"),)), [placed("cat"), placed("dog")], False),
        (Scene((Group("cat", None, 2),)), [placed("cat")], False),
        (CAT_LEFT_OF_DOG, [placed("cat", x=16), placed("dog", x=48)], True),
        (CAT_LEFT_OF_DOG, [placed("cat", x=48), placed("dog", x=16)], False),
        (CAT_LEFT_OF_DOG, [placed("cat", y=10, x=30), placed("dog", y=50, x=33)], None),
        (CAT_LEFT_OF_DOG, [placed("cat", y=10), placed("dog", y=50)], False),
    ],
)
def test_satisfies(scene: Scene, objects: list[Placed], expected: bool | None) -> None:
    assert satisfies(scene, objects) is expected


def test_satisfies_finds_the_right_assignment() -> None:
    """A cat of any colour and a red one: whichever is listed first, both can be served."""
    scene = Scene((Group("cat"), Group("cat", "red")))
    assert satisfies(scene, [placed("cat", "red"), placed("cat", "blue")]) is True
    assert satisfies(scene, [placed("cat", "green"), placed("cat", "blue")]) is False


@pytest.fixture(scope="module")
def rng() -> random.Random:
    return random.Random(3)


def test_a_drawn_scene_satisfies_itself_and_its_near_miss_does_not(rng: random.Random) -> None:
    kinds = set()
    for _ in range(150):
        shown = show(training_scene(rng), rng)
        assert satisfies(shown.scene, shown.placed) is True
        missed, kind = near_miss(shown, rng)
        kinds.add(kind)
        assert satisfies(shown.scene, missed.placed) is False
        assert not has_held_out_pair(missed.scene)
        assert not np.array_equal(shown.picture, missed.picture)
    assert len(kinds) >= len(PERTURBATIONS) - 1


def test_one_change_keeps_the_rest(rng: random.Random) -> None:
    for _ in range(100):
        scene = training_scene(rng)
        changed, kind = perturb(scene, rng)
        difference = changed.num_objects - scene.num_objects
        expected = {"recount": {-1, 1}, "add": {1}, "drop": {-1, -2, -3}}.get(kind, {0})
        assert difference in expected, (kind, scene, changed)


def test_prompts_are_of_the_training_split(rng: random.Random) -> None:
    from t2x.world.prompts import split_of
    from t2x.world.tokenizer import MAX_TOKENS

    shown = show(training_scene(rng), rng)
    texts = {prompt_for(shown, rng) for _ in range(200)}
    assert len(texts) > 40
    assert all(len(t.split()) < MAX_TOKENS for t in texts)
    user = [t for t in texts if split_of(t) == "train"]
    assert len(user) > 0.6 * len(texts)


def test_preferences_are_fixed_by_their_number_and_true() -> None:
    reasons = set()
    for number in range(60):
        pair, again = preference_pair(number), preference_pair(number)
        assert pair.prompt == again.prompt
        assert np.array_equal(pair.rejected.picture, again.rejected.picture)
        reasons.add(pair.reason)
        if pair.reason == "corrupted":
            assert pair.degrade == (False, True)
            assert np.array_equal(pair.chosen.picture, pair.rejected.picture)
        elif pair.reason != "several changes":
            assert satisfies(pair.chosen.scene, pair.chosen.placed) is True
            assert satisfies(pair.chosen.scene, pair.rejected.placed) is False
    assert {"corrupted", "several changes", "flip", "recount"} <= reasons


def test_near_misses_of_near_misses_are_wrong_and_whole() -> None:
    """A chain of misses never fails, and each picture breaks the scene that it came from."""
    rng = random.Random(4)
    for _ in range(150):
        shown = show(training_scene(rng), rng)
        for _ in range(3):
            missed, _name = near_miss(shown, rng)
            assert satisfies(shown.scene, missed.placed) is False
            shown = missed
