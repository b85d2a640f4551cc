"""Any picture reward on a part of the picture: grounding, or whether one object stays the same.

load_reward("region", reward="clip")                  on each box of the context, the mean
load_reward("region", reward="dino", mode="grey")     the rest of the picture made grey
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.errors import T2XError
from t2x.functional.grounding import mask_box
from t2x.registry import load_reward
from t2x.scoring.pairs import check_pairs, device_of

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality, RewardModel

__all__ = ["MODES", "REDUCTIONS", "RegionReward", "load"]

log = logging.getLogger(__name__)

MODES = ("crop", "grey", "both")
REDUCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": torch.mean,
    "min": torch.amin,
    "max": torch.amax,
}


@dataclass(frozen=True)
class _Region:
    """A rectangle of sample ``index`` in parts of its height and width; ``row`` of its boxes."""

    index: int
    x0: float
    y0: float
    x1: float
    y1: float
    row: int = 0

    def pixels(self, height: int, width: int) -> tuple[slice, slice]:
        """Rows and columns that the rectangle touches by more than a thousandth, one at least."""
        return _touched(self.y0, self.y1, height), _touched(self.x0, self.x1, width)


class RegionReward:
    """Scores every region of a sample with ``reward``, against the phrase that the context has for
    the region, or the sample's prompt, and reduces.

    Regions are ``Context.boxes``, or the rectangle around ``Context.mask`` where it is over 1/2.
    ``mode`` *crop* cuts the rectangle out; *grey* keeps the picture and lays ``fill``, in [0, 1],
    over what is outside of the boxes or the mask; *both* lays it, then cuts (GenEval's colour
    check; its grey is the default). The source pictures of a context are treated in the same way.

    Rows of NaN among the boxes are padding. A sample without a region, or with a box that holds
    nothing of the picture, scores NaN, and that is logged.
    """

    modality: Modality = "image"

    def __init__(
        self,
        reward: RewardModel,
        *,
        mode: str = "crop",
        reduce: str = "mean",
        fill: float = 0.6,
        name: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise T2XError(f"unknown mode {mode!r}; allowed: {', '.join(MODES)}")
        if reduce not in REDUCTIONS:
            raise T2XError(f"unknown reduction {reduce!r}; allowed: {', '.join(REDUCTIONS)}")
        if reward.modality != "image":
            raise T2XError(f"{reward.name} scores {reward.modality}s; regions are of pictures")
        self.reward = reward
        self.mode = mode
        self.reduce = reduce
        self.fill = fill
        self.name = name or f"region-{reward.name}"
        self.scale = f"{reduce} over regions ({mode}) of {reward.name} ({reward.scale})"
        self.range = reward.range
        self.differentiable = reward.differentiable

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,) float32, where the media are. Gradients reach the pixels of the
        regions.

        Raises ``ValueError`` if boxes or mask are not those of N pictures.
        """
        n = check_pairs(prompts, media, name=self.name)
        if n == 0:
            return torch.zeros(0, device=device_of(media))
        regions, bad = self._regions(n, media, context)
        if context is None or not regions:
            log.warning("%s: none of %d samples has a region", self.name, n)
            return torch.full((n,), math.nan, device=device_of(media))
        parts = [self._part(media[r.index], r, context) for r in regions]
        values = self.reward.score(
            [_phrase(prompts, r, context) for r in regions],
            parts,
            context=self._context(context, regions),
        )
        owners = torch.tensor([r.index for r in regions], device=values.device)
        scores = [self._reduced(values[owners == i], i in bad) for i in range(n)]
        if missing := sum(1 for i in range(n) if i in bad or not bool((owners == i).any())):
            log.warning("%s: %d of %d samples lack a region", self.name, missing, n)
        return torch.stack(scores)

    def _reduced(self, values: Tensor, bad: bool) -> Tensor:
        if bad or not len(values):
            return values.new_tensor(math.nan)
        return REDUCTIONS[self.reduce](values)

    def _regions(
        self, n: int, media: Media, context: Context | None
    ) -> tuple[list[_Region], set[int]]:
        """Rectangles to score, and samples of which one is empty."""
        if context is None:
            return [], set()
        if context.mask is not None and (
            context.mask.ndim != 4 or context.mask.shape[:2] != (n, 1)
        ):
            raise ValueError(
                f"{self.name}: the mask must be (N, 1, H, W) for N = {n}, got "
                f"{tuple(context.mask.shape)}"
            )
        if context.boxes is None:
            masks = [] if context.mask is None else list(context.mask)
            found = [_around(i, mask[0]) for i, mask in enumerate(masks)]
            return [r for r in found if r is not None], set()
        if context.boxes.ndim != 3 or context.boxes.shape[::2] != (n, 4):
            raise ValueError(
                f"{self.name}: boxes must be (N, M, 4) for N = {n}, got "
                f"{tuple(context.boxes.shape)}"
            )
        return _of_boxes(context.boxes)

    def _part(self, picture: Tensor, region: _Region, context: Context) -> Tensor:
        """One region of a picture (1, 3, H, W) or (3, H, W), as (1, 3, h, w)."""
        picture = picture.reshape(1, *picture.shape[-3:])
        height, width = picture.shape[-2:]
        rows, columns = region.pixels(height, width)
        if self.mode != "crop":
            keep = torch.zeros_like(picture[:, :1])
            keep[..., rows, columns] = 1
            if context.mask is not None:
                mask = context.mask[region.index, None].to(keep)
                if mask.shape[-2:] != keep.shape[-2:]:
                    mask = F.interpolate(mask, size=(height, width), mode="nearest")
                keep = keep * mask
            picture = picture * keep + self.fill * (1 - keep)
        return picture if self.mode == "grey" else picture[..., rows, columns]

    def _context(self, context: Context, regions: Sequence[_Region]) -> Context:
        """The context of each region: its sample's, with the same part of its source."""
        rows = [r.index for r in regions]
        changes: dict[str, Any] = {"mask": None, "boxes": None, "phrases": None}
        if (source := context.source) is not None:
            changes["source"] = [self._part(source[r.index], r, context) for r in regions]
        for field in ("questions", "answers", "user"):
            if (values := getattr(context, field)) is not None:
                changes[field] = [values[i] for i in rows]
        return replace(context, **changes)


