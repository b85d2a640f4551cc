"""Scenes: validation, tasks, mirroring and the held-out split."""

from __future__ import annotations

import random

import pytest

from t2x.world.captions import sample_pair, training_scene
from t2x.world.scene import CLASSES, COLORS, RELATIONS, TASKS, Group, Scene, sample_scene
from t2x.world.split import (
    HELD_OUT_FRACTION,
    has_held_out_pair,
    is_held_out_color,
    is_held_out_relation,
)


@pytest.mark.parametrize("task", TASKS)
def test_sampled_scene_tests_its_task(task: str) -> None:
    rng = random.Random(3)
    assert {sample_scene(task, rng).task for _ in range(200)} == {task}


def test_unknown_names_are_told() -> None:
    with pytest.raises(ValueError, match="unknown class 'unicorn'; allowed: cat"):
        Group("unicorn")
    with pytest.raises(ValueError, match="unknown colour 'teal'"):
        Group("cat", "teal")
    with pytest.raises(ValueError, match="needs two groups"):
        Scene((Group("cat"),), "above")
    with pytest.raises(ValueError, match="1 to 4 objects"):
        Scene((Group("cat", None, 3), Group("dog", None, 2)))
    with pytest.raises(ValueError, match="unknown task 'video'"):
        sample_scene("video", random.Random(0))


def test_mirrored_twice_is_the_same_scene() -> None:
    scene = Scene((Group("cat", "red"), Group("bus", None, 2)), "above")
    assert scene.mirrored() == Scene((Group("bus", None, 2), Group("cat", "red")), "below")
    assert scene.mirrored().mirrored() == scene


def test_dict_round_trip() -> None:
    rng = random.Random(5)
    for _ in range(50):
        scene = sample_scene("mixed", rng)
        assert Scene.from_dict(scene.to_dict()) == scene


def test_split_holds_out_about_its_fraction_of_pairs() -> None:
    colors = [is_held_out_color(c, k) for c in CLASSES for k in COLORS]
    relations = [is_held_out_relation(c, r) for c in CLASSES for r in RELATIONS]
    for pairs in (colors, relations):
        share = sum(pairs) / len(pairs)
        sigma = (HELD_OUT_FRACTION * (1 - HELD_OUT_FRACTION) / len(pairs)) ** 0.5
        assert abs(share - HELD_OUT_FRACTION) < 4 * sigma


def test_held_out_relation_is_seen_from_both_sides() -> None:
    cls = next(c for c in CLASSES if is_held_out_relation(c, "above"))
    other = next(c for c in CLASSES if not is_held_out_relation(c, "below") and c != cls)
    scene = Scene((Group(cls), Group(other)), "above")
    assert has_held_out_pair(scene)
    assert has_held_out_pair(scene.mirrored())


def test_no_training_sample_tells_or_names_a_held_out_pair() -> None:
    rng = random.Random(0)
    assert not any(has_held_out_pair(training_scene(rng)) for _ in range(500))
    assert not any(has_held_out_pair(sample_pair(i).scene) for i in range(300))


def test_crowded_scenes_are_asked_for() -> None:
    """With ``crowded`` 1 every scene has several groups and three objects at least; 0 changes
    nothing."""
    rng = random.Random(0)
    scenes = [training_scene(rng, crowded=1.0) for _ in range(200)]
    assert all(len(s.groups) >= 2 and s.num_objects >= 3 for s in scenes)
    few = [training_scene(random.Random(i)) for i in range(300)]
    assert sum(len(s.groups) >= 2 and s.num_objects >= 3 for s in few) < 60
    assert few == [training_scene(random.Random(i), crowded=0.0) for i in range(300)]
