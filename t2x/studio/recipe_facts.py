"""The recipe of a picture: all that is needed to draw it again, as JSON values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from t2x.plain import plain
from t2x.studio.requests import (
    BestOfRequest,
    CompareRequest,
    EditRequest,
    GuideRequest,
    Request,
    request_record,
)

if TYPE_CHECKING:
    from t2x.studio.drawing import Shot
    from t2x.studio.models import Models
    from t2x.types import Generator, Rewrite

__all__ = ["FORMAT", "picture_recipe", "redraw_request"]

FORMAT = 1


def picture_recipe(
    request: Request,
    shot: Shot,
    generator: Generator,
    models: Models,
    *,
    rewrite: Rewrite | None = None,
) -> dict[str, Any]:
    """Describe one picture.

    ``request`` draws this picture alone, byte for byte, in a studio with the same models
    (``t2x.studio.requests.request_from_record``); ``asked`` is the whole job. ``prompt``: the
    user's words, ``text`` and ``negative`` what was drawn. ``generator`` is what loads it (None for
    an object), ``fingerprint`` all that decides a picture but text and seed, versions included, for
    generators that can tell.
    """
    sampling = getattr(request, "sampling", None)
    size = None if sampling is None or sampling.size is None else tuple(sampling.size)
    frames = None if sampling is None else sampling.num_frames
    tell = getattr(generator, "fingerprint", None)
    return {
        "format": FORMAT,
        "kind": request.kind,
        "arm": shot.arm,
        "index": shot.index,
        "seed": shot.seed,
        "prompt": getattr(request, "prompt", shot.text),
        "text": shot.text,
        "negative": shot.negative,
        "model": generator.model_id,
        "generator": models.generator_source,
        "options": plain(models.options),
        "rewrite": None if rewrite is None else plain(rewrite),
        "fingerprint": {} if tell is None else plain(tell(size=size, num_frames=frames)),
        "versions": _versions(),
        "request": request_record(redraw_request(request, shot)),
        "asked": request_record(request),
    }


def redraw_request(request: Request, shot: Shot) -> Request:
    """The request that draws one picture of a job again, alone and without the rewriter."""
    if isinstance(request, CompareRequest | BestOfRequest) or shot.arm == "plain":
        assert not isinstance(request, EditRequest)
        return BestOfRequest(
            prompt=getattr(request, "prompt", shot.text),
            num=1,
            seed=shot.seed,
            rewrite=False,
            text=None if shot.arm == "original" else shot.text,
            negative=shot.negative,
            sampling=getattr(request, "sampling"),  # noqa: B009 - of all but tasks
            rewards=getattr(request, "rewards", None),
        )
    if isinstance(request, GuideRequest):
        return replace(
            request,
            num=1,
            seed=shot.seed,
            rewrite=False,
            text=shot.text,
            negative=shot.negative,
            beside=False,
        )
    if isinstance(request, EditRequest):
        return replace(request, num=1, seed=shot.seed)
    return request


def _versions() -> dict[str, str]:
    from t2x.generators.identity import versions

    return versions()
