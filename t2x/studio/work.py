"""What a running job has: the models, a way to tell events, and the place where it can be stopped.

A job is stopped by an exception that no ``except Exception`` holds up, raised wherever
``Work.check`` is called: between pictures, and before each evaluation of a model that stands in
``Work.stoppable``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.studio.events import Drawn, Event, Progress, Rewritten, Scored

if TYPE_CHECKING:
    from t2x.studio.models import Models

__all__ = ["ModelMissingError", "Stopped", "Told", "Work"]


class Stopped(BaseException):
    """The user cancelled the job."""


class ModelMissingError(T2XError):
    """A model that the job can't do without can't be loaded."""


@dataclass
class Told:
    """What a job has told so far, for its entry."""

    rewritten: Rewritten | None = None
    pictures: list[Drawn] = field(default_factory=list)
    scores: list[Scored] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Keep what belongs into the entry."""
        if isinstance(event, Rewritten):
            self.rewritten = event
        elif isinstance(event, Drawn):
            self.pictures.append(event)
        elif isinstance(event, Scored):
            self.scores.append(event)


class Work:
    """One running job of one user, on the studio's worker thread."""

    def __init__(
        self,
        models: Models,
        *,
        user: str,
        tell: Callable[[Event], None],
        stop: threading.Event,
    ) -> None:
        self.models, self.user = models, user
        self.told = Told()
        self._tell, self._stop = tell, stop
        self._begun: dict[str, float] = {}

    def check(self) -> None:
        """Raise ``Stopped`` if the user cancelled the job."""
        if self._stop.is_set():
            raise Stopped

    def tell(self, event: Event) -> None:
        """Give an event to who listens. Raises ``Stopped`` if the user cancelled the job."""
        self.check()
        self.told.add(event)
        self._tell(event)

    def aside(self, hear: Callable[[Drawn], None]) -> Work:
        """The same job, whose pictures ``hear`` gets; of the rest progress alone is told."""

        def tell(event: Event) -> None:
            if isinstance(event, Drawn):
                hear(event)
            elif isinstance(event, Progress):
                self.tell(event)

        other = Work(self.models, user=self.user, tell=tell, stop=self._stop)
        other.told.seconds = self.told.seconds
        return other

    def note(self, text: str) -> None:
        """Keep a warning for the user, once."""
        if text not in self.told.notes:
            self.told.notes.append(text)

    def progress(self, what: str, done: int, total: int, *, step: int = 0, steps: int = 0) -> None:
        """Tell how far a part of the job is; the time left is worked out from its pace."""
        now = time.perf_counter()
        begun = self._begun.setdefault(what, now)
        parts = done + (step / steps if steps else 0.0)
        left = (now - begun) / parts * (total - parts) if parts else None
        self.tell(Progress(what, done, total, left, step, steps))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds that are spent inside."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begun
            self.told.seconds[name] = round(self.told.seconds.get(name, 0.0) + spent, 3)

    @contextmanager
    def stoppable(self, owner: Any, names: tuple[str, ...]) -> Iterator[None]:
        """Let the job be stopped before each evaluation of the models ``names`` of ``owner``: of a
        denoiser between two steps of a picture, of a language model between two tokens.

        Names that are no modules are left out, so what has none stops where it ends.
        """
        import torch

        with ExitStack() as stack:
            for name in names:
                module = getattr(owner, name, None)
                if isinstance(module, torch.nn.Module):
                    handle = module.register_forward_pre_hook(lambda *_: self.check())
                    stack.callback(handle.remove)
            yield
