"""The recipe (``t2x.studio.recipes``) of what a job of the studio draws."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from t2x.plain import plain
from t2x.studio.recipes import Recipe, generator_facts, rewrite_facts
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

__all__ = ["picture_recipe", "redraw_request"]

_EDITS = ("instruction", "source_prompt", "method", "strength", "source_scale", "focus", "tether")


def picture_recipe(
    request: Request,
    shot: Shot,
    generator: Generator,
    models: Models,
    *,
    rewrite: Rewrite | None = None,
) -> dict[str, Any]:
    """Describe one picture: ``Recipe.record``. Its ``request`` draws this picture alone, byte for
    byte, in a studio with the same models."""
    sampling = getattr(request, "sampling", None)
    size = None if sampling is None or sampling.size is None else tuple(sampling.size)
    frames = None if sampling is None else sampling.num_frames
    rewritten = rewrite is not None and shot.arm != "original"
    recipe = Recipe(
        prompt=getattr(request, "prompt", shot.text),
        text=shot.text,
        negative=shot.negative,
        seed=shot.seed,
        arm=shot.arm,
        rewrite=rewrite_facts(rewrite) if rewrite is not None and rewritten else {},
        request=request_record(redraw_request(request, shot)),
        **generator_facts(generator, size=size, num_frames=frames),
        **_steered(request, shot),
        **_edited(request),
    )
    return recipe.record()


def _steered(request: Request, shot: Shot) -> dict[str, Any]:
    """What guidance was asked for, as ``t2x generate`` writes it."""
    if not isinstance(request, GuideRequest) or shot.arm != "guided":
        return {}
    three_way = [] if request.three_way is None else list(request.three_way)
    if not request.weights:
        return {"three_way": three_way}
    from t2x.guidance.recipe import make_recipe

    names = tuple(request.weights)
    asked = make_recipe(
        request.weights,
        mode=request.mode,
        budget=request.budget,
        options=request.options,
        loaded=names,
    )
    return {"guidance": plain(asked.record()), "three_way": three_way}


def _edited(request: Request) -> dict[str, Any]:
    """How a picture was edited, and which."""
    if not isinstance(request, EditRequest):
        return {}
    how = {key: getattr(request, key) for key in _EDITS}
    how |= {"region": request.region, "weights": request.weights}
    found: dict[str, Any] = {"kind": "edit", "edit": plain({k: v for k, v in how.items() if v})}
    if request.picture is not None:
        from t2x.generators.sources import source_digest

        found["source"] = {"digest": source_digest(request.picture)}
    return found


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
