"""The judge: which objects a picture of the emoji world shows, and whether they are those of a scene.

Classical template matching, no learned weights: the picture's difference from its plain background is explained by a few known sprites,
chosen greedily by the squared error that each removes (matching pursuit, Mallat & Zhang 1993), each refined over size and place. What
no sprite explains counts as an unknown object. It plays the part that an object detector plays in GenEval (Ghosh et al. 2023,
arXiv 2310.11513), and is used in measurements only: never in training, guidance, tuning or labelling.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from t2x.world.render import IMAGE_SIZE
from t2x.world.scene import CLASSES, MAX_OBJECTS, Scene
from t2x.world.templates import (
    ALL_COLORS,
    SIZES,
    STANDARD_BACKGROUND,
    Bank,
    banks,
    blur,
    coarse,
    squash,
    template,
)

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = [
    "NATURAL_COLORS",
    "UNKNOWN",
    "Detection",
    "Judge",
    "Verdict",
    "color_matches",
    "detect",
    "judge_pictures",
]

Array = NDArray[np.float32]
UNKNOWN = "unknown"
MIN_OFFSET = 4.0  # pixels between the mean centres of two groups that make a relation

# Colours that a person would call an untinted emoji; classes that are not here have no single colour.
NATURAL_COLORS: dict[str, frozenset[str]] = {
    cls: frozenset(colors.split())
    for cls, colors in {
        "cat": "orange yellow",
        "horse": "brown orange",
        "sheep": "white",
        "bear": "brown",
        "giraffe": "orange yellow",
        "bird": "blue",
        "teddy bear": "brown",
        "apple": "red",
        "banana": "yellow",
        "broccoli": "green",
        "carrot": "orange",
        "car": "red",
        "motorcycle": "red",
        "traffic light": "black",
        "stop sign": "red",
        "umbrella": "purple blue",
        "backpack": "red",
        "handbag": "brown",
        "skateboard": "black",
        "chair": "brown",
        "couch": "blue",
        "potted plant": "green",
        "book": "red",
        "clock": "red",
    }.items()
}


@dataclass(frozen=True)
class Detection:
    """One object: class (or ``"unknown"``), colour (None: natural), centre and size in pixels.

    ``score`` in [-1, 1] is twice the inner product with the template over the sum of their energies: 1 is a perfect match.
    """

    cls: str
    color: str | None
    x: int
    y: int
    size: int
    score: float


@dataclass(frozen=True)
class Verdict:
    """Whether a picture shows exactly its scene; ``reason`` says what is wrong, empty when ``correct``."""

    correct: bool
    detections: tuple[Detection, ...]
    reason: str = ""


def color_matches(cls: str, seen: str | None, wanted: str | None) -> bool:
    """Whether an object seen in colour ``seen`` (None: natural) is right where ``wanted`` is asked for (None: any colour will do)."""
    if wanted is None or seen == wanted:
        return True
    return seen is None and wanted in NATURAL_COLORS.get(cls, frozenset())


# --- the picture ---------------------------------------------------------------------------------------------------------------


def _background(picture: Array) -> Array:
    """The most common colour near the border of a (64, 64, 3) picture, to about a grey level: (3,)."""
    ring = np.concatenate(
        [picture[:8].reshape(-1, 3), picture[-8:].reshape(-1, 3)]
        + [picture[8:-8, :8].reshape(-1, 3), picture[8:-8, -8:].reshape(-1, 3)]
    )
    bins = (ring * 15.99).astype(np.int64) @ np.array([256, 16, 1])
    values, counts = np.unique(bins, return_counts=True)
    center = np.median(ring[bins == values[counts.argmax()]], axis=0)
    near = ring[np.abs(ring - center).max(axis=1) < 0.08]
    out: Array = np.median(near, axis=0).astype(np.float32)
    return out


def _difference(picture: NDArray[np.uint8]) -> Array:
    """What stands out from the background, as if the background were the templates' own: (64, 64, 3)."""
    image = blur(picture.astype(np.float32) / 255)
    background = _background(image)
    offset = image - background
    strength = np.clip((np.abs(offset).max(axis=-1, keepdims=True) - 0.03) / 0.06, 0, 1)
    return squash((offset + (background - STANDARD_BACKGROUND)) * strength)


