"""Rendering of the emoji world: where the objects of a scene lie, and the 64x64 picture of them.

Objects lie in slots: the centre for one, halves for two, quadrants for three and four. The dense
caption style names these slots.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from t2x.world.scene import RELATIONS, Scene
from t2x.world.sprites import load_sprites

__all__ = [
    "COLOR_RGB",
    "IMAGE_SIZE",
    "QUADRANTS",
    "SLOT_CENTERS",
    "Placed",
    "any_background",
    "dull_background",
    "layout",
    "natural_order",
    "render",
    "render_scene",
    "sprite",
]

IMAGE_SIZE = 64
COLOR_RGB: dict[str, tuple[int, int, int]] = {
    "red": (222, 36, 40),
    "orange": (250, 140, 20),
    "yellow": (250, 222, 40),
    "green": (44, 165, 60),
    "blue": (40, 96, 220),
    "purple": (134, 58, 190),
    "pink": (250, 130, 190),
    "brown": (130, 80, 40),
    "black": (44, 44, 48),
    "white": (248, 248, 248),
}
SLOT_CENTERS: dict[str, tuple[int, int]] = {
    "center": (32, 32),
    "left": (16, 32),
    "right": (48, 32),
    "top": (32, 16),
    "bottom": (32, 48),
    "top left": (16, 16),
    "top right": (48, 16),
    "bottom left": (16, 48),
    "bottom right": (48, 48),
}
QUADRANTS = ("top left", "top right", "bottom left", "bottom right")
_HALF = {"left of": "left", "right of": "right", "above": "top", "below": "bottom"}
_OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}
_OUTLINE = np.array([0.25, 0.25, 0.27], np.float32)
_OUTLINE_STRENGTH = 0.85


@dataclass(frozen=True)
class Placed:
    """One object: centre (``x``, ``y``) and ``size`` in pixels, and the ``slot`` that it was put
    in."""

    cls: str
    color: str | None
    x: int
    y: int
    size: int
    slot: str


def _slots(scene: Scene, rng: random.Random) -> list[list[str]]:
    """Choose the slots of each group's objects."""
    if scene.num_objects == 1:
        return [["center"]]
    relation = scene.relation or rng.choice(RELATIONS)
    side = _HALF[relation]
    if len(scene.groups) == 1 and scene.groups[0].count == 2:
        return [[side, _OPPOSITE[side]]]
    if len(scene.groups) == 2:
        return [
            _half_slots(half, group.count)
            for half, group in zip((side, _OPPOSITE[side]), scene.groups, strict=True)
        ]
    free = rng.sample(QUADRANTS, scene.num_objects)
    return [[free.pop() for _ in range(group.count)] for group in scene.groups]


def _half_slots(half: str, count: int) -> list[str]:
    """Slots of one or two objects inside one half of the picture."""
    if count == 1:
        return [half]
    if half in ("left", "right"):
        return [f"top {half}", f"bottom {half}"]
    return [f"{half} left", f"{half} right"]


def natural_order(placed: list[Placed]) -> list[Placed]:
    """Objects in reading order of their slots: top to bottom, then left to right."""
    order = list(SLOT_CENTERS)
    return sorted(placed, key=lambda p: order.index(p.slot))


def layout(scene: Scene, rng: random.Random) -> list[Placed]:
    """Place the objects of ``scene``, inside the picture and apart from one another."""
    placed = []
    for group, slots in zip(scene.groups, _slots(scene, rng), strict=True):
        for slot in slots:
            x, y = SLOT_CENTERS[slot]
            if slot == "center":
                size, jitter = rng.randint(38, 46), 6
            else:
                size = rng.randint(24, 29) if scene.num_objects == 2 else rng.randint(23, 27)
                jitter = (31 - size) // 2
            shift_x = shift_y = jitter
            if slot in ("left", "right"):
                shift_y = 5
            elif slot in ("top", "bottom"):
                shift_x = 5
            placed.append(
                Placed(
                    group.cls,
                    group.color,
                    x + rng.randint(-shift_x, shift_x),
                    y + rng.randint(-shift_y, shift_y),
                    size,
                    slot,
                )
            )
    return placed


