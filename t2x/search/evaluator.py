"""Draws pictures and scores them, batched over prompts; nothing is drawn or scored twice.

Pictures go through 8 bits before they are scored. Scores are taken against the user's own prompt,
never against the text that was drawn.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from t2x.errors import T2XError
from t2x.guidance.metering import counted
from t2x.search.records import Shot

if TYPE_CHECKING:
    from t2x.types import Generator, Media, RewardModel

__all__ = ["Evaluator", "Inspector", "Look", "Order", "Progress", "media_of"]

BATCH = 32  # pictures drawn and scored at a time
Progress: TypeAlias = "Callable[[str, int, int], None]"  # what, done, total


class Inspector(Protocol):
    """A reward that can say more of a picture than a number: ``align`` or ``critique``."""

    def details(self, prompts: Sequence[str], media: Media, /) -> Sequence[Any]:
        """What was found on each of N pictures."""
        ...


@dataclass(frozen=True)
class Order:
    """A picture to draw: of ``text`` without ``negative``, scored against ``prompt``."""

    prompt: str
    text: str
    negative: str
    seed: int


@dataclass(frozen=True)
class Look:
    """What an inspector found on a picture, and what that took."""

    found: Any
    seconds: float
    flops: float = math.nan


@dataclass
class Evaluator:
    """Generator and rewards, and the pictures that are there already.

    Several searches of the same prompts may share one: what one has drawn costs the others no time,
    while each is still charged for it.
    """

    generator: Generator
    rewards: Sequence[RewardModel]
    weights: Mapping[str, float] = field(default_factory=dict)
    batch_size: int = BATCH
    count_flops: bool = False
    progress: Progress | None = None

    def __post_init__(self) -> None:
        from t2x.scoring.ensemble import RewardEnsemble

        if any(r.modality != self.generator.modality for r in self.rewards):
            names = ", ".join(f"{r.name} ({r.modality})" for r in self.rewards)
            raise T2XError(
                f"{self.generator.model_id} makes {self.generator.modality}s, and the rewards are: "
                f"{names}; give rewards of the same kind"
            )
        if batchwise := [r.name for r in self.rewards if getattr(r, "batchwise", False)]:
            raise T2XError(
                f"{batchwise[0]} gives a picture another score in another batch, and a search "
                "compares pictures of several rounds; combine by sum or standardised"
            )
        self.ensemble = RewardEnsemble(self.rewards, self.weights)
        self._shots: dict[Order, Shot] = {}
        self._looks: dict[tuple[int, Order], Look] = {}
        self._flops: dict[str, float] = {}

    def __len__(self) -> int:
        """How many pictures are held."""
        return len(self._shots)

    def clear(self) -> None:
        """Forget all pictures; what a search keeps of them stays with it."""
        self._shots.clear()
        self._looks.clear()

    def draw(self, orders: Sequence[Order]) -> list[Shot]:
        """Draw and score what is not there yet, in batches, and give the shot of every order."""
        new = [o for o in dict.fromkeys(orders) if o not in self._shots]
        for start in range(0, len(new), self.batch_size):
            batch = new[start : start + self.batch_size]
            self._shots.update(zip(batch, self._drawn(batch), strict=True))
            self._say("drawing and scoring", start + len(batch), len(new))
        return [self._shots[o] for o in orders]

    def _drawn(self, orders: Sequence[Order]) -> list[Shot]:
        from t2x.media import quantize

        flops = self._count("drawing", lambda: self._generate(orders[:1]))
        begun = time.perf_counter()
        media = quantize(self._generate(orders))
        drawn = time.perf_counter()
        scores = self._scored(orders, media)
        done = time.perf_counter()
        flops += self._count("scoring", lambda: self._scored(orders[:1], media[:1]))
        seconds = {
            "drawing": (drawn - begun) / len(orders),
            "scoring": (done - drawn) / len(orders),
        }
        return [
            Shot(order.seed, picture, *row, seconds, flops)
            for order, picture, row in zip(orders, _bytes(media), scores, strict=True)
        ]

    def _generate(self, orders: Sequence[Order]) -> Media:
        negatives = [o.negative for o in orders]
        return self.generator.generate(
            [o.text for o in orders],
            negative=negatives if any(negatives) else None,
            seeds=[o.seed for o in orders],
        )

    def _scored(
        self, orders: Sequence[Order], media: Media
    ) -> list[tuple[dict[str, float], float]]:
        import torch

        with torch.no_grad():
            parts = self.ensemble.components([o.prompt for o in orders], media)
            columns = torch.stack([part.detach().cpu().double() for part in parts.values()], -1)
            totals = self.ensemble.combine(columns)
        return [
            (dict(zip(parts, row, strict=True)), total)
            for row, total in zip(columns.tolist(), totals.tolist(), strict=True)
        ]

    def look(self, inspector: Inspector, orders: Sequence[Order]) -> list[Look]:
        """What an inspector finds on pictures that were drawn: its details, asked for once."""
        keys = [(id(inspector), o) for o in orders]
        new = [key for key in dict.fromkeys(keys) if key not in self._looks]
        for start in range(0, len(new), self.batch_size):
            batch = new[start : start + self.batch_size]
            prompts = [order.prompt for _, order in batch]
            media = media_of([self._shots[order] for _, order in batch])
            begun = time.perf_counter()
            found = inspector.details(prompts, media)
            spent = (time.perf_counter() - begun) / len(batch)
            once = partial(inspector.details, prompts[:1], media[:1])
            flops = self._count(f"looking with {id(inspector)}", once)
            self._looks.update(
                (key, Look(item, spent, flops)) for key, item in zip(batch, found, strict=True)
            )
            self._say("looking at pictures", start + len(batch), len(new))
        return [self._looks[key] for key in keys]

    def _count(self, name: str, run: Callable[[], Any]) -> float:
        """FLOPs of one sample, counted once, on a run of its own: counting is slow."""
        if not self.count_flops:
            return math.nan
        if name not in self._flops:
            self._flops[name] = counted(run)
        return self._flops[name]

    def _say(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)


def _bytes(media: Media) -> list[Any]:
    """Samples of media as uint8 on the CPU, (3, H, W) or (F, 3, H, W) each."""
    import torch

    samples = [item[0] for item in media] if isinstance(media, list) else list(media)
    return [sample.mul(255).round().to(torch.uint8).cpu() for sample in samples]


def media_of(shots: Sequence[Shot]) -> Media:
    """The pictures of shots as media: one tensor, or a list if they differ in size."""
    import torch

    pictures = [shot.picture.float().div(255) for shot in shots]
    if len({p.shape for p in pictures}) == 1:
        return torch.stack(pictures)
    return [p.unsqueeze(0) for p in pictures]
