"""The line below the picture of the Edit tab: its size and the model's, what its recipe says, and
whether it is the one that a recipe asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.errors import T2XError
from t2x.studio.editing import nearest_size
from t2x.studio.state import StudioState
from t2x.studio.uploads import Dropped, read_dropped

from .desk import FAST, Desk, user_of
from .filling import filled, form_boxes
from .live import note_line

__all__ = ["NEEDED", "SourceLine", "source_line", "wire_source"]

NEEDED = (
    "This edit began with another picture, which is not in your history: drop that picture here."
)


@dataclass
class SourceLine:
    """The components; ``recipe`` is a button that takes an edited picture's own recipe."""

    said: gr.HTML
    recipe: gr.Button


def source_line() -> SourceLine:
    """Lay it out."""
    said = gr.HTML(elem_id="edit-picture-said")
    with gr.Row(elem_classes="tools"):
        recipe = gr.Button(
            "Edit its source again", size="sm", elem_id="edit-recipe", visible=False, scale=0
        )
    return SourceLine(said, recipe)


def wire_source(desk: Desk, line: SourceLine, size: tuple[gr.Textbox, gr.Textbox]) -> None:
    """Tell of each picture that comes; ``size``: the boxes of height and width."""
    told = [line.said, line.recipe, *size]

    def look(path: str | None, wanted: str) -> list[Any]:
        if not path:
            said = note_line(NEEDED, problem=True) if wanted else ""
            return [said, gr.Button(visible=False), *[gr.Textbox(placeholder="its own")] * 2]
        try:
            found = read_dropped(path)
        except T2XError as error:
            problem = note_line(str(error), problem=True)
            return [problem, gr.Button(visible=False), gr.skip(), gr.skip()]
        own, drawn, size_said = sizes(found, desk.studio.state())
        parts = [size_said, _recognised(found, wanted)]
        edited = found.recipe is not None and found.recipe.kind == "edit" and not wanted
        if edited:
            parts.append("It was edited from another picture.")
        hints = [gr.Textbox(placeholder=str(side)) for side in drawn or own]
        said = note_line(" ".join(filter(None, parts)))
        return [said, gr.Button(visible=edited), *hints]

    desk.edit_picture.change(look, [desk.edit_picture, desk.edit_wanted], told, **FAST)

    def dropped(path: str | None, wanted: str, shows: str) -> list[Any]:
        """A new picture: a box of the one before means nothing in it, its words are its own."""
        if wanted or not path:
            return [gr.skip(), gr.skip()]
        try:
            recipe = read_dropped(path).recipe
        except T2XError:  # said by ``look``
            recipe = None
        return [gr.skip() if recipe is None else recipe.text, ""]

    desk.edit_picture.upload(
        dropped,
        [desk.edit_picture, desk.edit_wanted, desk.edit_shows],
        [desk.edit_shows, desk.edit_region],
        **FAST,
    )
    desk.edit_picture.clear(lambda: "", None, desk.edit_region, **FAST)

    def again(path: str | None, guest: Any, request: gr.Request) -> Any:
        try:
            recipe = read_dropped(path).recipe if path else None
            if recipe is None:
                return {line.said: gr.skip()}
            return filled(desk, recipe, user=user_of(guest, request))
        except T2XError as error:
            return {line.said: note_line(str(error), problem=True)}

    line.recipe.click(
        again,
        [desk.edit_picture, desk.guest],
        [*form_boxes(desk), line.said],
        **FAST,
    )


def sizes(
    found: Dropped, state: StudioState
) -> tuple[tuple[int, int], tuple[int, int] | None, str]:
    """(height, width) of the picture, that at which the loaded model edits it, None where that is
    not known, and both as a sentence."""
    width, height = found.picture.size
    facts = state.generator.facts
    if "edited_size" not in facts:
        return (height, width), None, f"{width} × {height} pixels."
    drawn = nearest_size(height, width, **facts["edited_size"])
    said = f"{width} × {height} pixels"
    said += "." if drawn == (height, width) else f", edited as {drawn[1]} × {drawn[0]}."
    return (height, width), drawn, said


def _recognised(found: Dropped, wanted: str) -> str:
    """Whether it is the picture that a recipe began with."""
    if not wanted:
        return ""
    from t2x.generators.sources import source_digest

    if source_digest(found.picture) == wanted:
        return "This is the picture that the recipe began with."
    return "This is not the picture that the recipe began with: the edit will differ."
