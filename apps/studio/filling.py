"""A recipe fills the form that it came from: the Create tab's, or of an edit the Edit tab's."""

from __future__ import annotations

from typing import Any

from t2x.studio.recipes import Recipe
from t2x.studio.redrawing import form_request
from t2x.studio.requests import EditRequest

from .desk import Desk

__all__ = ["filled", "form_boxes"]


def form_boxes(desk: Desk) -> list[Any]:
    """What ``filled`` changes; both tabs are laid out by then."""
    assert desk.create is not None and desk.edit is not None
    return [desk.prompt, desk.seed, *desk.create.form, *desk.handed, *desk.edit.form]


def filled(desk: Desk, recipe: Recipe, *, user: str) -> dict[Any, Any]:
    """Updates that fill the form of the tab that the recipe belongs to, and open it. The source of
    an edit comes from the user's history; without, the tab says that it is needed.

    Raises T2XError for a damaged recipe, and for one that the form has no room for.
    """
    digest = str(recipe.source.get("digest", ""))
    source = desk.history.source(user, digest) if digest else None
    request = form_request(recipe, picture=source)
    if isinstance(request, EditRequest):
        assert desk.edit is not None
        wanted = digest if source is None else ""
        handed = desk.to_edit(source, request.source_prompt, region=request.region, wanted=wanted)
        return handed | desk.edit.filled(request)
    assert desk.create is not None
    changes = {desk.prompt: recipe.prompt, desk.seed: recipe.seed}
    changes |= desk.create.filled(request, desk.studio.state())
    return changes | {desk.tabs: desk.open_tab("create")}
