"""Draws pictures by text, negative prompt and seed: each once, from a store if it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from t2x.errors import T2XError

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.store import Store
    from t2x.types import Generator

__all__ = ["Drawer", "Drawing", "Renderer", "as_bytes", "draw_batch", "store_pictures"]


@dataclass(frozen=True)
class Drawing:
    """One picture to draw: nothing else decides it, given the generator."""

    text: str
    negative: str
    seed: int


class Drawer(Protocol):
    """What draws: in this process or in others."""

    @property
    def modality(self) -> str:
        """Whether it draws images or videos."""
        ...

    def draw(self, drawings: Sequence[Drawing]) -> list[Tensor]:
        """Draw N pictures in order: uint8 on the CPU, (3, H, W) or (F, 3, H, W)."""
        ...

    def fingerprint(self) -> dict[str, Any] | None:
        """All that decides a picture beside its ``Drawing``; None if that is unknown."""
        ...


class Renderer:
    """Draws with a generator in this process, in batches that are cut by order alone.

    ``negative`` goes beside every drawing's own negative prompt.
    """

    def __init__(self, generator: Generator, *, batch_size: int = 32, negative: str = "") -> None:
        self.generator = generator
        self.modality = generator.modality
        self.batch_size = batch_size
        self.negative = negative

    def draw(self, drawings: Sequence[Drawing]) -> list[Tensor]:
        """Draw N pictures in order: uint8 on the CPU, (3, H, W) or (F, 3, H, W)."""
        steps = range(0, len(drawings), self.batch_size)
        batches = (drawings[start : start + self.batch_size] for start in steps)
        return [p for b in batches for p in draw_batch(self.generator, b, self.negative)]

    def fingerprint(self) -> dict[str, Any] | None:
        """The generator's own, with the negative prompt that all drawings share."""
        own: Callable[[], dict[str, Any]] | None = getattr(self.generator, "fingerprint", None)
        return None if own is None else own() | {"negative": self.negative}


def draw_batch(
    generator: Generator, drawings: Sequence[Drawing], negative: str = ""
) -> list[Tensor]:
    """Draw a batch at once, through 8 bits."""
    from t2x.generators.negatives import usable_negatives
    from t2x.media import quantize

    negatives = [", ".join(filter(None, (d.negative, negative))) for d in drawings]
    media = quantize(
        generator.generate(
            [d.text for d in drawings],
            negative=usable_negatives(generator, negatives),
            seeds=[d.seed for d in drawings],
        )
    )
    if len(media) != len(drawings):
        raise T2XError(f"{generator.model_id} drew {len(media)} pictures for {len(drawings)} texts")
    samples = [item[0] for item in media] if isinstance(media, list) else list(media)
    return [as_bytes(sample) for sample in samples]


def as_bytes(sample: Tensor) -> Tensor:
    """One sample in [0, 1] as uint8 on the CPU."""
    import torch

    return sample.mul(255).round().to(torch.uint8).cpu()


def store_pictures(
    drawer: Drawer, drawings: Sequence[Drawing], store: Store | None
) -> tuple[dict[Drawing, Tensor], int]:
    """Draw each different drawing once; those that the store has are not drawn again. Gives the
    pictures, and how many were drawn now.

    A generator without a fingerprint can't be told from another, so its pictures are not stored.
    """
    from t2x.store import media_key

    wanted = list(dict.fromkeys(drawings))
    mark = drawer.fingerprint() if store is not None else None
    if store is None or mark is None:
        drawn = drawer.draw(wanted) if wanted else []
        return dict(zip(wanted, drawn, strict=True)), len(wanted)
    keys = {
        d: media_key(d.text, fingerprint=mark, seed=d.seed, negative=d.negative) for d in wanted
    }
    stored = {d: store.get_media(keys[d]) for d in wanted}
    found = {d: as_bytes(media) for d, media in stored.items() if media is not None}
    new = [d for d in wanted if d not in found]
    for drawing, picture in zip(new, drawer.draw(new) if new else [], strict=True):
        store.put_media(keys[drawing], picture.float().div(255))
        found[drawing] = picture
    return found, len(new)
