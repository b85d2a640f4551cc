"""Objects in a picture of the emoji world, found by template matching, without learned weights.

The picture's difference from its plain background is explained by a few known sprites, chosen one
by one by the squared error that each removes (matching pursuit, Mallat & Zhang 1993), each refined
over size and place. What no sprite explains counts as an unknown object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from t2x.world.render import IMAGE_SIZE
from t2x.world.scene import CLASSES, MAX_OBJECTS
from t2x.world.templates import (
    ALL_COLORS,
    SIZES,
    STANDARD_BACKGROUND,
    Array,
    Bank,
    banks,
    blur,
    coarse,
    energy,
    squash,
    support,
    template,
)

__all__ = ["UNKNOWN", "Detection", "detect"]

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Detection:
    """One object: class (or ``"unknown"``), colour (None: natural), centre and size in pixels.

    ``score``: twice the inner product with the template over the sum of both energies, 1 at best.
    """

    cls: str
    color: str | None
    x: int
    y: int
    size: int
    score: float


# --- the picture ---


def _background(picture: Array) -> Array:
    """The most common colour near the border of a (64, 64, 3) picture: (3,)."""
    edge = np.ones((IMAGE_SIZE, IMAGE_SIZE), bool)
    edge[8:-8, 8:-8] = False
    ring = picture[edge]
    bins = (ring * 15.99).astype(np.int64) @ np.array([256, 16, 1])
    values, counts = np.unique(bins, return_counts=True)
    center = np.median(ring[bins == values[counts.argmax()]], axis=0)
    near = ring[np.abs(ring - center).max(axis=1) < 0.08]
    out: Array = np.median(near, axis=0).astype(np.float32)
    return out


def _difference(picture: NDArray[np.uint8]) -> Array:
    """What stands out from the background, as if that were the templates' own: (64, 64, 3)."""
    image = blur(picture.astype(np.float32) / 255)
    background = _background(image)
    offset = image - background
    strength = np.clip((np.abs(offset).max(axis=-1, keepdims=True) - 0.03) / 0.06, 0, 1)
    return squash((offset + (background - STANDARD_BACKGROUND)) * strength)


# --- proposals ---

_REGION = 9  # pixels within which proposals compete
_PER_REGION = 6
_FAR_BEHIND = 0.15
_MAX_PROPOSALS = 28
_MIN_PROPOSAL = 0.45


