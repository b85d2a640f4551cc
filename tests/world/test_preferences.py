"""Near misses, prompts and preferences: true, and fixed by their number."""

from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from t2x.world.captions import training_scene
from t2x.world.placing import fits_training
from t2x.world.preferences import (
    PERTURBATIONS,
    near_miss,
    perturb,
    preference_pair,
    prompt_for,
    show,
)
from t2x.world.prompts import training_prompts
from t2x.world.scene import CLASSES, COLORS, Group, Scene
from t2x.world.split import has_held_out_pair, is_held_out_color, is_held_out_relation
from t2x.world.tokenizer import MAX_TOKENS, build_clip_tokenizer
from t2x.world.truth import faults, satisfies


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


def test_prompts_vary_and_fit_the_tokenizer(rng: random.Random) -> None:
    tokenizer = build_clip_tokenizer(p.text for p in training_prompts(300))
    shown = show(training_scene(rng), rng)
    texts = {prompt_for(shown, rng) for _ in range(200)}
    assert len(texts) > 40
    assert all(len(ids) <= MAX_TOKENS for ids in tokenizer(list(texts)).input_ids)


def test_a_prompt_for_a_relation_always_tells_it() -> None:
    """Tags have no words for it: the flipped picture would fit them as well."""
    rng = random.Random(5)
    shown = show(Scene((Group("bus"), Group("pizza")), "left of"), rng)
    texts = [prompt_for(shown, rng) for _ in range(400)]
    assert any("exactly" in t for t in texts)  # careful captions are among them
    assert not any(t.startswith(("bus, pizza, ", "pizza, bus, ")) for t in texts)


def test_preferences_are_fixed_by_their_number_and_true() -> None:
    reasons = set()
    for number in range(300):
        pair = preference_pair(number)
        reasons.add(pair.reason)
        if number < 20:
            again = preference_pair(number)
            assert pair.prompt == again.prompt
            assert np.array_equal(pair.rejected.picture, again.rejected.picture)
        if pair.reason == "corrupted":
            assert pair.degrade == (False, True)
            assert np.array_equal(pair.chosen.picture, pair.rejected.picture)
            continue
        few, many = (faults(pair.scene, s.placed) for s in (pair.chosen, pair.rejected))
        assert few < many, (number, pair.reason)
        assert (few > 0) == (pair.reason == "several changes")
        assert satisfies(pair.scene, pair.chosen.placed) is (few == 0)
        assert satisfies(pair.scene, pair.rejected.placed) is False
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


def test_a_scene_that_training_may_not_show_is_refused_by_name() -> None:
    cls, color = next((c, k) for c in CLASSES for k in COLORS if is_held_out_color(c, k))
    scene = Scene((Group(cls, color),))
    with pytest.raises(ValueError, match=f"held out is {color} {cls}; .*held_out=True"):
        show(scene, random.Random(0))
    assert show(scene, random.Random(0), held_out=True).placed[0].color == color
    cls = next(c for c in CLASSES if is_held_out_relation(c, "above"))
    scene = Scene((Group(cls), Group("cat" if cls != "cat" else "dog")), "above")
    with pytest.raises(ValueError, match=f"held out is {cls} above"):
        show(scene, random.Random(0))


def test_three_groups_without_any_allowed_places_are_refused() -> None:
    triples = (Scene(tuple(map(Group, names))) for names in combinations(CLASSES, 3))
    scene = next(s for s in triples if not fits_training(s))
    with pytest.raises(ValueError, match="any places of its groups"):
        show(scene, random.Random(0))
    assert len(show(scene, random.Random(0), held_out=True).placed) == 3
