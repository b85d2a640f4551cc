"""The truth about drawn objects: do they show exactly what a scene says, and how far are they off?

Every reward model learns from this truth, which comes from the renderer. The judge
(``t2x.world.judge``) looks at pixels and keeps rules of its own on purpose, so that a mistake here
can't hide there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations, permutations

import numpy as np

from t2x.world.render import COLOR_RGB, Placed
from t2x.world.scene import COLORS, Scene
from t2x.world.sprites import load_sprites

__all__ = ["MIN_OFFSET", "SURE_OFFSET", "faults", "natural_colors", "offset", "satisfies"]

MIN_OFFSET = 4.0  # pixels between the mean centres of two groups from which a relation holds
_UNSURE = 3.0  # closer to MIN_OFFSET than this, it is left open
SURE_OFFSET = MIN_OFFSET + _UNSURE
_SIDES = {"left of": (1, 0), "right of": (-1, 0), "above": (0, 1), "below": (0, -1)}
_HINT = 0.08  # share of an untinted sprite from which on a colour may be called its own


@lru_cache(maxsize=64)
def natural_colors(cls: str) -> frozenset[str]:
    """Colours that a good part of the untinted sprite looks like, and the two that lie nearest to
    its mean: asking for one of these is left open.
    """
    image = load_sprites()[cls]
    pixels = image[image[..., 3] > 0.9][:, :3] * 255
    table = np.array([COLOR_RGB[c] for c in COLORS], np.float32)
    nearest = np.square(pixels[:, None] - table).sum(-1).argmin(1)
    shares = np.bincount(nearest, minlength=len(COLORS)) / len(nearest)
    near_mean = np.abs(pixels.mean(0) - table).sum(-1).argsort()[:2]
    return frozenset(c for i, c in enumerate(COLORS) if shares[i] > _HINT or i in near_mean)


def _color_fits(placed: Placed, wanted: str | None) -> bool | None:
    """Whether an object has the ``wanted`` colour; None where its natural colours leave it open."""
    if wanted is None or placed.color == wanted:
        return True
    if placed.color is None and wanted in natural_colors(placed.cls):
        return None
    return False


def offset(relation: str, first: Sequence[Placed], second: Sequence[Placed]) -> float:
    """How far, in pixels, the mean centre of ``first`` lies on the told side of that of
    ``second``.
    """
    dx, dy = _SIDES[relation]
    means = [(sum(p.x for p in g) / len(g), sum(p.y for p in g) / len(g)) for g in (first, second)]
    return (means[1][0] - means[0][0]) * dx + (means[1][1] - means[0][1]) * dy


def _relation_holds(scene: Scene, order: Sequence[Placed]) -> bool | None:
    if scene.relation is None:
        return True
    cut = scene.groups[0].count
    value = offset(scene.relation, order[:cut], order[cut:])
    return None if abs(value - MIN_OFFSET) < _UNSURE else value > MIN_OFFSET


def _wanted(scene: Scene) -> Counter[str]:
    return Counter(g.cls for g in scene.groups for _ in range(g.count))


def _verdicts(scene: Scene, placed: Sequence[Placed]) -> Iterator[list[bool | None]]:
    """For every way to give objects to groups of their class: whether each colour and, last, the
    relation is right. Nothing if classes or numbers differ.
    """
    if _wanted(scene) != Counter(p.cls for p in placed):
        return
    groups = [g for g in scene.groups for _ in range(g.count)]
    for order in permutations(placed):
        pairs = list(zip(order, groups, strict=True))
        if all(p.cls == g.cls for p, g in pairs):
            yield [_color_fits(p, g.color) for p, g in pairs] + [_relation_holds(scene, order)]


def satisfies(scene: Scene, placed: Sequence[Placed]) -> bool | None:
    """Whether objects show exactly ``scene`` and nothing else.

    The same classes in the same numbers, colours right where stated, and the relation as the
    difference of the groups' mean centres. Objects go to groups in the best possible way. None:
    too close to call (groups nearly level, a colour that the natural object has).
    """
    best: bool | None = False
    for verdicts in _verdicts(scene, placed):
        if False in verdicts:
            continue
        if None not in verdicts:
            return True
        best = None
    return best


def faults(scene: Scene, placed: Sequence[Placed]) -> int:
    """How many things are wrong with objects if ``scene`` was asked for: each one missing, too many
    or in a wrong colour, and the relation if it is not seen. Open cases don't count.
    """
    wrong = [verdicts.count(False) for verdicts in _verdicts(scene, placed)]
    if wrong:
        return min(wrong)
    wanted, seen = _wanted(scene), Counter(p.cls for p in placed)
    found = (wanted - seen).total() + (seen - wanted).total() + (scene.relation is not None)
    alike = [[p for p in placed if p.cls == cls] for cls in wanted & seen]
    return found + sum(_wrong_colors(scene, objects) for objects in alike)


def _wrong_colors(scene: Scene, alike: Sequence[Placed]) -> int:
    """Objects of one class in wrong colours, given to its groups in the way that leaves fewest."""
    colors = [g.color for g in scene.groups if g.cls == alike[0].cls for _ in range(g.count)]
    few = min(len(colors), len(alike))
    return min(
        sum(_color_fits(p, c) is False for p, c in zip(objects, chosen, strict=True))
        for objects in permutations(alike, few)
        for chosen in combinations(colors, few)
    )
