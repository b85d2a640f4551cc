"""Templates for the judge: the known sprites, blurred, over one standard background, at every size, colour and class.

Large objects are proposed on a grid of 4 pixels, small ones on a grid of 2, where their templates are projected on the leading
principal components of the bank, so that one picture costs two small matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from t2x.world.render import sprite
from t2x.world.scene import CLASSES, COLORS

__all__ = [
    "ALL_COLORS",
    "SIZES",
    "STANDARD_BACKGROUND",
    "Bank",
    "banks",
    "blur",
    "squash",
    "template",
]

Array = NDArray[np.float32]
STANDARD_BACKGROUND = 0.96
ALL_COLORS: tuple[str | None, ...] = (None, *COLORS)
SIZES = (20, 22, 24, 26, 28, 30, 33, 36, 39, 42, 45, 48)
_SMALL_SIZES = (22, 26, 30)
_LARGE_SIZES = (36, 42, 48)
_COMPONENTS = 128


def blur(picture: Array) -> Array:
    """Binomial blur, [1 2 1] / 4 along both leading axes, edges repeated."""
    wide = np.pad(picture, ((1, 1), (1, 1), (0, 0)), mode="edge")
    rows = wide[:-2] + 2 * wide[1:-1] + wide[2:]
    out: Array = (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 16
    return out


def squash(difference: Array) -> Array:
    """Take differences from the background that noise can make to zero: 0 below 0.03, unchanged above 0.09 (the largest channel)."""
    size = np.abs(difference).max(axis=-1, keepdims=True)
    out: Array = difference * np.clip((size - 0.03) / 0.06, 0, 1)
    return out


@lru_cache(maxsize=8_000)
def template(cls: str, color: str | None, size: int) -> Array:
    """Blurred difference of a sprite from the standard background: (size + 6, size + 6, 3), two more pixels on each side."""
    rgba = np.pad(sprite(cls, color, size), ((2, 2), (2, 2), (0, 0)))
    return squash(blur(rgba[..., :3] - rgba[..., 3:] * np.float32(STANDARD_BACKGROUND)))


@dataclass(frozen=True)
class Bank:
    """Templates of one range of sizes on one coarse grid.

    ``window``: side of the square seen around a centre, in pixels; ``step``: pixels per cell. The T templates are
    ordered by size (of ``sizes``), class, colour. ``basis``: (D, C), ``codes``: (C, T), with D the flat window and C components.
    ``energy``: (T,) squared norms. ``supports``: (window cells, T) 1 where a template has something, or is next to it.
    """

    window: int
    step: int
    sizes: tuple[int, ...]
    basis: Array
    codes: Array
    energy: Array
    supports: Array
    support_index: NDArray[np.int64]


def coarse(picture: Array, step: int) -> Array:
    """Average blocks of ``step`` x ``step`` pixels."""
    height, width, channels = picture.shape
    blocks = picture.reshape(height // step, step, width // step, step, channels)
    out: Array = blocks.mean(axis=(1, 3))
    return out


def _centered(cls: str, color: str | None, size: int, window: int, step: int) -> Array:
    """A template in the middle of a window, averaged over the places that it can have inside one cell."""
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
    flat, supports, support_index = [], [], []
    for size in sizes:
        for cls in CLASSES:
            drawn = [_centered(cls, color, size, window, step) for color in ALL_COLORS]
            mask = np.max([np.abs(t).max(axis=-1) for t in drawn], axis=0) > 0.03
            support_index += [len(supports)] * len(drawn)
            supports.append(_dilate(mask).ravel())
            flat += [t.ravel() for t in drawn]
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
        np.array(support_index),
    )


@lru_cache(maxsize=1)
def banks() -> tuple[Bank, Bank]:
    """The small and the large templates; built at the first call, in a few seconds."""
    return _build(_SMALL_SIZES, 36, 2, _COMPONENTS), _build(_LARGE_SIZES, 56, 4, _COMPONENTS)
