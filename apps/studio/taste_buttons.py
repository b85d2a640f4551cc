"""Thumbs for the picture that is selected on the Create tab, and "this side is better" for pairs;
what they say about the user's taste.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from PIL import Image

from t2x.errors import T2XError
from t2x.media import png_text
from t2x.studio.preferences import TasteState
from t2x.studio.recipes import read_chunks

from .album import Album
from .desk import FAST, QUIET, Desk, user_of
from .live import note_line
from .stage import SIDES, Stage

__all__ = ["pair_buttons", "thumb_buttons"]


_THUMBS = {True: "I like it", False: "I don't"}


def thumb_buttons(desk: Desk) -> None:
    """Add thumbs to the row below the selected picture of the Create tab, and wire them. The one
    that was given is marked, and pressed again it is taken back."""
    with desk.picked_tools:
        up = gr.Button(_THUMBS[True], size="sm", elem_id="thumb-up", scale=0)
        down = gr.Button(_THUMBS[False], size="sm", elem_id="thumb-down", scale=0)
        said = gr.HTML(elem_id="thumb-said")
    buttons = {True: up, False: down}

    def marked(given: bool | None) -> dict[Any, Any]:
        return {
            button: gr.Button(f"✓ {_THUMBS[liked]}" if liked is given else _THUMBS[liked])
            for liked, button in buttons.items()
        }

    def thumb(liked: bool) -> Callable[..., Any]:
        def keep(path: str | None, guest: Any, request: gr.Request) -> Any:
            if not path:
                return {said: gr.skip()}
            user = user_of(guest, request)
            try:
                recipe = read_chunks(png_text(path))
                picture = _opened(path)
                given = None if desk.tastes.thumb_of(user, picture) is liked else liked
                prompt = "" if recipe is None else recipe.prompt
                state = desk.tastes.thumb(user, prompt, picture, liked=given)
            except (T2XError, OSError) as error:
                return {said: note_line(str(error), problem=True)}
            return {said: _said(state), **marked(given)}

        return keep

    def chosen(path: str | None, guest: Any, request: gr.Request) -> Any:
        """Another picture is selected: mark what was said of it."""
        try:
            given = desk.tastes.thumb_of(user_of(guest, request), _opened(path)) if path else None
        except (T2XError, OSError):
            given = None
        return {said: "", **marked(given)}

    both = [desk.picked, desk.guest]
    for liked, button in buttons.items():
        button.click(thumb(liked), both, [said, *buttons.values()], **QUIET)
    desk.picked.change(chosen, both, [said, *buttons.values()], **FAST)


def pair_buttons(desk: Desk, stage: Stage) -> dict[str, Any]:
    """Lay out and wire "left is better" and "right is better" below the two sides of a stage: they
    speak of the pictures of one seed, one pair after the other.

    Gives the arguments of the ``then`` of whatever draws on the stage, which shows the first pair.
    """
    with gr.Row(visible=False, elem_classes="tools", elem_id="pair-tools") as row:
        left = gr.Button("Left is better", size="sm", elem_id="left-better", scale=0)
        pair = gr.HTML(elem_id="pair-number")
        right = gr.Button("Right is better", size="sm", elem_id="right-better", scale=0)
        said = gr.HTML(elem_id="pair-said")
    at = gr.State(0)

    def choice(side: int) -> Callable[..., Any]:
        def keep(album: Album | None, place: int, guest: Any, request: gr.Request) -> Any:
            pairs = _pairs(album)
            if place >= len(pairs):
                return {said: gr.skip()}
            paths = pairs[place] if side == 0 else pairs[place][::-1]
            try:
                better, worse = (_opened(path) for path in paths)
                prompt = str(getattr(getattr(album, "request", None), "prompt", ""))
                state = desk.tastes.choose(user_of(guest, request), prompt, better, worse)
            except (T2XError, OSError, AttributeError) as error:
                return {said: note_line(str(error), problem=True)}
            return {said: _said(state), at: place + 1} | shown(album, place + 1)

        return keep

    def shown(album: Album | None, place: int) -> dict[Any, Any]:
        """The number of the pair that is spoken of; no buttons behind the last one."""
        total = len(_pairs(album))
        more = place < total
        number = f"<span>pair {place + 1} of {total}</span>" if more else ""
        return {
            row: gr.Row(visible=total > 0),
            pair: number,
            left: gr.Button(visible=more),
            right: gr.Button(visible=more),
        }

    def begin(album: Album | None) -> dict[Any, Any]:
        return {at: 0, said: ""} | shown(album, 0)

    outputs = [row, pair, left, right, said, at]
    for button, side in ((left, 0), (right, 1)):
        button.click(choice(side), [stage.album, at, desk.guest], outputs, **QUIET)
    first = {"fn": begin, "inputs": stage.album, "outputs": outputs, "queue": False}
    return {**first, **QUIET}


def _pairs(album: Album | None) -> list[tuple[str, str]]:
    """Paths of the pictures of the same seed on both sides."""
    if album is None or album.request is None or album.request.kind not in ("compare", "guide"):
        return []
    first, second = (album.arms.get(arm, []) for arm in SIDES[album.request.kind])
    by_seed = {picture.seed: picture.path for picture in second}
    return [(p.path, by_seed[p.seed]) for p in first if p.seed in by_seed]


def _opened(path: str) -> Image.Image:
    with Image.open(path) as picture:
        return picture.convert("RGB")


def _said(state: TasteState) -> str:
    return note_line(state.said)
