"""What a job of the studio tells while it runs: frozen records, in order of time.

A job begins with ``Waiting`` and ends with exactly one of ``Finished``, ``Failed`` and
``Cancelled`` (``LAST``). What was told before one of the last two stays valid: pictures that were
drawn are good.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.guidance.trace import SampleTrace
    from t2x.studio.changes import Change
    from t2x.studio.requests import Request
    from t2x.studio.state import StudioState
    from t2x.types import Rewrite

Cause: TypeAlias = Literal["request", "queue", "model", "memory", "internal"]

__all__ = [
    "LAST",
    "Answered",
    "Cancelled",
    "Cause",
    "Drawn",
    "Entry",
    "Event",
    "Failed",
    "Finished",
    "GuidanceStep",
    "Loaded",
    "Progress",
    "Rewritten",
    "Scored",
    "Waiting",
]


@dataclass(frozen=True)
class Waiting:
    """The job ``job`` is in the queue with ``place`` jobs before it, the running one included; told
    again whenever the place changes, 0 when it begins."""

    job: str
    place: int


@dataclass(frozen=True)
class Progress:
    """``done`` of ``total`` parts of ``what`` is done now; ``seconds_left`` is None where nothing
    is known yet. ``step`` of ``steps`` is the place inside the picture that is being drawn, 0 of 0
    where the pipeline does not tell."""

    what: str
    done: int
    total: int
    seconds_left: float | None = None
    step: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Rewritten:
    """What became of the prompt. ``words`` are the user's own without their syntax: what rewards
    score against. If ``rewrite.changed`` is false the arm "rewritten" is not drawn: it would be the
    same pictures."""

    rewrite: Rewrite
    words: str


@dataclass(frozen=True)
class Drawn:
    """One picture, or one video.

    ``arm``: "original", "rewritten", "plain" (unguided beside a guided one), "guided", "source" or
    "edited". ``index`` counts inside the arm, from 0. ``picture``: RGB, 8 bits; of a video its
    middle frame. ``frames`` of a video, in order, at ``fps``; empty of a picture. ``recipe``: all
    that is needed to draw it again, as JSON values (``t2x.studio.recipe_facts``). ``trace`` and
    ``notes``: what guidance did, where there was any. ``change``: of an edited one, beside its
    source.
    """

    arm: str
    index: int
    seed: int
    picture: Image
    recipe: Mapping[str, Any]
    frames: tuple[Image, ...] = ()
    fps: int = 0
    trace: SampleTrace | None = field(default=None, compare=False)
    notes: Mapping[str, Any] = field(default_factory=dict)
    change: Change | None = field(default=None, compare=False)


@dataclass(frozen=True)
class GuidanceStep:
    """One step of guided sampling of the picture ``index`` with ``seed``.

    ``step`` of ``steps`` counts from 0 (a corrector's visits have the same one). ``values`` and
    ``weights`` by reward name, ``eta`` step size, ``gradient_norm``: NaN where not measured. Where
    rewards look at whole samples (particles, search, noise) ``sigma`` is NaN, the values are the
    best sample's, and of search and noise each look is a step, ``steps`` as many as there were.
    ``thumbnail``: x0_hat before the edit, RGB, or None.
    """

    index: int
    seed: int
    step: int
    steps: int
    sigma: float
    values: Mapping[str, float]
    weights: Mapping[str, float]
    eta: float
    gradient_norm: float
    thumbnail: Image | None = None


@dataclass(frozen=True)
class Scored:
    """What one reward says of the pictures against the user's own words.

    ``values`` by arm, one for each picture in order; NaN is "not measured", and ``problem`` says
    why if that is all of them. ``scale`` says what the number means, ``range`` its least and
    largest value.
    """

    reward: str
    values: Mapping[str, tuple[float, ...]]
    scale: str = ""
    range: tuple[float, float] = (float("-inf"), float("inf"))
    problem: str = ""


@dataclass(frozen=True)
class Answered:
    """What a job of another part of the program gives (``TaskRequest``)."""

    value: Any


@dataclass(frozen=True)
class Loaded:
    """Models were swapped; what the studio has now."""

    state: StudioState


@dataclass(frozen=True)
class Entry:
    """All of a finished job: what was asked, and everything that was told, in order.

    ``seconds`` by phase and "total"; ``notes`` are warnings that the user should see.
    """

    job: str
    user: str
    request: Request
    rewrite: Rewrite | None = None
    words: str = ""
    pictures: tuple[Drawn, ...] = ()
    scores: tuple[Scored, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    answer: Any = None

    def arm(self, name: str) -> tuple[Drawn, ...]:
        """The pictures of one arm, in order."""
        return tuple(drawn for drawn in self.pictures if drawn.arm == name)

    def best_first(self, reward: str, arm: str) -> list[int]:
        """Indices of an arm's pictures from the best to the worst by a reward; what it could not
        measure comes last, equals in order. Raises KeyError for a reward that was not asked."""
        by_name = {column.reward: column for column in self.scores}
        values = by_name[reward].values.get(arm, ())
        return sorted(range(len(values)), key=lambda i: (values[i] != values[i], -values[i], i))


@dataclass(frozen=True)
class Finished:
    """The job is done."""

    entry: Entry


@dataclass(frozen=True)
class Failed:
    """The job ended without a result; the studio goes on. ``message``: one line, what happened and
    what to do. ``cause``: "request" (mend what was asked), "queue" (too much is waiting), "model"
    (it can't be loaded), "memory", "internal" (a fault of the program)."""

    message: str
    cause: Cause = "request"


@dataclass(frozen=True)
class Cancelled:
    """The user stopped the job; ``pictures`` were finished before."""

    pictures: int = 0


Event: TypeAlias = (
    Waiting
    | Progress
    | Rewritten
    | Drawn
    | GuidanceStep
    | Scored
    | Answered
    | Loaded
    | Finished
    | Failed
    | Cancelled
)
LAST = (Finished, Failed, Cancelled)
