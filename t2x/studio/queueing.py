"""Jobs in order of arrival, one at a time on one thread, since they share one device."""

from __future__ import annotations

import logging
import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from t2x.errors import T2XError
from t2x.studio.events import LAST, Cancelled, Event, Waiting
from t2x.studio.limits import Limits

__all__ = ["Job", "JobQueue"]

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """One request of one user; ``run`` does it and tells its events, the last one too. ``hear``
    gets each event but ``Waiting`` before whoever reads does, and must raise nothing."""

    user: str
    run: Callable[[Job], None]
    hear: Callable[[Event], None] = lambda event: None
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    _inbox: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)

    def tell(self, event: Event) -> None:
        """Give an event to whoever reads; nothing after the last one."""
        if self.ended.is_set():
            return
        if isinstance(event, LAST):
            self.ended.set()
        if not isinstance(event, Waiting):  # that is the queue's, told under its lock
            self.hear(event)
        self._inbox.put(event)

    def next(self) -> Event:
        """The next event, when there is one; for one reader."""
        return self._inbox.get()


class JobQueue:
    """Jobs that wait, and the thread that does them.

    ``idle`` is called when nothing waits, as long as it says that there is more to do; it should
    return soon.
    """

    def __init__(self, limits: Limits, *, idle: Callable[[], bool] = lambda: False) -> None:
        self.limits = limits
        self._idle = idle
        self._jobs: list[Job] = []  # the first one runs, or is the next to
        self._running: Job | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        """How many jobs wait or run."""
        with self._changed:
            return len(self._jobs)

    def start(self) -> None:
        """Start the thread, if it does not run yet."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._work, name="t2x-studio", daemon=True)
                self._thread.start()

    def put(self, job: Job) -> None:
        """Let a job wait. Raises T2XError if the queue is full, or the user's part of it."""
        with self._changed:
            if self._closed:
                raise T2XError("the studio is closed; start it again")
            if len(self._jobs) >= self.limits.queue:
                raise T2XError(
                    f"{len(self._jobs)} jobs are waiting already, which is the limit; try again "
                    "when some are done"
                )
            own = sum(other.user == job.user for other in self._jobs)
            if own >= self.limits.per_user:
                raise T2XError(
                    f"{own} jobs of yours are waiting already, which is the limit of one user; "
                    "wait for one, or cancel it"
                )
            self._jobs.append(job)
            job.tell(Waiting(job.id, len(self._jobs) - 1))
            self._changed.notify_all()
        self.start()

    def events(self, job: Job) -> Iterator[Event]:
        """Give a job's events as they come, up to the last one; for one reader. A reader that goes
        away before that cancels the job."""
        try:
            while True:
                event = job.next()
                yield event
                if isinstance(event, LAST):
                    return
        finally:
            if not job.ended.is_set():
                self.cancel(job.id)

    def cancel(self, job_id: str, *, user: str | None = None) -> bool:
        """Stop a job that waits or runs; whether there was one. With ``user`` only one of theirs.
        One that waits ends at once."""
        with self._changed:
            found = [job for job in self._jobs if job.id == job_id and user in (None, job.user)]
            left = self._stop(found)
        for job in left:
            job.tell(Cancelled())
        return bool(found)

    def close(self) -> None:
        """Cancel everything and end the thread."""
        with self._changed:
            self._closed = True
            left = self._stop(list(self._jobs))
            self._changed.notify_all()
            thread = self._thread
        for job in left:
            job.tell(Cancelled())
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _stop(self, jobs: list[Job]) -> list[Job]:
        """Stop jobs, and take those out that only wait: to be told, without the lock, that they
        ended."""
        for job in jobs:
            job.stop.set()
        waiting = [job for job in jobs if job is not self._running]
        for job in waiting:
            self._leave(job)
        return waiting

    def _leave(self, job: Job) -> None:
        """Take a job out, and tell those behind it their new place."""
        place = self._jobs.index(job)
        self._jobs.remove(job)
        for number, other in enumerate(self._jobs[place:], place):
            if other is not self._running:
                other.tell(Waiting(other.id, number))

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                if job.stop.is_set():
                    job.tell(Cancelled())
                else:
                    job.run(job)
            except BaseException:  # a job tells its own failures: this is a fault of the studio
                log.exception("a job of the studio broke its thread")
            finally:
                job.tell(Cancelled())  # unless it has told how it ended
                with self._changed:
                    self._running = None
                    self._leave(job)

    def _next(self) -> Job | None:
        """Wait for a job; None when the queue is closed."""
        while True:
            with self._changed:
                if self._closed:
                    return None
                if self._jobs:
                    self._running = self._jobs[0]
                    return self._running
            if self._idle():
                continue
            with self._changed:
                if not self._jobs and not self._closed:
                    self._changed.wait()
