"""Draws in processes of their own: each loads the generator once, and pictures come in order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.rollouts.rendering import Drawing, draw_batch

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Generator

__all__ = ["WorkerRenderer"]

_loaded: dict[str, Any] = {}  # of a worker: its generator, and the negative prompt of all pictures


class WorkerRenderer:
    """Draws with ``workers`` spawned processes, each with a generator of its own.

    Batches are cut by order alone, so that any number of workers gives the same pictures. A worker
    that dies ends the run with T2XError, and so does a generator that can't be loaded there.

    Args:
        generator: name, folder or hub id; a loaded one does not go into another process.
        options: what its loader takes; a list of devices ("cuda:1", ...) as ``devices`` gives each
            worker one in turn.
        threads: CPU threads of each worker.
    """

    def __init__(
        self,
        generator: str,
        *,
        options: Mapping[str, Any] | None = None,
        workers: int = 1,
        batch_size: int = 32,
        negative: str = "",
        threads: int = 1,
    ) -> None:
        if not isinstance(generator, str):
            raise T2XError(
                "render workers load the generator themselves; give its name, folder or hub id, "
                "or draw with workers=0"
            )
        self.name, self.options = generator, dict(options or {})
        self.batch_size, self.negative = batch_size, negative
        context = multiprocessing.get_context("spawn")
        counter = context.Value("i", 0)
        self._pool = ProcessPoolExecutor(
            workers,
            mp_context=context,
            initializer=_start,
            initargs=(generator, self.options, negative, threads, counter),
        )
        described: dict[str, Any] = self._ask(_describe)
        self.modality = str(described["modality"])
        self._fingerprint: dict[str, Any] | None = described["fingerprint"]

    def draw(self, drawings: Sequence[Drawing]) -> list[Tensor]:
        """Draw N pictures in order: uint8 on the CPU, (3, H, W) or (F, 3, H, W)."""
        import torch

        steps = range(0, len(drawings), self.batch_size)
        batches = [list(drawings[start : start + self.batch_size]) for start in steps]
        try:
            drawn = list(self._pool.map(_draw, batches))
        except BrokenProcessPool as error:
            raise T2XError(_DEAD) from error
        return [torch.from_numpy(picture) for batch in drawn for picture in batch]

    def fingerprint(self) -> dict[str, Any] | None:
        """The generator's own, with the negative prompt that all drawings share."""
        return self._fingerprint

    def close(self) -> None:
        """End the workers."""
        self._pool.shutdown(cancel_futures=True)

    def _ask(self, function: Any) -> Any:
        try:
            return self._pool.submit(function).result()
        except BrokenProcessPool as error:
            raise T2XError(_DEAD) from error


_DEAD = (
    "a render worker died: out of memory, ended from outside, or its generator can't be loaded "
    "(its own message is above); draw with rollout.workers=0 to see the error itself"
)


def _start(name: str, options: dict[str, Any], negative: str, threads: int, counter: Any) -> None:
    """Load the generator in a worker, on its own device if there is a list of them."""
    import torch

    from t2x.registry import load_generator

    torch.set_num_threads(threads)
    with counter.get_lock():
        number, counter.value = counter.value, counter.value + 1
    own = dict(options)
    if devices := own.pop("devices", None):
        own["device"] = devices[number % len(devices)]
    generator: Generator = load_generator(name, **own)
    _loaded.update(generator=generator, negative=negative)


def _draw(drawings: list[Drawing]) -> list[Any]:
    pictures = draw_batch(_loaded["generator"], drawings, _loaded["negative"])
    return [picture.numpy() for picture in pictures]


def _describe() -> dict[str, Any]:
    generator = _loaded["generator"]
    own = getattr(generator, "fingerprint", None)
    mark = None if own is None else own() | {"negative": _loaded["negative"]}
    return {"modality": generator.modality, "fingerprint": mark}