# --- proposals -----------------------------------------------------------------------------------------------------------------

_REGION = 9  # pixels within which proposals compete
_PER_REGION = 5
_MAX_PROPOSALS = 28
_MIN_PROPOSAL = 0.45


def _scores(difference: Array, bank: Bank) -> tuple[NDArray[np.int64], Array]:
    """Match every template of a bank at every place of its grid that has something: centres (P, 2) as y, x, and scores (P, T)."""
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
    flat = views[rows, columns].transpose(0, 2, 3, 1).reshape(len(places), -1)
    products = (flat @ bank.basis) @ bank.codes
    energy = power_views[rows, columns].reshape(len(places), -1) @ bank.supports
    scores: Array = 2 * products / (energy[:, bank.support_index] + bank.energy)
    return places * step, scores


def _peaks(difference: Array, bank: Bank) -> list[Detection]:
    """Places where a class matches better than around it, each with the size and colour that match best there."""
    places, scores = _scores(difference, bank)
    by_class = scores.reshape(len(places), -1, len(CLASSES), len(ALL_COLORS))
    by_class = by_class.transpose(0, 2, 1, 3).reshape(len(places), len(CLASSES), -1)
    values = by_class.max(axis=2)
    side = IMAGE_SIZE // bank.step
    grid = np.full((side + 2, side + 2, len(CLASSES)), -1, np.float32)
    rows, columns = (places // bank.step).T
    grid[rows + 1, columns + 1] = values
    around = np.lib.stride_tricks.sliding_window_view(grid, (3, 3), axis=(0, 1)).max(axis=(3, 4))
    peaks = np.argwhere((values >= around[rows, columns]) & (values > _MIN_PROPOSAL))
    found = []
    for place, ci in peaks:
        size, color = divmod(int(by_class[place, ci].argmax()), len(ALL_COLORS))
        y, x = (int(v) for v in places[place])
        label = CLASSES[ci], ALL_COLORS[color]
        found.append(Detection(*label, x, y, bank.sizes[size], float(values[place, ci])))
    return found


def _propose(difference: Array) -> list[Detection]:
    """The best matches of both banks: one per class and region, and only the best few of a region."""
    found = [d for bank in banks() for d in _peaks(difference, bank)]
    found.sort(key=lambda d: -d.score)
    kept: list[Detection] = []
    for candidate in found:
        rivals = [k for k in kept if _near(k, candidate)]
        if len(rivals) >= _PER_REGION or any(k.cls == candidate.cls for k in rivals):
            continue
        kept.append(candidate)
        if len(kept) == _MAX_PROPOSALS:
            break
    return kept


def _near(a: Detection, b: Detection) -> bool:
    """Whether two proposals compete for the same pixels."""
    return abs(a.x - b.x) < _REGION and abs(a.y - b.y) < _REGION and abs(a.size - b.size) < _REGION


# --- refinement and choice -----------------------------------------------------------------------------------------------------

_PAD = 32
_MIN_GAIN_SHARE = 0.03  # of the picture's energy
_MIN_SCORE = 0.6


def _window(padded: Array, x: int, y: int, size: int, reach: int = 0) -> Array:
    """The part of a padded picture that a template of ``size`` at (x, y) covers, ``reach`` pixels wider on each side."""
    left, top = x - (size + 2) // 2 - 2 + _PAD - reach, y - (size + 2) // 2 - 2 + _PAD - reach
    side = size + 6 + 2 * reach
    return padded[top : top + side, left : left + side]


def _gain(padded: Array, d: Detection) -> float:
    """Squared error that drawing ``d`` removes."""
    image = template(d.cls, d.color, d.size)
    window = _window(padded, d.x, d.y, d.size)
    return float(2 * np.vdot(window, image) - np.vdot(image, image))


def _score(padded: Array, d: Detection) -> float:
    """Similarity of the picture and the template where the template has something."""
    image = template(d.cls, d.color, d.size)
    window = _window(padded, d.x, d.y, d.size)
    support = _support(d.cls, d.color, d.size)
    energy = float(np.square(window[support]).sum() + np.vdot(image, image))
    return float(2 * np.vdot(window, image)) / max(energy, 1e-6)


def _support(cls: str, color: str | None, size: int) -> NDArray[np.bool_]:
    """Pixels that a template touches."""
    out: NDArray[np.bool_] = np.abs(template(cls, color, size)).max(axis=-1) > 0
    return out


def _move(padded: Array, d: Detection, size: int, reach: int) -> tuple[float, Detection]:
    """Best place of ``d`` at ``size`` within ``reach`` pixels, by gain."""
    image = template(d.cls, d.color, size)
    side = image.shape[0]
    window = _window(padded, d.x, d.y, size, reach)
    views = np.lib.stride_tricks.sliding_window_view(window, (side, side), axis=(0, 1))
    products = np.tensordot(views, image.transpose(2, 0, 1), axes=3)
    row, column = np.unravel_index(int(products.argmax()), products.shape)
    gain = float(2 * products[row, column] - np.vdot(image, image))
    return gain, replace(d, size=size, x=d.x + int(column) - reach, y=d.y + int(row) - reach)


def _refine(padded: Array, d: Detection) -> Detection:
    """Climb over size and place, then choose the colour anew."""
    gain, best = _move(padded, d, d.size, 2)
    for ladder in (SIZES, SIZES[::-1]):
        for size in ladder[ladder.index(best.size) + 1 :]:
            candidate_gain, candidate = _move(padded, best, size, 1)
            if candidate_gain <= gain:
                break
            gain, best = candidate_gain, candidate
    return _recolor(padded, best)


def _recolor(padded: Array, d: Detection) -> Detection:
    """The colour that explains most."""
    return max((replace(d, color=c) for c in ALL_COLORS), key=lambda k: _gain(padded, k))


def _subtract(padded: Array, d: Detection) -> Array:
    out = padded.copy()
    window = _window(out, d.x, d.y, d.size)
    window -= template(d.cls, d.color, d.size)
    return out


def _pursue(
    padded: Array, candidates: Sequence[Detection], by_score: bool
) -> tuple[list[Detection], Array]:
    """Pick objects one by one: each the one that removes most error or, ``by_score``, the one that matches best.

    Gives the objects and what is left of the picture.
    """
    least = _MIN_GAIN_SHARE * float(np.square(padded).sum())
    pool = list(candidates)
    chosen: list[Detection] = []
    rest = padded
    while len(chosen) <= MAX_OBJECTS + 1:
        pool = [d for d in pool if _gain(rest, d) > least and _score(rest, d) > _MIN_SCORE]
        if not pool:
            break
        best = max(pool, key=lambda d: _score(rest, d) if by_score else _gain(rest, d))
        chosen.append(replace(best, score=_score(rest, best)))
        pool.remove(best)
        rest = _subtract(rest, best)
    return chosen, rest


def _choose(padded: Array, candidates: Sequence[Detection]) -> tuple[list[Detection], Array]:
    """The better explanation of the two pursuits: the one that leaves less of the picture."""
    explanations = [_pursue(padded, candidates, by_score) for by_score in (False, True)]
    return min(explanations, key=lambda pair: float(np.square(pair[1]).sum()))


_LEFTOVER = 0.2
_MAX_LEFTOVER = 60  # pixels


def _leftover(rest: Array, chosen: Sequence[Detection]) -> Detection | None:
    """An unknown object, where enough pixels stand out and no chosen object explains them."""
    mask = np.abs(rest).max(axis=-1) > _LEFTOVER
    for d in chosen:
        window = _window(mask[..., None], d.x, d.y, d.size)  # type: ignore[arg-type]
        window[_support(d.cls, d.color, d.size)] = False
    area = int(mask.sum())
    if area <= _MAX_LEFTOVER:
        return None
    y, x = np.argwhere(mask).mean(axis=0) - _PAD
    return Detection(UNKNOWN, None, round(x), round(y), round(area**0.5), 0.0)


def detect(picture: NDArray[np.uint8]) -> list[Detection]:
    """Find the objects of one (64, 64, 3) uint8 picture, best first; an object that no sprite explains is ``"unknown"``.

    Raises ValueError for another shape or type.
    """
    if picture.shape != (IMAGE_SIZE, IMAGE_SIZE, 3) or picture.dtype != np.uint8:
        raise ValueError(
            f"picture is {picture.shape} {picture.dtype}; allowed: ({IMAGE_SIZE}, {IMAGE_SIZE}, 3) uint8"
        )
    difference = _difference(picture)
    padded = np.pad(difference, ((_PAD, _PAD), (_PAD, _PAD), (0, 0)))
    candidates = [_refine(padded, d) for d in _propose(difference)]
    chosen, rest = _choose(padded, candidates)
    unknown = _leftover(rest, chosen)
    return chosen if unknown is None else [*chosen, unknown]


# --- the verdict ---------------------------------------------------------------------------------------------------------------


def _assign(scene: Scene, found: Sequence[Detection]) -> list[list[Detection]] | None:
    """Give every detection to a group so that classes and colours are right; None when that is impossible."""
    wanted = [index for index, group in enumerate(scene.groups) for _ in range(group.count)]
    for order in permutations(found):
        pairs = list(zip(wanted, order, strict=True))
        if all(
            d.cls == scene.groups[i].cls and color_matches(d.cls, d.color, scene.groups[i].color)
            for i, d in pairs
        ):
            return [[d for i, d in pairs if i == k] for k in range(len(scene.groups))]
    return None


def _relation_holds(relation: str, first: Sequence[Detection], second: Sequence[Detection]) -> bool:
    dx = np.mean([d.x for d in second]) - np.mean([d.x for d in first])
    dy = np.mean([d.y for d in second]) - np.mean([d.y for d in first])
    offset = {"left of": dx, "right of": -dx, "above": dy, "below": -dy}[relation]
    return bool(offset >= MIN_OFFSET)


def _describe(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{n} {cls}" for cls, n in sorted(counts)) or "nothing"


class Judge:
    """Decides whether pictures show exactly what a scene says, no more and no less."""

    def check(self, scene: Scene, picture: NDArray[np.uint8]) -> Verdict:
        """Judge one (64, 64, 3) uint8 picture."""
        return self.verdict(scene, detect(picture))

    def check_batch(self, scenes: Sequence[Scene], pictures: NDArray[np.uint8]) -> list[Verdict]:
        """Judge N pictures, (N, 64, 64, 3) uint8, each against its own scene."""
        return [self.check(s, p) for s, p in zip(scenes, pictures, strict=True)]

    def verdict(self, scene: Scene, detections: Sequence[Detection]) -> Verdict:
        """Compare what was found with what was asked for."""
        found = tuple(detections)
        seen = Counter(d.cls for d in found)
        wanted = Counter[str]()
        for group in scene.groups:
            wanted[group.cls] += group.count
        if seen != wanted:
            reason = f"wanted {_describe(wanted.items())}; found {_describe(seen.items())}"
            return Verdict(False, found, reason)
        groups = _assign(scene, found)
        if groups is None:
            colors = ", ".join(f"{d.color or 'natural'} {d.cls}" for d in found)
            return Verdict(False, found, f"wrong colours: found {colors}")
        if scene.relation and not _relation_holds(scene.relation, *groups):
            return Verdict(False, found, f"not {scene.relation}")
        return Verdict(True, found)


def judge_pictures(scenes: Sequence[Scene], media: Media) -> list[Verdict]:
    """Judge media, float (N, 3, 64, 64) in [0, 1] or a list of (1, 3, 64, 64), each against its own scene."""
    judge = Judge()
    parts = media if isinstance(media, list) else [media]
    pictures = np.concatenate(
        [
            (p.detach().clamp(0, 1).permute(0, 2, 3, 1).float().cpu().numpy() * 255 + 0.5).astype(
                np.uint8
            )
            for p in parts
        ]
    )
    return judge.check_batch(scenes, pictures)
