"""Comparison with the picture that a sample was made from (``Context.source``)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from t2x.scoring.pairs import device_of, finite, measurable

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = ["SourceEncoder"]

log = logging.getLogger(__name__)


class SourceEncoder:
    """Compares each sample with its source. Feature: ``value`` (N,), NaN where there is none.

    ``compare`` takes n samples and their n sources, each (n, 3, H, W) or a list of (1, 3, H, W),
    and gives (n,); NaN there too for what it can't compare. Sources get no gradient.
    """

    def __init__(
        self, compare: Callable[[Media, Media], Tensor], *, key: str, batch_size: int = 16
    ) -> None:
        self.compare = compare
        self.key = key
        self.batch_size = batch_size

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"value"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Compare N samples. Raises ``ValueError`` if there are sources but not N of them."""
        source = None if context is None else context.source
        if source is None:
            log.warning("%s: no source pictures, %d samples can't be scored", self.key, len(media))
            return {"value": torch.full((len(media),), math.nan, device=device_of(media))}
        if len(source) != len(media):
            raise ValueError(
                f"got {len(media)} media and {len(source)} source pictures in the context; N "
                "media need N of them (a row of NaN for a missing one)"
            )
        source = [s.detach() for s in source] if isinstance(source, list) else source.detach()
        good = measurable([""] * len(source), source, needs_text=False)
        clean = finite(source)
        steps = range(0, len(media), self.batch_size)
        slices = [slice(start, start + self.batch_size) for start in steps]
        values = torch.cat([self.compare(media[s], clean[s]) for s in slices])
        values = torch.where(good.to(values.device), values, torch.full_like(values, math.nan))
        if lost := int(values.isnan().sum()):
            log.warning(
                "%s: %d of %d samples can't be compared with their source",
                self.key,
                lost,
                len(values),
            )
        return {"value": values}