def _scores(difference: Array, bank: Bank) -> tuple[NDArray[np.intp], Array]:
    """Match every template of a bank at every place of its grid that has something.

    Gives centres (P, 2) as y, x and scores (P, colours x sizes, classes).
    """
    half, step = bank.window // 2, bank.step
    small = coarse(np.pad(difference, ((half, half), (half, half), (0, 0))), step)
    side = bank.window // step
    views = np.lib.stride_tricks.sliding_window_view(small, (side, side), axis=(0, 1))
    power = (small**2).sum(axis=-1)
    power_views = np.lib.stride_tricks.sliding_window_view(power, (side, side))
    core = side // 4
    inner = power_views[..., core:-core, core:-core]
    places = np.argwhere(inner.sum(axis=(2, 3)) > 0.25 * bank.energy.min())
    places = places[(places < IMAGE_SIZE // step).all(axis=1)]
    rows, columns = places.T
    flat = views[rows, columns].transpose(0, 2, 3, 1).reshape(len(places), 3 * side**2)
    products = ((flat @ bank.basis) @ bank.codes).reshape(
        len(places), len(ALL_COLORS), bank.supports.shape[1]
    )
    window_energy = power_views[rows, columns].reshape(len(places), side**2) @ bank.supports
    products /= window_energy[:, None] + bank.energy.reshape(1, len(ALL_COLORS), -1)
    by_class = products.reshape(len(places), len(ALL_COLORS) * len(bank.sizes), len(CLASSES))
    return places * step, 2 * by_class


def _peaks(difference: Array, bank: Bank) -> list[Detection]:
    """Places where a class matches better than around it, in its best size and colour."""
    places, scores = _scores(difference, bank)
    if not len(places):
        return []
    values = scores.max(axis=1)
    side = IMAGE_SIZE // bank.step
    grid = np.full((side + 2, side + 2, len(CLASSES)), -1, np.float32)
    rows, columns = (places // bank.step).T
    grid[rows + 1, columns + 1] = values
    around = np.maximum.reduce([grid[:, :-2], grid[:, 1:-1], grid[:, 2:]])
    around = np.maximum.reduce([around[:-2], around[1:-1], around[2:]])
    peaks = np.argwhere((values >= around[rows, columns]) & (values > _MIN_PROPOSAL))
    found = []
    for place, ci in peaks:
        color, size = divmod(int(scores[place, :, ci].argmax()), len(bank.sizes))
        y, x = (int(v) for v in places[place])
        label = CLASSES[ci], ALL_COLORS[color]
        found.append(Detection(*label, x, y, bank.sizes[size], float(values[place, ci])))
    return found


def _propose(difference: Array) -> list[Detection]:
    """The best matches of both banks: one per class and region, and a few per region."""
    found = [d for bank in banks() for d in _peaks(difference, bank)]
    found.sort(key=lambda d: -d.score)
    kept: list[Detection] = []
    for candidate in found:
        rivals = [k for k in kept if _near(k, candidate)]
        if any(k.cls == candidate.cls or k.score > candidate.score + _FAR_BEHIND for k in rivals):
            continue
        if len(rivals) >= _PER_REGION:
            continue
        kept.append(candidate)
        if len(kept) == _MAX_PROPOSALS:
            break
    return kept


def _near(a: Detection, b: Detection) -> bool:
    """Whether two proposals compete for the same pixels."""
    return abs(a.x - b.x) < _REGION and abs(a.y - b.y) < _REGION and abs(a.size - b.size) < _REGION


# --- refinement and choice ---

_PAD = 32
_MIN_GAIN_SHARE = 0.03  # of the picture's energy
_MIN_SCORE = 0.82
_MIN_SCORE_WHITE = 0.7


def _is_white(d: Detection) -> bool:
    return d.color == "white" or (d.color is None and d.cls == "sheep")


def _min_score(d: Detection) -> float:
    """White objects are little but an outline on a light background, and match less well."""
    return _MIN_SCORE_WHITE if _is_white(d) else _MIN_SCORE


def _window(padded: Array, x: int, y: int, size: int, reach: int = 0) -> Array:
    """The part of a padded picture under a template, ``reach`` pixels wider on each side."""
    left, top = x - (size + 2) // 2 - 2 + _PAD - reach, y - (size + 2) // 2 - 2 + _PAD - reach
    side = size + 6 + 2 * reach
    return padded[top : top + side, left : left + side]


def _gain(padded: Array, d: Detection) -> float:
    """Squared error that drawing ``d`` removes."""
    image = template(d.cls, d.color, d.size)
    window = _window(padded, d.x, d.y, d.size)
    return 2 * float(np.vdot(window, image)) - energy(d.cls, d.color, d.size)


def _score(padded: Array, d: Detection) -> float:
    """Similarity of the picture and the template where the template has something."""
    own = energy(d.cls, d.color, d.size)
    window = _window(padded, d.x, d.y, d.size)
    seen = window[support(d.cls, d.color, d.size)]
    return (_gain(padded, d) + own) / max(own + float(np.vdot(seen, seen)), 1e-6)


def _move(padded: Array, d: Detection, size: int, reach: int) -> Detection:
    """Best place of ``d`` at ``size`` within ``reach`` pixels.

    By score, not by gain: a template gains by sliding over a neighbour that stands out more.
    """
    image, own = template(d.cls, d.color, size), energy(d.cls, d.color, size)
    mask = support(d.cls, d.color, size).astype(np.float32)
    window = _window(padded, d.x, d.y, size, reach)
    views = np.lib.stride_tricks.sliding_window_view
    shape = mask.shape
    products = np.tensordot(views(window, shape, (0, 1)), image.transpose(2, 0, 1), axes=3)
    seen = np.tensordot(views(np.square(window).sum(axis=-1), shape), mask, axes=2)
    scores = 2 * products / (seen + own)
    row, column = np.unravel_index(int(scores.argmax()), scores.shape)
    x, y = d.x + int(column) - reach, d.y + int(row) - reach
    return replace(d, size=size, x=x, y=y, score=float(scores[row, column]))


def _refine(padded: Array, d: Detection) -> Detection:
    """Climb over size and place, then choose the colour anew."""
    best = _move(padded, d, d.size, 2)
    for ladder in (SIZES, SIZES[::-1]):
        for size in ladder[ladder.index(best.size) + 1 :]:
            candidate = _move(padded, best, size, 1)
            if candidate.score <= best.score:
                break
            best = candidate
    return _recolor(padded, best)


def _recolor(padded: Array, d: Detection) -> Detection:
    """The colour that explains most."""
    window = _window(padded, d.x, d.y, d.size)
    gains = {
        color: 2 * float(np.vdot(window, template(d.cls, color, d.size)))
        - energy(d.cls, color, d.size)
        for color in ALL_COLORS
    }
    return replace(d, color=max(gains, key=gains.__getitem__))


def _subtract(padded: Array, d: Detection) -> Array:
    out = padded.copy()
    window = _window(out, d.x, d.y, d.size)
    window -= template(d.cls, d.color, d.size)
    return out


def _pursue(
    padded: Array, candidates: Sequence[Detection], by_score: bool
) -> tuple[list[Detection], Array]:
    """Pick objects one by one: the one that removes most error or, ``by_score``, matches best.

    Gives the objects and what is left of the picture.
    """
    least = _MIN_GAIN_SHARE * float(np.square(padded).sum())
    pool = list(candidates)
    chosen: list[Detection] = []
    rest = padded
    while len(chosen) <= MAX_OBJECTS + 1:
        gains = {d: gain for d in pool if (gain := _gain(rest, d)) > least}
        scores = {d: score for d in gains if (score := _score(rest, d)) > _min_score(d)}
        if not scores:
            break
        best = max(scores, key=(scores if by_score else gains).__getitem__)
        chosen.append(replace(best, score=scores[best]))
        pool = [d for d in scores if d is not best]
        rest = _subtract(rest, best)
    return chosen, rest


def _choose(padded: Array, candidates: Sequence[Detection]) -> tuple[list[Detection], Array]:
    """The better explanation of the two pursuits: the one that leaves less of the picture."""
    explanations = [_pursue(padded, candidates, by_score) for by_score in (False, True)]
    return min(explanations, key=lambda pair: float(np.square(pair[1]).sum()))


_MIN_DETAIL = 0.24
_MARGIN = 3  # pixels around a template that its detail is compared with


def _detail(picture: Array) -> Array:
    """What three blurs take away."""
    smooth = picture
    for _ in range(3):
        smooth = blur(smooth)
    return picture - smooth


def _named(padded: Array, d: Detection) -> Detection:
    """``d``, or an unknown object where only the coarse colours fit, as in a mosaic.

    Details are compared by cosine, at best within one pixel. White objects have too few.
    """
    if _is_white(d):
        return d
    margin = ((_MARGIN, _MARGIN), (_MARGIN, _MARGIN), (0, 0))
    own = _detail(np.pad(template(d.cls, d.color, d.size), margin))
    seen = _detail(_window(padded, d.x, d.y, d.size, _MARGIN + 1))
    views = np.lib.stride_tricks.sliding_window_view
    products = np.tensordot(views(seen, own.shape[:2], (0, 1)), own.transpose(2, 0, 1), axes=3)
    power = views(np.square(seen).sum(axis=-1), own.shape[:2]).sum(axis=(2, 3))
    cosine = products / np.sqrt(power * float(np.square(own).sum()) + 1e-9)
    return d if cosine.max() >= _MIN_DETAIL else replace(d, cls=UNKNOWN, color=None)


_LEFTOVER = 0.2
_SLACK = 1  # pixels by which an outline may stray
_MAX_LEFTOVER = 45  # pixels


def _spread(mask: NDArray[np.bool_], reach: int) -> NDArray[np.bool_]:
    """Dilate by a square that reaches ``reach`` pixels to each side."""
    for axis in (0, 1):
        shifts = [np.roll(mask, k, axis) for k in range(-reach, reach + 1)]
        mask = np.logical_or.reduce(shifts)
    return mask


def _leftover(rest: Array, chosen: Sequence[Detection]) -> Detection | None:
    """An unknown object, where enough pixels stand out and no chosen object explains them.

    A stray outline of a deformed object is thin or near it, and is none.
    """
    mask = np.abs(rest).max(axis=-1) > _LEFTOVER
    for d in chosen:
        window = _window(mask[..., None], d.x, d.y, d.size, _SLACK)
        near = _spread(np.pad(support(d.cls, d.color, d.size), _SLACK), _SLACK)
        window[near] = False
    mask = _spread(~_spread(~mask, 1), 1)
    area = int(mask.sum())
    if area <= _MAX_LEFTOVER:
        return None
    y, x = np.argwhere(mask).mean(axis=0) - _PAD
    return Detection(UNKNOWN, None, round(x), round(y), round(area**0.5), 0.0)


def detect(picture: NDArray[np.uint8]) -> list[Detection]:
    """Find the objects of one (64, 64, 3) uint8 picture; what no sprite explains is ``"unknown"``.

    Raises ValueError for another shape or type.
    """
    if picture.shape != (IMAGE_SIZE, IMAGE_SIZE, 3) or picture.dtype != np.uint8:
        raise ValueError(f"picture is {picture.shape} {picture.dtype}; allowed: (64, 64, 3) uint8")
    difference = _difference(picture)
    padded = np.pad(difference, ((_PAD, _PAD), (_PAD, _PAD), (0, 0)))
    candidates = [_refine(padded, d) for d in _propose(difference)]
    chosen, rest = _choose(padded, candidates)
    unknown = _leftover(rest, chosen)
    found = [_named(padded, d) for d in chosen]
    return found if unknown is None else [*found, unknown]
