"""The studio: models, a queue, and a stream of events for each request.

    studio = Studio(generator="emoji-flow", rewriter="emoji-rewriter")
    for event in studio.run(CompareRequest("two kittens on a crimson sofa"), user="ada"):
        print(event)

What an event tells is in ``t2x.studio.events``.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError
from t2x.evaluation.demo import REWARDS
from t2x.registry import check_names, import_attr
from t2x.studio.events import (
    Answered,
    Cancelled,
    Entry,
    Event,
    Failed,
    Finished,
    Loaded,
)
from t2x.studio.limits import Limits, check_request
from t2x.studio.models import Models, Personal
from t2x.studio.queueing import Job, JobQueue
from t2x.studio.requests import Request, TaskRequest
from t2x.studio.scoring import reason
from t2x.studio.state import StudioState
from t2x.studio.work import ModelMissingError, Stopped, Work

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel, Rewriter

__all__ = ["JOBS", "KEEP", "Studio", "Watcher", "default_home"]

log = logging.getLogger(__name__)

KEEP: Any = "keep"
Watcher: TypeAlias = "Callable[[str, str, Request, Event], None]"
"""Hears the job's id, its user, what was asked and the event."""
JOBS: dict[str, str] = {
    "compare": "t2x.studio.comparing:compare",
    "best_of": "t2x.studio.comparing:best_of",
    "guide": "t2x.studio.guiding:guide",
    "edit": "t2x.studio.editing:edit",
}


def default_home() -> Path:
    """The folder for what the studio keeps: ``$XDG_DATA_HOME/t2x/studio``, or under
    ``~/.local/share``."""
    data = os.environ.get("XDG_DATA_HOME", "")
    return (Path(data) if data else Path.home() / ".local" / "share") / "t2x" / "studio"