def load(
    reward: str = "clip",
    *,
    mode: str = "crop",
    reduce: str = "mean",
    fill: float = 0.6,
    name: str | None = None,
    **options: Any,
) -> RegionReward:
    """Load the reward ``reward``, to which ``options`` go, and put it on regions.

    Raises ``T2XError`` for an unknown mode or reduction, and what loading the reward raises.
    """
    return RegionReward(
        load_reward(reward, **options), mode=mode, reduce=reduce, fill=fill, name=name
    )


def _phrase(prompts: Sequence[str], region: _Region, context: Context) -> str:
    own = () if context.phrases is None else context.phrases[region.index]
    return own[region.row] if region.row < len(own) else prompts[region.index]


def _touched(begin: float, end: float, size: int) -> slice:
    first = min(math.floor(begin * size + 1e-3), size - 1)
    return slice(first, max(math.ceil(end * size - 1e-3), first + 1))


def _of_boxes(boxes: Tensor) -> tuple[list[_Region], set[int]]:
    """Regions of boxes (N, M, 4), cut to the picture, and samples that hold an empty one."""
    regions, bad = [], set()
    for i, rows in enumerate(boxes.tolist()):
        for number, row in enumerate(rows):
            if any(math.isnan(v) for v in row):
                continue
            x0, y0, x1, y1 = (min(max(v, 0.0), 1.0) for v in row)
            if x0 < x1 and y0 < y1:
                regions.append(_Region(i, x0, y0, x1, y1, number))
            else:
                bad.add(i)
    return regions, bad


def _around(index: int, mask: Tensor) -> _Region | None:
    """The rectangle around a mask (H, W) where it is over 1/2; None if it is so nowhere."""
    box = mask_box(mask).tolist()
    return None if math.isnan(box[0]) else _Region(index, *box)
