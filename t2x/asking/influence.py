"""How much each sort of feature changes the picture, measured on the generator that draws it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from t2x.asking.subjects import is_embedded

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Generator, Media

__all__ = ["SEEDS", "MeasuredInfluence"]

SEEDS = 2
_COARSE = 16  # pixels a side that pictures are compared by where no CLIP is given
Drawn: TypeAlias = "dict[tuple[str, int], Tensor]"  # text and seed -> (1, 3, H, W)


class MeasuredInfluence:
    """Draws the options of a feature from the same seeds and compares the pictures.

    Args:
        generator: what draws.
        encoder: a CLIP for the comparison, of what ``t2x.scoring.clip_encoder.load_clip`` takes.
            None is emoji-clip for the embedded generators; for others pictures are compared by
            coarse pixels.
        known: influences of families that are known already.
        seeds: how many seeds tell what seeds alone change, 2 or more.

    A family is measured once, at the first feature of it, and remembered in ``known``. Pictures
    that were drawn for it are kept until ``forget``, so that a question can show them.
    """

    def __init__(
        self,
        generator: Generator,
        *,
        encoder: str | None = None,
        known: Mapping[str, float] | None = None,
        seeds: int = SEEDS,
    ) -> None:
        self.generator = generator
        self.encoder = encoder or ("emoji-clip" if is_embedded(generator) else None)
        self.known = dict(known or {})
        self.seeds = seeds
        self._drawn: Drawn = {}

    def draw(self, texts: Sequence[str], seeds: Sequence[int]) -> Media:
        """Pictures of N texts from N seeds, in order; none is drawn twice."""
        wanted = dict.fromkeys(zip(texts, seeds, strict=True))
        missing = [pair for pair in wanted if pair not in self._drawn]
        if missing:
            media = self.generator.generate(
                [text for text, _ in missing], seeds=[seed for _, seed in missing]
            )
            for pair, picture in zip(missing, media, strict=True):
                self._drawn[pair] = picture if picture.ndim == 4 else picture[None]
        return _together([self._drawn[pair] for pair in zip(texts, seeds, strict=True)])

    def forget(self) -> None:
        """Let go of the pictures; influences stay."""
        self._drawn = {}

    def measure(self, features: Mapping[str, Sequence[str]], seed: int) -> None:
        """Measure families by the texts of their options, all drawn together; known ones are left
        out."""
        new = {family: list(texts) for family, texts in features.items()}
        new = {family: texts for family, texts in new.items() if family not in self.known}
        if not new:
            return
        seeds = [seed + number for number in range(self.seeds)]
        pairs = [(t, s) for texts in new.values() for t in texts for s in seeds]
        media = self.draw([t for t, _ in pairs], [s for _, s in pairs])
        rows = self._embed(media)
        at = 0
        for family, texts in new.items():
            part = rows[at : at + len(texts) * self.seeds]
            at += len(part)
            self.known[family] = _influence(part.reshape(len(texts), self.seeds, -1))

    def _embed(self, media: Media) -> Tensor:
        import torch
        from torch.nn import functional as F

        with torch.no_grad():
            if self.encoder is not None:
                from t2x.scoring.clip_encoder import load_clip

                self._clip = load_clip(self.encoder)
                return self._clip.encode_image(media).float().cpu()
            return torch.cat(
                [
                    F.adaptive_avg_pool2d(p.reshape(1, *p.shape[-3:]), _COARSE).flatten(1) - 0.5
                    for p in media
                ]
            ).cpu()


def _influence(features: Tensor) -> float:
    from t2x.functional.elicitation import visual_influence

    found = float(visual_influence(features))
    return found if math.isfinite(found) else math.nan


def _together(pictures: Sequence[Tensor]) -> Media:
    """One tensor, or a list where sizes differ."""
    import torch

    same = len({picture.shape for picture in pictures}) == 1
    return torch.cat(list(pictures)) if same else list(pictures)
