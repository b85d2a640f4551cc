"""Rendering: determinism, places, colours and visibility."""

from __future__ import annotations

import random

import numpy as np
import pytest

from t2x.world.render import (
    COLOR_RGB,
    IMAGE_SIZE,
    SLOT_CENTERS,
    Placed,
    layout,
    light_background,
    render,
    render_scene,
    sprite,
)
from t2x.world.scene import CLASSES, COLORS, RELATIONS, Group, Scene, sample_scene

WHITE = (0.97, 0.97, 0.97)


def test_same_seed_same_bytes_and_another_seed_another_picture() -> None:
    scene = Scene((Group("cat"), Group("pizza", "red")), "left of")
    first = render_scene(scene, 1)
    assert first.shape == (IMAGE_SIZE, IMAGE_SIZE, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, render_scene(scene, 1))
    assert not np.array_equal(first, render_scene(scene, 2))


@pytest.mark.parametrize("relation", RELATIONS)
def test_relation_orders_every_object(relation: str) -> None:
    axis, sign = {
        "left of": ("x", -1),
        "right of": ("x", 1),
        "above": ("y", -1),
        "below": ("y", 1),
    }[relation]
    for seed in range(30):
        scene = Scene((Group("cat", None, 1 + seed % 2), Group("bus")), relation)
        placed = layout(scene, random.Random(seed))
        first = [getattr(p, axis) for p in placed if p.cls == "cat"]
        second = [getattr(p, axis) for p in placed if p.cls == "bus"]
        assert all(sign * (a - b) > 4 for a in first for b in second)


def test_layout_keeps_objects_inside_in_slots_of_their_own() -> None:
    rng = random.Random(1)
    for _ in range(300):
        scene = sample_scene("mixed", rng)
        placed = layout(scene, rng)
        assert len(placed) == scene.num_objects
        assert len({p.slot for p in placed}) == len(placed)
        for p in placed:
            assert p.slot in SLOT_CENTERS
            assert p.size / 2 - 1 <= p.x <= IMAGE_SIZE - p.size / 2 + 1
            assert p.size / 2 - 1 <= p.y <= IMAGE_SIZE - p.size / 2 + 1


@pytest.mark.parametrize("color", COLORS)
def test_tint_gives_its_colour_on_every_class(color: str) -> None:
    """The median colour inside a tinted sprite is a shade of its own name, and of no other."""
    for cls in CLASSES:
        rgba = sprite(cls, color, 40)
        solid = rgba[rgba[..., 3] > 0.99]
        median = np.median(solid[:, :3], axis=0)
        distances = {c: _distance_to_shades(median, c) for c in COLORS}
        assert distances[color] < 0.12, (cls, color, distances)  # scaling mixes shade and light
        assert min(distances, key=lambda c: distances[c]) == color, (cls, color, distances)


def _distance_to_shades(value: np.ndarray, color: str) -> float:
    """Distance to the nearest shade that shading (0.5 to 1) and highlights (0 to 0.3) can make of a
    colour."""
    base = np.array(COLOR_RGB[color]) / 255
    floor = 0.62 if color == "white" else 0.5
    shades = [base * k for k in np.linspace(floor, 1, 26)]
    lights = [base + (1 - base) * light for light in np.linspace(0, 0.3, 16)]
    return min(float(np.linalg.norm(value - s)) for s in shades + lights)


def test_every_object_stands_out_from_the_background() -> None:
    for cls in CLASSES:
        for color in (None, "white"):
            picture = render([Placed(cls, color, 32, 32, 26, "center")], WHITE).astype(int)
            changed = np.abs(picture - int(0.97 * 255 + 0.5)).max(axis=-1) > 40
            assert changed.sum() > 60, (cls, color)


def test_what_lies_outside_is_cut() -> None:
    picture = render([Placed("bus", None, 0, 0, 26, "center")], WHITE)
    empty = render([Placed("bus", None, 500, 0, 26, "center")], WHITE)
    assert len(np.unique(empty.reshape(-1, 3), axis=0)) == 1
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 1


def test_backgrounds_are_light() -> None:
    rng = random.Random(0)
    values = np.array([light_background(rng) for _ in range(200)])
    assert values.min() > 0.9
    assert values.max() <= 1
