"""Templates for the judge: the known sprites, blurred, on one background, in all sizes and colours.

Large objects are proposed on a grid of 4 pixels, small ones on a grid of 2. Templates are projected
on the leading principal components of their bank: a picture costs a few small matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from t2x.world.render import sprite
from t2x.world.scene import CLASSES, COLORS

__all__ = [
    "ALL_COLORS",
    "SIZES",
    "STANDARD_BACKGROUND",
    "Array",
    "Bank",
    "banks",
    "blur",
    "coarse",
    "energy",
    "squash",
    "support",
    "template",
]

Array: TypeAlias = "NDArray[np.floating[Any]]"
STANDARD_BACKGROUND = 0.96
ALL_COLORS: tuple[str | None, ...] = (None, *COLORS)
SIZES = (20, 22, 24, 26, 28, 30, 33, 36, 39, 42, 45, 48)
_SMALL_SIZES = (22, 26, 30)
_LARGE_SIZES = (36, 42, 48)
_COMPONENTS = 96
_FAINT = 0.03


def blur(picture: Array) -> Array:
    """Binomial blur, [1 2 1] / 4 along both leading axes, edges repeated."""
    wide = np.pad(picture, ((1, 1), (1, 1), (0, 0)), mode="edge")
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    out: Array = (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 16
    return out


def squash(difference: Array) -> Array:
    """Zero the differences from the background that noise can make.

    The largest channel decides: below 0.03 nothing is left, above 0.09 all.
    """
    size = np.abs(difference).max(axis=-1, keepdims=True)
    out: Array = difference * np.clip((size - 0.03) / 0.06, 0, 1)
    return out


@lru_cache(maxsize=8_000)
def support(cls: str, color: str | None, size: int) -> NDArray[np.bool_]:
    """Pixels that a template touches: (size + 6, size + 6)."""
    out: NDArray[np.bool_] = np.abs(template(cls, color, size)).max(axis=-1) > 0
    return out


@lru_cache(maxsize=8_000)
def energy(cls: str, color: str | None, size: int) -> float:
    """Squared norm of a template."""
    return float(np.square(template(cls, color, size)).sum())


@lru_cache(maxsize=8_000)
def template(cls: str, color: str | None, size: int) -> Array:
    """Blurred difference of a sprite from the standard background: (size + 6, size + 6, 3)."""
    rgba = np.pad(sprite(cls, color, size), ((2, 2), (2, 2), (0, 0)))
    return squash(blur(rgba[..., :3] - rgba[..., 3:] * np.float32(STANDARD_BACKGROUND)))


@dataclass(frozen=True)
class Bank:
    """Templates of one range of sizes on one coarse grid.

    ``window``: side in pixels of the square around a centre. ``step``: pixels per cell. The T
    templates are ordered by colour, size (of ``sizes``) and class. ``basis``: (D, C) for a flat
    window of D values and C components; ``codes``: (C, T); ``energy``: (T,) squared norms.
    ``supports``: (window cells, T / colours), 1 where a template of that size and class has
    something in any colour, or is next to it.
    """

    window: int
    step: int
    sizes: tuple[int, ...]
    basis: Array
    codes: Array
    energy: Array
    supports: Array


def coarse(picture: Array, step: int) -> Array:
    """Average blocks of ``step`` x ``step`` pixels."""
    height, width, channels = picture.shape
    blocks = picture.reshape(height // step, step, width // step, step, channels)
    out: Array = blocks.mean(axis=(1, 3))
    return out


def _centered(cls: str, color: str | None, size: int, window: int, step: int) -> Array:
    """A template in the middle of a window, averaged over its possible places inside one cell."""
    image = template(cls, color, size)
    side = image.shape[0]
    canvas = np.zeros((window + step, window + step, 3), np.float32)
    shifts = range(0, step, max(1, step // 2))
    left = window // 2 - side // 2
    for dy in shifts:
        for dx in shifts:
            canvas[left + dy : left + dy + side, left + dx : left + dx + side] += image
    return coarse(canvas[:window, :window] / len(shifts) ** 2, step)


def _dilate(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    wide = np.pad(mask, 1)
    out: NDArray[np.bool_] = (
        mask | wide[2:, 1:-1] | wide[:-2, 1:-1] | wide[1:-1, 2:] | wide[1:-1, :-2]
    )
    return out


def _build(sizes: tuple[int, ...], window: int, step: int, components: int) -> Bank:
    flat, supports = [], []
    for color in ALL_COLORS:
        for size in sizes:
            flat += [_centered(cls, color, size, window, step).ravel() for cls in CLASSES]
    per_color = np.abs(np.stack(flat)).reshape(len(ALL_COLORS), -1, (window // step) ** 2, 3)
    for mask in per_color.max(axis=(0, 3)) > _FAINT:
        supports.append(_dilate(mask.reshape(window // step, -1)).ravel())
    matrix = np.stack(flat)
    _, vectors = np.linalg.eigh(matrix.T @ matrix)
    basis = np.ascontiguousarray(vectors[:, ::-1][:, :components])
    return Bank(
        window,
        step,
        sizes,
        basis,
        np.ascontiguousarray((matrix @ basis).T),
        (matrix**2).sum(axis=1),
        np.stack(supports, axis=1).astype(np.float32),
    )


@lru_cache(maxsize=1)
def banks() -> tuple[Bank, Bank]:
    """The small and the large templates; built at the first call, in a few seconds."""
    return _build(_SMALL_SIZES, 36, 2, _COMPONENTS), _build(_LARGE_SIZES, 56, 4, _COMPONENTS)
