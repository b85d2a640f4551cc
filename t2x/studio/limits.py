"""How much one job and one user may ask for, and checks of a request before it waits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from t2x.config import build_config, check_ranges
from t2x.errors import T2XError
from t2x.plain import is_text
from t2x.registry import check_names
from t2x.studio.requests import (
    REQUESTS,
    EditRequest,
    GuideRequest,
    Request,
    Sampling,
    TaskRequest,
    request_record,
)

__all__ = ["Limits", "check_request"]

_SEEDS = 2**64


@dataclass(frozen=True)
class Limits:
    """What may be asked for.

    Args:
        queue: jobs that wait or run, of all users.
        per_user: of them, of one user.
        pictures: in each arm of a job.
        side: of a picture, in pixels.
        enlarged: pixels of a picture, in pictures of the model's own size: attention costs their
            square, and one step can't be stopped.
        steps: of the denoiser.
        frames: of a video.
        characters: of a text.
        swaps: whether users may load other models (by name, folder or hub id).
        weights: largest weight of a reward that steers, of either sign.
        memory: bytes, or text like "20GB", under which the loaded models stay together: others are
            freed before one is loaded. None: all stay loaded until memory runs out.

    Raises T2XError for a number out of range.
    """

    queue: int = 32
    per_user: int = 8
    pictures: int = 32
    side: int = 2048
    enlarged: float = 16.0
    steps: int = 200
    frames: int = 256
    characters: int = 8000
    swaps: bool = True
    weights: float = 1000.0
    memory: int | str | None = None

    def __post_init__(self) -> None:
        names = ("queue", "per_user", "pictures", "side", "steps", "frames", "characters")
        bounds: dict[str, tuple[float | str, float]] = {name: (1, 10**9) for name in names}
        check_ranges("limits", self, bounds | {"weights": (0.0, 10**9), "enlarged": (0.1, 10**9)})
        if self.memory is not None:
            from t2x.memory.machine import parse_bytes

            parse_bytes(self.memory)


def check_request(request: Request, limits: Limits, *, rewards: Iterable[str] = ()) -> None:
    """Raise T2XError, in one line, for what no model can do or what is more than ``limits``.

    ``rewards`` are names that are known beside those of the registry.
    """
    if isinstance(request, TaskRequest):
        return
    if not isinstance(request, REQUESTS):
        raise T2XError(f"{type(request).__name__} is no request of the studio")
    build_config(type(request), request_record(request))  # every type
    if isinstance(request, EditRequest):
        _check_edit(request, limits)
        texts: tuple[str | None, ...] = (
            request.instruction,
            request.source_prompt,
            request.target_prompt,
        )
    else:
        if not request.prompt.strip():
            raise T2XError("the prompt is empty; say what the picture should show")
        if request.text is not None and not request.text.strip():
            raise T2XError("the text to draw is empty; write it, or leave it to the rewriter")
        texts = (request.prompt, request.text, request.negative)
    for text in texts:
        _check_text(text or "", limits)
    _check_number("num", request.num, 1, limits.pictures)
    _check_number("seed", request.seed, 0, _SEEDS - request.num)
    _check_sampling(request.sampling, limits)
    weights = request.weights if isinstance(request, GuideRequest | EditRequest) else {}
    for name, weight in weights.items():
        _check_number(f"the weight of {name}", weight, -limits.weights, limits.weights)
    known = set(rewards)
    wanted = request.rewards or ()
    check_names("rewards", [n for n in (*wanted, *weights) if n not in known], code=False)
    if twice := sorted({n for n in wanted if wanted.count(n) > 1}):
        raise T2XError(f"reward {twice[0]!r} is given twice; give each once")
    if isinstance(request, GuideRequest):
        _check_guidance(request, known)


def _check_text(text: str, limits: Limits) -> None:
    if len(text) > limits.characters:
        raise T2XError(
            f"a text of {len(text)} characters is too long; give at most {limits.characters}"
        )
    if not is_text(text):
        raise T2XError("a text is no valid Unicode; type it again")


def _check_number(name: str, value: float | None, low: float, high: float) -> None:
    if value is not None and not (math.isfinite(value) and low <= value <= high):
        raise T2XError(f"{name} is {value}; give {low} to {high}")


def _check_sampling(sampling: Sampling, limits: Limits) -> None:
    for side in sampling.size or ():
        _check_number("a side of the picture", side, 8, limits.side)
    _check_number("steps", sampling.steps, 1, limits.steps)
    _check_number("guidance_scale", sampling.guidance_scale, 0, 1000)
    _check_number("num_frames", sampling.num_frames, 1, limits.frames)


def _check_guidance(request: GuideRequest, known: set[str]) -> None:
    from t2x.guidance.recipe import make_recipe

    if request.weights or request.three_way is None:
        make_recipe(
            request.weights,
            mode=request.mode,
            budget=request.budget,
            options=request.options,
            loaded=[*request.weights] if known & set(request.weights) else (),
        )
    for weight in request.three_way or ():
        _check_number("a weight of three_way", weight, 0, 1000)
    if request.three_way is None:
        return
    if request.budget is not None:
        raise T2XError(
            "three_way evaluates the denoiser once more per step, which a budget does not count; "
            "leave one out"
        )
    if not request.rewrite and request.text is None:
        raise T2XError("three_way weighs your words against a rewrite; switch rewriting on")


def _check_edit(request: EditRequest, limits: Limits) -> None:
    picture: Any = request.picture
    if picture is None or not hasattr(picture, "convert"):
        raise T2XError("an edit begins with a picture; give one")
    if not request.instruction.strip() and not request.target_prompt.strip():
        raise T2XError('say what to change, like "make the cat blue"')
    if request.region is not None:
        left, top, right, bottom = request.region
        if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
            raise T2XError(f"a region is left, top, right, bottom in 0 to 1; got {request.region}")