class Studio:
    """Loaded models and what is done with them, for several users at once.

    Args:
        generator: what draws: a name of ``t2x list``, a folder, a hub id, a loaded object; None for
            a studio that only rewrites.
        rewriter: what rewrites, the same, guarded; None or "none" for none.
        rewards: names or loaded objects that score where a request names none.
        home: folder for what is kept; made when something is.
        device: of models that are named; None is the best one here.
        options: of loading the generator (``t2x.load_generator``): offload, quantize, dtype, ...
        limits: how much may be asked for.

    Making one loads nothing and is instant. One worker thread does the device's work, one job at a
    time, in order of arrival. A model that can't be loaded leaves all else usable; ``state`` says
    why.
    """

    def __init__(
        self,
        *,
        generator: str | Path | Generator | None = "emoji-flow",
        rewriter: str | Path | Rewriter | None = "emoji-rewriter",
        rewards: Sequence[str | RewardModel] = REWARDS,
        home: str | Path | None = None,
        device: str | None = None,
        options: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.home = default_home() if home is None else Path(home)
        self.limits = limits or Limits()
        self.models = Models(
            generator=generator,
            rewriter=rewriter,
            rewards=rewards,
            device=device,
            options=options or {},
            limits=self.limits,
        )
        self._ahead = False
        self._queue = JobQueue(self.limits, idle=lambda: self._ahead and self.models.load_next())
        self._watchers: list[Watcher] = []

    # ---- jobs -------------------------------------------------------------------------------

    def run(self, request: Request, *, user: str = "local") -> Iterator[Event]:
        """Put a request into the queue and give its events as they come.

        The first event is ``Waiting``, with the job's id, and the last one ``Finished``, ``Failed``
        or ``Cancelled``; a request that can't be done is ``Failed`` at once. Nothing is raised.
        Closing the iterator before its end cancels the job.
        """
        try:
            check_request(request, self.limits, rewards=self.models.reward_names)
        except T2XError as error:
            return iter([Failed(reason(error), "request")])
        return self._put(user, lambda work: self._do(work, request), request)

    def cancel(self, job: str, *, user: str | None = None) -> bool:
        """Stop a job by its id; whether there was one. With ``user`` only one of theirs.

        It ends before the next step of the denoiser, token of the rewriter or picture of a reward;
        of generators that are no pipeline of diffusers and rewriters that are no local model after
        what they are at. Loading stops before the next layer, or the next piece of a download; what
        is loaded ahead of need is loaded first.
        """
        return self._queue.cancel(job, user=user)

    def load(
        self,
        *,
        generator: str | Path | Generator | None = KEEP,
        rewriter: str | Path | Rewriter | None = KEEP,
        user: str = "local",
    ) -> Iterator[Event]:
        """Swap models, in the queue like any job: the old one is freed, then the new one loaded.

        Ends with ``Loaded`` before ``Finished``, or with ``Failed`` if a new one can't be loaded,
        or ``Cancelled``, and then the one before is back. Names that are code ("pkg.module:Attr")
        are refused, as everything is where ``limits.swaps`` is off.
        """
        try:
            self._check_swap(generators=generator, rewriters=rewriter)
        except T2XError as error:
            return iter([Failed(reason(error), "request")])

        def swap(work: Work) -> None:
            for role, source in (("generator", generator), ("rewriter", rewriter)):
                if source is not KEEP:
                    work.progress(f"loading {source}", 0, 1)
                    self.models.swap(role, source)
            work.tell(Loaded(self.state()))

        request = TaskRequest("load", swap)
        return self._put(user, lambda work: self._do(work, request), request)

    def _check_swap(self, **sources: Any) -> None:
        if not self.limits.swaps:
            raise T2XError("this studio keeps its models; ask who runs it for others")
        for kind, source in sources.items():
            check_names(kind, [] if source is KEEP else [source], code=False)

    def state(self) -> StudioState:
        """What there is, what can be used, and how much is waiting."""
        return self.models.state(len(self._queue))

    def offer_reward(self, name: str, load: Personal) -> None:
        """Let users name a reward of their own: ``load`` gives the one of a user, or raises
        T2XError that says why there is none yet."""
        self.models.personal[name] = load

    def listen(self, watcher: Watcher) -> None:
        """Let ``watcher`` hear every event of every job but ``Waiting``, before its user does: on
        the worker, and the end of a job that never began on the thread that cancelled it. What it
        can't do is a note of the job, if that has not ended, and stops nothing."""
        self._watchers.append(watcher)

    def start(self) -> None:
        """Begin to load models before the first request: the generator, the rewriter, then rewards,
        while nothing waits."""
        self._ahead = True
        self._queue.start()

    def close(self) -> None:
        """Cancel all jobs, end the worker and free the models that were loaded by name. A model
        that is being loaded can't be stopped, and is waited for."""
        self._queue.close()
        self.models.free()

    # ---- on the worker ----------------------------------------------------------------------

    def _put(self, user: str, do: Callable[[Work], Any], request: Request) -> Iterator[Event]:
        notes: list[str] = []
        failing: set[Watcher] = set()

        def hear(event: Event) -> None:
            for watcher in self._watchers:
                try:
                    watcher(job.id, job.user, request, event)
                except Exception as error:  # the picture is drawn: it must reach its user
                    if watcher in failing:  # what comes after the first is no news
                        continue
                    failing.add(watcher)
                    notes.append(reason(error))
                    known = isinstance(error, T2XError)
                    log.warning("an event was not kept: %s", notes[-1], exc_info=not known)

        job = Job(user, lambda job: self._attempt(job, do, request, notes), hear)
        try:
            self._queue.put(job)
        except T2XError as error:
            return iter([Failed(reason(error), "queue")])
        return self._queue.events(job)

    def _attempt(
        self, job: Job, do: Callable[[Work], Any], request: Request, notes: Sequence[str]
    ) -> None:
        """Do a job and tell how it ended; ``notes`` come from the watchers."""
        work = Work(self.models, user=job.user, tell=job.tell, stop=job.stop)
        begun = time.perf_counter()
        self.models.check = work.check
        try:
            answer = do(work)
        except Stopped:
            job.tell(Cancelled(len(work.told.pictures)))
            return
        except Exception as error:
            job.tell(self._failed(error))
            return
        finally:
            self.models.check = lambda: None
        told = work.told
        rewritten = told.rewritten
        entry = Entry(
            job=job.id,
            user=job.user,
            request=request,
            rewrite=None if rewritten is None else rewritten.rewrite,
            words="" if rewritten is None else rewritten.words,
            pictures=tuple(told.pictures),
            scores=tuple(told.scores),
            seconds={**told.seconds, "total": round(time.perf_counter() - begun, 3)},
            notes=(*told.notes, *notes),
            answer=answer,
        )
        job.tell(Finished(entry))

    def _do(self, work: Work, request: Request) -> Any:
        if isinstance(request, TaskRequest):
            answer = request.run(work)
            if answer is not None:
                work.tell(Answered(answer))
            return answer
        return import_attr(JOBS[request.kind])(work, request)

    def _failed(self, error: Exception) -> Failed:
        from t2x.memory.machine import is_out_of_memory, release_memory

        if is_out_of_memory(error):
            self.models.relieve()
            release_memory()
            return Failed(_memory_advice(error), "memory")
        if isinstance(error, ModelMissingError):
            return Failed(reason(error), "model")
        if isinstance(error, T2XError):
            return Failed(reason(error), "request")
        log.error("a job of the studio failed", exc_info=error)
        return Failed(f"the studio made a mistake: {reason(error)}; its log says where", "internal")


def _memory_advice(error: Exception) -> str:
    if isinstance(error, T2XError):
        return reason(error)
    return (
        "memory ran out; ask for a smaller size, fewer frames or a smaller model, or start with "
        "--offload model. Models that were not drawing are freed, so trying again may do"
    )
