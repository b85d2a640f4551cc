"""The jobs that rewrite and draw: the user's words beside their rewrite, and best of N."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from t2x.studio.drawing import Brush, Shot
from t2x.studio.events import Rewritten
from t2x.studio.scoring import score_pictures
from t2x.studio.work import ModelMissingError
from t2x.types import Rewrite

if TYPE_CHECKING:
    from t2x.studio.requests import BestOfRequest, CompareRequest, GuideRequest
    from t2x.studio.work import Work

__all__ = ["best_of", "compare", "rewritten", "words_of"]


def compare(work: Work, request: CompareRequest) -> None:
    """Draw the user's words and their rewrite from the same seeds, then score both.

    Where the rewriter is not loaded yet the first picture comes before it.
    """
    brush = Brush(work, request, request.sampling, total=request.num)
    seeds = range(request.seed, request.seed + request.num)
    first = [Shot("original", i, request.prompt, request.negative, s) for i, s in enumerate(seeds)]
    missing: ModelMissingError | None = None
    if request.rewrite and not work.models.rewriter_ready:
        try:
            brush.paint(first.pop(0))
        except ModelMissingError as error:
            missing = error
    rewrite = rewritten(work, request)
    if missing is not None:
        raise missing
    other = []
    if rewrite is not None and (rewrite.changed):
        negative = joined(request.negative, rewrite.negative)
        other = [Shot("rewritten", i, rewrite.text, negative, s) for i, s in enumerate(seeds)]
        brush.total *= 2
        brush.rewrite = rewrite
    for shot in sorted([*first, *other], key=lambda shot: (shot.index, shot.arm)):
        brush.paint(shot)
    score_pictures(work, asked_rewards(work, request), words_of(work, request.prompt), brush.media)


def best_of(work: Work, request: BestOfRequest) -> None:
    """Draw one text from several seeds, then score all."""
    rewrite = rewritten(work, request)
    changed = rewrite is not None and rewrite.changed
    text = request.prompt if rewrite is None else rewrite.text
    negative = joined(request.negative, "" if rewrite is None else rewrite.negative)
    brush = Brush(work, request, request.sampling, total=request.num)
    brush.rewrite = rewrite if changed else None
    arm = "rewritten" if changed else "original"
    for index in range(request.num):
        brush.paint(Shot(arm, index, text, negative, request.seed + index))
    score_pictures(work, asked_rewards(work, request), words_of(work, request.prompt), brush.media)


def rewritten(work: Work, request: CompareRequest | BestOfRequest | GuideRequest) -> Rewrite | None:
    """Tell what becomes of the prompt: the text that was given, or the rewriter's. None where
    nothing is asked for, and, with a note, where the rewriter can't be loaded."""
    if request.text is not None:
        rewrite = Rewrite(request.prompt, request.text, model_id="given", seed=request.seed)
    elif not request.rewrite:
        return None
    else:
        found = _asked(work, request)
        if found is None:
            return None
        rewrite = found
    work.tell(Rewritten(rewrite, words_of(work, request.prompt)))
    return rewrite


def _asked(work: Work, request: CompareRequest | BestOfRequest | GuideRequest) -> Rewrite | None:
    if not work.models.rewriter_ready:
        work.progress(f"loading {work.models.rewriter_name}", 0, 1)
    try:
        with work.phase("load"):
            rewriter = work.models.rewriter()
    except ModelMissingError as error:
        work.note(str(error))
        return None
    work.progress(f"rewriting with {rewriter.model_id}", 0, 1)
    inner = getattr(rewriter, "rewriter", rewriter)
    with work.phase("rewrite"), work.stoppable(inner, ("model",)):
        return rewriter.rewrite([request.prompt], seed=request.seed)[0][0]


def words_of(work: Work, prompt: str) -> str:
    """The user's words without syntax that acts, if the generator that is loaded reads any."""
    if not work.models.generator_ready:
        return prompt
    said: Any = getattr(work.models.generator(), "said", None)
    return prompt if said is None else str(said([prompt])[0])


def asked_rewards(work: Work, request: Any) -> tuple[str, ...]:
    """The rewards of a request, or the studio's own choice."""
    return work.models.usual if request.rewards is None else tuple(request.rewards)


def joined(*negatives: str) -> str:
    """Several negative prompts as one."""
    return ", ".join(dict.fromkeys(text.strip() for text in negatives if text.strip()))
