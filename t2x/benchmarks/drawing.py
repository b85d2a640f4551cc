"""Pictures of one arm into the official layout: what the store has is not drawn again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from t2x.benchmarks.layout import Benchmark, Item, OfficialFolder, Sample
from t2x.rollouts.rendering import Drawing, draw_batch
from t2x.store import Store, media_key

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Generator

BATCH = 16  # pictures between two savings, for generators that have no batch size of their own

__all__ = ["ArmPlan", "Gallery", "draw_arm", "plan_arm"]


@dataclass(frozen=True)
class ArmPlan:
    """What one arm draws: for every prompt as many drawings as it has pictures."""

    name: str
    items: Sequence[Item]
    drawings: Mapping[str, Sequence[Drawing]]  # by the item's key

    @property
    def flat(self) -> list[Drawing]:
        """All drawings in order."""
        return [drawing for item in self.items for drawing in self.drawings[item.key]]

    @property
    def samples(self) -> dict[str, int]:
        """How many pictures each prompt has, by key."""
        return {key: len(drawings) for key, drawings in self.drawings.items()}


def plan_arm(
    benchmark: Benchmark,
    name: str,
    items: Sequence[Item],
    texts: Mapping[str, tuple[str, str]],
    *,
    samples: int | None,
    seed: int,
) -> ArmPlan:
    """Plan an arm from what it draws for each prompt, (text, negative prompt) by key."""
    drawings = {}
    for item in items:
        number = benchmark.samples_of(item, samples)
        seeds = benchmark.seeds_of(item, number, seed)
        drawings[item.key] = [Drawing(*texts[item.key], seed) for seed in seeds]
    return ArmPlan(name, items, drawings)


@dataclass
class Gallery:
    """Pictures by drawing: those in the store, and those that ``load`` draws when one is missing.

    ``load`` gives the generator and is called once, so that nothing is loaded where all is there;
    ``fingerprint`` is what decides its pictures. ``drawn`` counts pictures that were drawn now.
    """

    store: Store
    fingerprint: Mapping[str, Any]
    load: Callable[[], Generator]
    batch: int = BATCH
    drawn: int = 0
    _seen: set[Drawing] = field(default_factory=set)
    _generator: Generator | None = None

    def has(self, drawing: Drawing) -> bool:
        """Whether the store knows the picture."""
        return self.store.digest(self._key(drawing)) is not None

    def need(self, chunk: Sequence[Drawing]) -> None:
        """See that the store has a chunk. What earlier chunks have asked for is not of this one;
        if one of the rest is missing, all of it is drawn: a batch is then the same whenever a run
        was stopped, and so are its pictures."""
        own = [d for d in dict.fromkeys(chunk) if d not in self._seen]
        self._seen.update(own)
        if all(map(self.has, own)):
            return
        self._draw(own)

    def get(self, drawing: Drawing) -> Tensor:
        """The picture, (3, H, W) or (F, 3, H, W) float32 in [0, 1], from 8 bits."""
        found = self.store.get_media(self._key(drawing))
        if found is None:  # its file was damaged
            self._draw([drawing])
            found = self.store.get_media(self._key(drawing))
        assert found is not None
        return found

    def free(self) -> None:
        """Forget the generator."""
        self._generator = None

    def _draw(self, drawings: Sequence[Drawing]) -> None:
        if self._generator is None:
            self._generator = self.load()
        pictures = draw_batch(self._generator, drawings)
        for drawing, picture in zip(drawings, pictures, strict=True):
            if not self.has(drawing):
                self.store.put_media(self._key(drawing), picture.float().div(255))
                self.drawn += 1

    def _key(self, drawing: Drawing) -> str:
        return media_key(
            drawing.text,
            fingerprint=self.fingerprint,
            seed=drawing.seed,
            negative=drawing.negative,
        )


def draw_arm(
    benchmark: Benchmark, plan: ArmPlan, gallery: Gallery, folder: OfficialFolder
) -> Iterator[int]:
    """Draw what is missing, chunk by chunk, and write the files of every prompt whose pictures are
    all there; give how many pictures are done."""
    flat, waiting, ready = plan.flat, iter(plan.items), 0
    item = next(waiting, None)
    for start in range(0, len(flat), gallery.batch):
        chunk = flat[start : start + gallery.batch]
        gallery.need(chunk)
        while item is not None and ready + len(plan.drawings[item.key]) <= start + len(chunk):
            ready += len(plan.drawings[item.key])
            _write(benchmark, item, plan.drawings[item.key], gallery, folder)
            item = next(waiting, None)
        yield start + len(chunk)


def _write(
    benchmark: Benchmark,
    item: Item,
    drawings: Sequence[Drawing],
    gallery: Gallery,
    folder: OfficialFolder,
) -> None:
    names = {*benchmark.files(item, len(drawings))}
    if all((folder.root / name).exists() for name in names):
        return  # they come last
    samples = [Sample(i, d.seed, d.text, gallery.get(d)) for i, d in enumerate(drawings)]
    benchmark.write(folder, item, samples)
