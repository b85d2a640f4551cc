"""Scene truth: what shows what, what is left open, and how many things are wrong."""

from __future__ import annotations

import pytest

from t2x.world.render import Placed
from t2x.world.scene import CLASSES, Group, Scene
from t2x.world.truth import faults, natural_colors, satisfies


def placed(cls: str, color: str | None = None, x: int = 32, y: int = 32) -> Placed:
    return Placed(cls, color, x, y, 24, "center")


CAT, DOG = placed("cat", "red", 16, 32), placed("dog", None, 48, 36)
CAT_LEFT_OF_DOG = Scene((Group("cat"), Group("dog")), "left of")


@pytest.mark.parametrize(
    ("scene", "expected"),
    [
        (Scene((Group("cat", "red"), Group("dog"))), True),
        (Scene((Group("cat"), Group("dog"))), True),  # any colour where none is stated
        (Scene((Group("cat", "blue"), Group("dog"))), False),
        (Scene((Group("cat", "red"),)), False),  # a dog too many
        (Scene((Group("cat", "red"), Group("dog"), Group("bus"))), False),
        (Scene((Group("cat", "red", 2), Group("dog"))), False),
        (Scene((Group("cat", "red"), Group("horse"))), False),
        (Scene((Group("cat"), Group("dog", "blue"))), False),  # a natural dog is not blue
        (Scene((Group("cat"), Group("dog")), "left of"), True),
        (Scene((Group("dog"), Group("cat")), "right of"), True),
        (Scene((Group("cat"), Group("dog")), "right of"), False),
        (Scene((Group("cat"), Group("dog")), "above"), None),  # four pixels: too close to call
        (Scene((Group("cat", "blue"), Group("dog")), "above"), False),
    ],
)
def test_two_objects_against_a_scene(scene: Scene, expected: bool | None) -> None:
    assert satisfies(scene, [CAT, DOG]) is expected
    assert satisfies(scene, [DOG, CAT]) is expected
    assert (faults(scene, [CAT, DOG]) > 0) is (expected is False)


@pytest.mark.parametrize(
    ("x", "expected"), [(33, False), (34, None), (36, None), (38, None), (39, True), (16, False)]
)
def test_a_relation_is_open_between_one_and_seven_pixels(x: int, expected: bool | None) -> None:
    assert satisfies(CAT_LEFT_OF_DOG, [placed("cat"), placed("dog", x=x)]) is expected


def test_objects_of_one_class_go_to_the_groups_that_they_fit() -> None:
    either = Scene((Group("cat"), Group("cat", "red")))
    assert satisfies(either, [placed("cat", "red"), placed("cat", "blue")]) is True
    assert satisfies(either, [placed("cat", "green"), placed("cat", "blue")]) is False
    objects = [placed("cat", "red", 16), placed("cat", "blue", 48)]
    both = Scene((Group("cat", "blue"), Group("cat", "red")), "right of")
    assert satisfies(both, objects) is True
    assert faults(both, objects) == 0
    assert faults(both.mirrored(), objects) == 0
    turned = Scene((Group("cat", "blue"), Group("cat", "red")), "left of")
    assert satisfies(turned, objects) is False
    assert faults(turned, objects) == 1
    assert satisfies(Scene((Group("cat", "red", 2),)), objects) is False
    assert satisfies(Scene((Group("cat", None, 2),)), objects) is True


def test_a_natural_color_is_left_open() -> None:
    assert satisfies(Scene((Group("apple", "red"),)), [placed("apple")]) is None
    assert satisfies(Scene((Group("apple", "blue"),)), [placed("apple")]) is False
    assert satisfies(Scene((Group("banana", "yellow"),)), [placed("banana")]) is None
    assert faults(Scene((Group("banana", "yellow"),)), [placed("banana")]) == 0
    assert natural_colors("stop sign") == {"red", "orange"}
    assert all(2 <= len(natural_colors(cls)) < 8 for cls in CLASSES)


@pytest.mark.parametrize(
    ("scene", "objects", "number"),
    [
        (CAT_LEFT_OF_DOG, [placed("cat", x=16), placed("dog", x=48)], 0),
        (CAT_LEFT_OF_DOG, [placed("cat", x=48), placed("dog", x=16)], 1),
        (CAT_LEFT_OF_DOG, [placed("cat")], 2),  # no dog, so nothing is left of one
        (CAT_LEFT_OF_DOG, [placed("bus", x=16), placed("dog", x=48)], 3),
        (Scene((Group("cat", "red", 2),)), [placed("cat", "red"), placed("cat", "blue")], 1),
        (Scene((Group("cat", "red", 2),)), [placed("cat", "blue")], 2),
        (Scene((Group("cat", "red", 2),)), [placed("cat", "red")] * 3, 1),
        (Scene((Group("cat", "red", 2),)), [placed("cat", "blue")] * 3, 3),
        (Scene((Group("cat", "red"), Group("dog"))), [placed("cat", "blue"), placed("bus")], 3),
    ],
)
def test_faults_are_counted(scene: Scene, objects: list[Placed], number: int) -> None:
    assert faults(scene, objects) == number
