"""What can be asked of the studio: frozen records of plain values, and their JSON form.

Making one checks nothing; ``t2x.studio.limits.check_request`` does when it is put in the queue, so
that whatever a form or a client sends ends in one clear message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from t2x.config import build_config
from t2x.errors import T2XError
from t2x.plain import plain

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.studio.work import Work

__all__ = [
    "REQUESTS",
    "BestOfRequest",
    "CompareRequest",
    "EditRequest",
    "GuideRequest",
    "Request",
    "Sampling",
    "TaskRequest",
    "request_from_record",
    "request_record",
]


@dataclass(frozen=True)
class Sampling:
    """How pictures are drawn; None leaves it to the model.

    ``size``: (height, width) in pixels; ``steps`` of the denoiser; ``guidance_scale``: of
    classifier-free guidance; ``num_frames``: of videos.
    """

    size: tuple[int, int] | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    num_frames: int | None = None


@dataclass(frozen=True)
class CompareRequest:
    """Pictures of the user's words and of their rewrite, from the same seeds.

    Args:
        prompt: the user's words.
        num: pictures in each arm; picture i has ``seed`` + i.
        rewrite: whether the rewriter is asked; without, and without ``text``, there is one arm.
        text: what is drawn in place of the rewriter's answer (the user changed it, or it is known).
        negative: what pictures must not show, in both arms, beside what the rewriter adds.
        sampling: how they are drawn.
        rewards: names of what scores them; None is the studio's own choice, () none.
    """

    prompt: str
    num: int = 4
    seed: int = 0
    rewrite: bool = True
    text: str | None = None
    negative: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    rewards: tuple[str, ...] | None = None
    kind: Literal["compare"] = "compare"


@dataclass(frozen=True)
class BestOfRequest:
    """``num`` pictures of one text, scored by all rewards, to be sorted by any of them.

    The arm is "rewritten" if the text differs from the user's words, else "original"; fields as
    those of ``CompareRequest``.
    """

    prompt: str
    num: int = 8
    seed: int = 0
    rewrite: bool = True
    text: str | None = None
    negative: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    rewards: tuple[str, ...] | None = None
    kind: Literal["best_of"] = "best_of"


@dataclass(frozen=True)
class GuideRequest:
    """Pictures that rewards steer while they are drawn (arm "guided"), and beside them the same
    seeds without (arm "plain").

    Args:
        weights: of the rewards that steer, by name.
        mode: a key of ``t2x.guidance.recipe.MODES``.
        budget: denoiser evaluations per picture; None is the mode's own number.
        options: further settings by name, as ``t2x generate --guide-option``.
        beside: whether the arm "plain" is drawn.
        three_way: weights of the user's words and of the rewrite in the guidance scale (Parrot);
            None for the second leaves it what the first leaves of the scale. Only with a rewrite.

    The others are those of ``CompareRequest``; what is drawn is the rewrite, where there is one.
    """

    prompt: str
    weights: dict[str, float] = field(default_factory=dict)
    mode: str = "E"
    budget: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    beside: bool = True
    three_way: tuple[float, float | None] | None = None
    num: int = 1
    seed: int = 0
    rewrite: bool = True
    text: str | None = None
    negative: str = ""
    sampling: Sampling = field(default_factory=Sampling)
    rewards: tuple[str, ...] | None = None
    kind: Literal["guide"] = "guide"


@dataclass(frozen=True)
class EditRequest:
    """A picture changed by an instruction (arm "edited"; "source" is what the model saw).

    Args:
        picture: a PIL picture of any mode and size; it is fitted to what the model takes.
        instruction: like "make the cat blue".
        source_prompt: what the picture shows; flowedit needs it.
        target_prompt: what the edited picture shows as a whole, in place of an instruction.
        method: of ``t2x.guidance.editing.METHODS``; None: rewardflow with weights, flowedit with a
            source prompt, else sdedit.
        weights: of rewards that steer (rewardflow).
        mode, options: of guidance, E or J, and values of ``t2x.GuidanceConfig`` by name.
        strength, source_scale, focus, tether: as ``t2x.EditConfig``; None is its own.
        region: left, top, right, bottom in [0, 1]: what may change; None is everything.

    The others are those of ``CompareRequest``.
    """

    picture: Any = None
    instruction: str = ""
    source_prompt: str = ""
    target_prompt: str = ""
    method: str | None = None
    weights: dict[str, float] = field(default_factory=dict)
    mode: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    strength: float | None = None
    source_scale: float | None = None
    focus: float | None = None
    tether: float | None = None
    region: tuple[float, float, float, float] | None = None
    num: int = 1
    seed: int = 0
    sampling: Sampling = field(default_factory=Sampling)
    rewards: tuple[str, ...] | None = None
    kind: Literal["edit"] = "edit"


@dataclass(frozen=True)
class TaskRequest:
    """Work of another part of the program that needs the studio's models (questions, batches).

    ``run`` is called on the studio's worker with a ``Work``, which has the models, tells events and
    stops the task where the user cancels it; what it returns is the entry's ``answer``. ``name`` is
    shown while it waits. ``state`` is what the task should be remembered by, as JSON values.
    """

    name: str
    run: Callable[[Work], Any]
    state: Mapping[str, Any] = field(default_factory=dict)
    kind: Literal["task"] = "task"


Request: TypeAlias = CompareRequest | BestOfRequest | GuideRequest | EditRequest | TaskRequest
REQUESTS = (CompareRequest, BestOfRequest, GuideRequest, EditRequest, TaskRequest)
_KINDS: dict[str, type] = {
    "compare": CompareRequest,
    "best_of": BestOfRequest,
    "guide": GuideRequest,
    "edit": EditRequest,
}


def request_record(request: Request) -> dict[str, Any]:
    """Give a request as JSON values. The picture of an edit is not in it, and of a task there is
    its name and state."""
    if isinstance(request, TaskRequest):
        return {"kind": "task", "name": request.name, "state": plain(request.state, exact=True)}
    record: dict[str, Any] = plain(
        replace(request, picture=None) if isinstance(request, EditRequest) else request, exact=True
    )
    record.pop("picture", None)
    return record


def request_from_record(record: Mapping[str, Any], *, picture: Image | None = None) -> Request:
    """Give the request back. ``picture`` is that of an edit. Raises T2XError for what is no record
    of a request."""
    kind = record.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise T2XError(f"this is no request of the studio: its kind is {kind!r}")
    request: Request = build_config(_KINDS[kind], record)
    return replace(request, picture=picture) if isinstance(request, EditRequest) else request
