"""Concurrent requests, rewritten together: what arrives within a short window, or while the model
is busy, becomes one batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, field

from t2x.errors import T2XError
from t2x.jobs.engines import answer_all
from t2x.rewriters.guarded import Guarded
from t2x.types import Rewrite

log = logging.getLogger(__name__)

_STOPPING = "the server is shutting down"

__all__ = ["Batcher", "Busy", "Request", "RewriterFailed"]


class Busy(T2XError):
    """The queue is full; try again later."""


class RewriterFailed(T2XError):
    """The rewriter raised an error on this prompt."""


@dataclass(frozen=True)
class Request:
    """One prompt and what decides its text; ``temperature`` None is the rewriter's own."""

    prompt: str
    num: int = 1
    seed: int = 0
    temperature: float | None = None

    @property
    def settings(self) -> tuple[int, int, float | None]:
        """Requests with the same ones can be rewritten together."""
        return self.num, self.seed, self.temperature


@dataclass
class _Waiting:
    request: Request
    answer: asyncio.Future[list[Rewrite]] = field(repr=False)


def _refuse(waiting: _Waiting) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(Busy(_STOPPING))


class Batcher:
    """Queue before one rewriter, which is used by one thread at a time.

    Args:
        guarded: the rewriter.
        window: seconds to wait for company once a request is there.
        max_batch: most prompts at a time.
        max_queue: most requests that wait; ``rewrite`` raises ``Busy`` beyond.
    """

    def __init__(
        self, guarded: Guarded, *, window: float = 0.01, max_batch: int = 64, max_queue: int = 1024
    ) -> None:
        self._guarded = guarded
        self._window = window
        self._max_batch = max_batch
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue(max_queue)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rewriter")
        self._stopped = False
        self._task: asyncio.Task[None] | None = None

    @property
    def takes_temperature(self) -> bool:
        """Whether the rewriter samples, so that a request may say at which temperature."""
        return hasattr(self._guarded.rewriter, "temperature")

    async def rewrite(self, request: Request) -> list[Rewrite]:
        """Give the rewrites of a request; raises ``Busy`` or ``RewriterFailed``."""
        if self._stopped:
            raise Busy(_STOPPING)
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        try:
            self._queue.put_nowait(waiting)
        except asyncio.QueueFull as error:
            raise Busy("too many requests are waiting; try again later") from error
        return await waiting.answer

    async def start(self) -> None:
        """Begin to work on the queue."""
        self._task = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End when what is being rewritten is done; what still waits is told ``Busy``."""
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        while not self._queue.empty():
            _refuse(self._queue.get_nowait())
        self._thread.shutdown()

    async def _work(self) -> None:
        while True:
            batch = [await self._queue.get()]
            try:
                await self._answer_with(batch)
            finally:  # stopped in the window or between two groups
                for waiting in batch:
                    _refuse(waiting)

    async def _answer_with(self, batch: list[_Waiting]) -> None:
        """Answer what is taken and what comes within the window, which joins ``batch``."""
        await asyncio.sleep(self._window)
        while len(batch) < self._max_batch and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        groups: dict[object, list[_Waiting]] = {}
        for waiting in batch:
            if not waiting.answer.done():  # else its client has gone
                groups.setdefault(waiting.request.settings, []).append(waiting)
        for group in groups.values():
            await self._answer(group)

    async def _answer(self, group: Sequence[_Waiting]) -> None:
        loop = asyncio.get_running_loop()
        requests = [waiting.request for waiting in group]
        running = loop.run_in_executor(self._thread, self._rewrite, requests)
        try:
            # A shield: who stops the server gets the answers of what is being rewritten out first.
            answers = await asyncio.shield(running)
        except asyncio.CancelledError:
            answers = await running
            self._give(group, answers)
            raise
        self._give(group, answers)

    def _give(self, group: Sequence[_Waiting], answers: Sequence[list[Rewrite] | None]) -> None:
        for waiting, answer in zip(group, answers, strict=True):
            if waiting.answer.done():
                continue
            if answer is None:
                waiting.answer.set_exception(RewriterFailed("the rewriter failed on this prompt"))
            else:
                waiting.answer.set_result(answer)

    def _rewrite(self, requests: Sequence[Request]) -> list[list[Rewrite] | None]:
        """Rewrite requests of equal settings; None where the rewriter fails.

        An error's own words are not logged: they may quote the prompt.
        """
        first = requests[0]
        guarded = self._guarded
        if first.temperature is not None:
            guarded = copy(guarded)
            guarded.rewriter = copy(guarded.rewriter)
            guarded.rewriter.temperature = first.temperature  # type: ignore[attr-defined]
        prompts = [request.prompt for request in requests]
        try:
            found = answer_all(guarded, prompts, num=first.num, seed=first.seed)
        except Exception as error:
            log.error("the rewriter failed on %d prompts: %s", len(prompts), type(error).__name__)
            return [None] * len(prompts)
        failed = sum(isinstance(answer, str) for answer in found)
        if failed:
            log.error("the rewriter failed on %d of %d prompts", failed, len(prompts))
        return [None if isinstance(answer, str) else answer for answer in found]
