"""Where in a picture the things of a prompt shall be, as its words tell.

    regions_of(read_prompt("a red cat on the left of a dog"))
    # a red cat in the left half, a dog in the right one

RewardFlow (arXiv 2604.08536) lets its policy choose the regions of an edit. Differs from the paper,
which does not say how: ours are boxes read off relations ("left of", "above", "on the right"), and
where the words tell none the reward looks for the thing itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from t2x.types import Context
from t2x.world.words import articled

if TYPE_CHECKING:
    from t2x.guidance.primitives import Primitives

__all__ = ["Box", "Region", "phrases_of", "regions_of", "with_regions"]

Box = tuple[float, float, float, float]
Span = tuple[float, float]

# By relation: the axis, and whether the thing that it is told of comes first along it.
_ORDERS = {"left": (0, True), "right": (0, False), "above": (1, True), "below": (1, False)}
_SIDES = {**_ORDERS, "top": (1, True), "bottom": (1, False)}
_HALVES: dict[bool, Span] = {True: (0.0, 0.5), False: (0.5, 1.0)}


@dataclass(frozen=True)
class Region:
    """What shall be where: ``box`` is left, top, right, bottom in [0, 1]; None where the words tell
    no place."""

    phrase: str
    box: Box | None = None

    def describe(self) -> str:
        """The phrase with its box: ``a cat at 0,0,0.5,1``."""
        if self.box is None:
            return self.phrase
        return f"{self.phrase} at {','.join(f'{side:.2g}' for side in self.box)}"


def regions_of(found: Primitives) -> tuple[Region, ...]:
    """The things that a prompt tells of, each with its place; of an edit those that shall be there
    after it: none of one that removes, or is of the whole picture.

    Along an axis a thing that is told to be left of another one shares it with all in its chain:
    of "a cat left of a dog left of a bird" each has a third. What two relations contradict has no
    place. An edit's relations are to things that are somewhere already, and tell none.
    """
    spans: tuple[Mapping[str, Span], ...] = _sides(found)
    if found.intent.action == "generate":
        spans = tuple(_ordered(_pairs(found, axis), own) for axis, own in enumerate(spans))
    regions = []
    for name, phrases in _named(found).items():
        x, y = (along.get(name) for along in spans)
        alone = len(phrases) == 1 and (x is not None or y is not None)
        (x0, x1), (y0, y1) = x or (0.0, 1.0), y or (0.0, 1.0)
        box = (x0, y0, x1, y1) if alone else None
        regions += [Region(phrase, box) for phrase in phrases]
    return tuple(regions)


def phrases_of(found: Primitives) -> list[str]:
    """The same things as phrases: "a red cat"."""
    return [phrase for phrases in _named(found).values() for phrase in phrases]


def with_regions(
    context: Context | None, prompts: Sequence[str], regions: Sequence[Sequence[Region]]
) -> Context | None:
    """The context with the regions of each prompt, for rewards of regions; a place that is not told
    is a row of NaN. What is there already stays: phrases or a mask, and boxes, of which
    each gets a region's phrase where a prompt has as many.
    """
    context = context or Context()
    most = max((len(own) for own in regions), default=0)
    if context.phrases is not None or context.mask is not None or not most:
        return context
    phrases = [[region.phrase for region in own] for own in regions]
    if context.boxes is not None:
        count = context.boxes.shape[1]
        fitting = [own if len(own) == count else [] for own in phrases]
        return replace(context, phrases=fitting)
    boxes = torch.full((len(prompts), most, 4), torch.nan)
    for row, own in enumerate(regions):
        for column, region in enumerate(own):
            if region.box is not None:
                boxes[row, column] = torch.tensor(region.box)
    return replace(context, phrases=phrases, boxes=boxes)


# ---- things and places --------------------------------------------------------------------------


def _named(found: Primitives) -> dict[str, list[str]]:
    """Phrases of each thing by its name; "a black cat and a white cat" are two."""
    told = [p for p in found.items if p.kind in ("object", "attribute")]
    named = {}
    for name in dict.fromkeys(p.subject for p in (*found.of("object"), *told)):
        own = [p.value for p in told if p.kind == "attribute" and p.subject == name]
        groups = [[value] for value in own] if len(own) > 1 else [own]
        named[name] = [articled(" ".join((*values, name))) for values in groups]
    return named


def _place(value: str) -> str:
    """A relation by its one word: "on the left" and "to the left of" are *left*."""
    words = [w for w in value.lower().split() if w not in ("to", "on", "at", "the", "of")]
    return words[0] if len(words) == 1 else ""


def _sides(found: Primitives) -> tuple[dict[str, Span], dict[str, Span]]:
    """Halves of the picture in which things are told to be, along x and along y."""
    spans: tuple[dict[str, Span], dict[str, Span]] = ({}, {})
    for told in found.of("relation"):
        axis, first = _SIDES.get(_place(told.value), (0, None))
        if not told.other and first is not None:
            spans[axis][told.subject] = _HALVES[first]
    return spans


def _pairs(found: Primitives, axis: int) -> list[tuple[str, str]]:
    """Pairs of which the first comes first along the axis."""
    pairs = []
    for told in found.of("relation"):
        along, first = _ORDERS.get(_place(told.value), (axis, None))
        if along == axis and first is not None:
            for other in filter(None, told.other.split(" and ")):
                pairs.append((told.subject, other) if first else (other, told.subject))
    return pairs


def _ordered(pairs: Sequence[tuple[str, str]], sides: Mapping[str, Span]) -> dict[str, Span]:
    """Spans of all that is ordered, cut to the sides that are told where they meet."""
    before, after = _longest(pairs), _longest([(b, a) for a, b in pairs])
    spans = dict(sides)
    for name in before.keys() & after.keys():
        length = before[name] + after[name] + 1
        low, high = before[name] / length, (before[name] + 1) / length
        side = sides.get(name, (0.0, 1.0))
        cut = max(low, side[0]), min(high, side[1])
        spans[name] = cut if cut[0] < cut[1] else (low, high)
    return spans


def _longest(pairs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """How many things the longest chain has that comes before each; none of those in a circle, and
    of what follows from one."""
    found: dict[str, int] = {}
    names = dict.fromkeys(name for pair in pairs for name in pair)
    for _ in names:  # each round settles one at least
        for name in names:
            earlier = [a for a, b in pairs if b == name]
            if name not in found and all(a in found for a in earlier):
                found[name] = max((found[a] + 1 for a in earlier), default=0)
    return found