def _tint(rgba: NDArray[np.float32], color: str) -> NDArray[np.float32]:
    """Paint a sprite in one colour, its own luminance stretched into shading so that its drawing
    stays readable."""
    luminance = rgba[..., :3] @ np.array([0.299, 0.587, 0.114], np.float32)
    inside = luminance[rgba[..., 3] > 0.5]
    low, high = np.percentile(inside, (4, 96))
    shade = np.clip((luminance - low) / max(float(high - low), 1e-3), 0, 1)[..., None]
    base = np.array(COLOR_RGB[color], np.float32) / 255
    floor = 0.62 if color == "white" else 0.5
    light = 0.3 if color == "black" else 0.22
    painted = base * (floor + (1 - floor) * np.minimum(shade * 1.4, 1))
    painted = painted + (1 - painted) * light * np.clip(shade * 3 - 2, 0, 1)
    return np.concatenate([painted, rgba[..., 3:]], axis=-1).astype(np.float32)


@lru_cache(maxsize=20_000)
def sprite(cls: str, color: str | None, size: int) -> NDArray[np.float32]:
    """Outlined sprite, (size + 2, size + 2, 4) float32 RGBA in [0, 1], premultiplied by its
    alpha."""
    rgba = load_sprites()[cls]
    if color is not None:
        rgba = _tint(rgba, color)
    premultiplied = np.concatenate([rgba[..., :3] * rgba[..., 3:], rgba[..., 3:]], axis=-1)
    channels = [
        np.asarray(
            Image.fromarray(premultiplied[..., c]).resize((size, size), Image.Resampling.BOX)
        )
        for c in range(4)
    ]
    small = np.pad(np.stack(channels, axis=-1), ((1, 1), (1, 1), (0, 0)))
    alpha = small[..., 3]
    wide = np.pad(alpha, 1)
    ring = np.max(
        [wide[1:-1, 1:-1], wide[:-2, 1:-1], wide[2:, 1:-1], wide[1:-1, :-2], wide[1:-1, 2:]], axis=0
    )
    edge = np.clip(ring - alpha, 0, 1)[..., None] * _OUTLINE_STRENGTH
    out = small + edge * np.append(_OUTLINE, 1).astype(np.float32)
    clipped: NDArray[np.float32] = np.clip(out, 0, 1).astype(np.float32)
    return clipped


def render(placed: list[Placed], background: tuple[float, float, float]) -> NDArray[np.uint8]:
    """Draw objects over a plain ``background`` (RGB in [0, 1]): (64, 64, 3) uint8. What lies
    outside is cut."""
    canvas = np.empty((IMAGE_SIZE, IMAGE_SIZE, 3), np.float32)
    canvas[:] = background
    for p in placed:
        image = sprite(p.cls, p.color, p.size)
        side = image.shape[0]
        x, y = p.x - side // 2, p.y - side // 2
        left, top = max(0, -x), max(0, -y)
        right, bottom = min(side, IMAGE_SIZE - x), min(side, IMAGE_SIZE - y)
        if right <= left or bottom <= top:
            continue
        part = image[top:bottom, left:right]
        view = canvas[y + top : y + bottom, x + left : x + right]
        view *= 1 - part[..., 3:]
        view += part[..., :3]
    return (canvas * 255 + 0.5).astype(np.uint8)


def render_scene(scene: Scene, seed: int) -> NDArray[np.uint8]:
    """Draw a clean picture of ``scene``; the seed sets places, sizes and the shade of the light
    background."""
    rng = random.Random(seed)
    placed = layout(scene, rng)
    return render(placed, light_background(rng))


Rgb: TypeAlias = "tuple[float, float, float]"


def _tinted(base: float, spread: float, rng: random.Random) -> Rgb:
    r, g, b = (min(1.0, base + rng.uniform(-spread, spread)) for _ in range(3))
    return r, g, b


def light_background(rng: random.Random) -> Rgb:
    """Draw a near-white background."""
    return _tinted(rng.uniform(0.93, 0.99), 0.02, rng)


def dull_background(rng: random.Random, brightest: float = 0.97) -> Rgb:
    """Draw a background as of a snapshot: dull, or off in colour."""
    return _tinted(rng.uniform(0.8, brightest), 0.06, rng)


def any_background(rng: random.Random) -> Rgb:
    """Draw a background as reward models see them: six in ten light, the others dull."""
    return light_background(rng) if rng.random() < 0.6 else dull_background(rng)
