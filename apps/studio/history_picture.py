"""One picture of the tab "History": its recipe, and what can be done with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from t2x.errors import T2XError
from t2x.evaluation.html import escaped
from t2x.studio.events import Cancelled, Drawn, Failed, Finished
from t2x.studio.history import Kept
from t2x.studio.history_zip import json_beside
from t2x.studio.recipes import Recipe
from t2x.studio.redrawing import draw_again
from t2x.studio.uploads import read_dropped

from .bars import ARMS, number
from .desk import FAST, QUIET, Desk, page_of, user_of
from .filling import filled, form_boxes
from .history_parts import HistoryParts, forget_copies, listed
from .live import Pace, note_line, status_line

__all__ = ["kept_detail", "wire_picture"]

_KEPT, _DROPPED = "kept", "dropped"


def _detail(
    parts: HistoryParts, path: str | None, recipe: Recipe | None, about: str, **changes: Any
) -> dict[Any, Any]:
    """What shows one picture; without a ``path`` its recipe alone."""
    return {
        parts.chosen: gr.Column(visible=True),
        parts.shown: path,
        parts.about: about,
        parts.recipe: {} if recipe is None else recipe.record(),
        parts.again: gr.Button(visible=bool(changes.get("again"))),
        parts.form: gr.Button(visible=recipe is not None),
        parts.mark: gr.Button(changes.get("mark", ""), visible="mark" in changes),
        parts.edit: gr.Button(visible=path is not None),
        **parts.delete.ready(visible="mark" in changes),
        parts.png: gr.DownloadButton(value=path, visible="mark" in changes and path is not None),
        parts.beside: gr.DownloadButton(value=changes.get("beside"), visible="beside" in changes),
        parts.status: changes.get("said", ""),
        parts.result: gr.Gallery([], visible=False),
        parts.picked: changes["picked"],
    }


def kept_detail(desk: Desk, parts: HistoryParts, user: str, kept: Kept) -> dict[Any, Any]:
    """What shows a picture of the history; of one whose file is gone or damaged its recipe."""
    changes: dict[str, Any] = {"again": True, "picked": (_KEPT, kept.id)}
    changes["mark"] = "Not a favourite" if kept.favourite else "Favourite"
    if kept.problem:
        changes["said"] = note_line(f"{kept.problem}; its recipe can draw it again", problem=True)
    try:
        changes["beside"] = str(json_beside(desk.history, user, kept))
    except T2XError as error:
        changes["said"] = note_line(str(error), problem=True)
    path = None if kept.problem else str(kept.path)
    return _detail(parts, path, kept.recipe, _about(kept), **changes)


def _about(kept: Kept) -> str:
    """Words, seed, model and rewards of a picture; everything in it may be a stranger's."""
    recipe = kept.recipe
    made = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.made))
    facts = [f"seed {recipe.seed}", recipe.model, ARMS.get(kept.arm, kept.arm), made]
    scores = "".join(
        f"<span>{escaped(name)} <b>{number(value)}</b></span>"
        for name, value in kept.scores.items()
        if value is not None
    )
    changed = recipe.text != recipe.prompt
    drawn = f"<p><small>drawn from</small> {escaped(recipe.text)}</p>" if changed else ""
    return (
        f'<div class="t2x-recipe"><p><b>{escaped(recipe.prompt)}</b></p>{drawn}'
        f"<p><small>{escaped(' · '.join(filter(None, facts)))}</small></p>"
        f'<p class="t2x-picked">{scores}</p></div>'
    )


def wire_picture(desk: Desk, parts: HistoryParts) -> None:
    """Pictures that are dropped, and all that can be done with the one that is shown."""
    outputs = [*parts.detail, parts.said]

    def dropped(path: str | None) -> Any:
        if not path:
            return {parts.chosen: gr.Column(visible=False)}
        try:
            found = read_dropped(path, name=Path(path).name)
        except T2XError as error:
            return {
                parts.said: note_line(str(error), problem=True),
                parts.chosen: gr.Column(visible=False),
            }
        recipe = found.recipe
        words = "" if recipe is None else f"<p><b>{escaped(recipe.prompt)}</b></p>"
        about = f'<div class="t2x-recipe">{words}<p>{escaped(found.said)}</p></div>'
        ours = found.tool == "t2x"
        changes = {"again": ours, "picked": (_DROPPED, path)}
        return _detail(parts, path, recipe, about, **changes) | {parts.said: ""}

    parts.drop.upload(dropped, parts.drop, outputs, **QUIET)
    _wire_doing(desk, parts)
    _wire_keeping(desk, parts)


def _loaded(desk: Desk, picked: Any, user: str) -> tuple[Image.Image | None, Recipe | None]:
    """Pixels and recipe of the picture that is picked; no pixels of one whose file is gone. Raises
    T2XError if there is neither."""
    if not picked:
        raise T2XError("choose a picture first")
    kind, name = picked
    if kind == _DROPPED:
        found = read_dropped(name, name=Path(name).name)
        return found.picture, found.recipe
    kept = desk.history.get(user, name)
    return (None if kept.problem else read_dropped(kept.path).picture), kept.recipe


def _source(desk: Desk, recipe: Recipe, user: str) -> Image.Image | None:
    """What an edit starts from: from the history, else what the Edit tab can't know."""
    digest = str(recipe.source.get("digest", ""))
    return desk.history.source(user, digest) if digest else None


def _drawn_again(
    desk: Desk, parts: HistoryParts, picked: Any, user: str, *, page: str
) -> Iterator[dict[Any, Any]]:
    """Draw a picture from its recipe, and say whether it is the same."""
    try:
        expected, recipe = _loaded(desk, picked, user)
        if recipe is None:
            raise T2XError("there is no recipe to draw it from")
        known = None if recipe.kind == "sheet" else expected
        task = draw_again(recipe, picture=_source(desk, recipe, user), expected=known)
    except T2XError as error:
        yield {parts.status: note_line(str(error), problem=True)}
        return
    drawn: list[Image.Image] = []
    pace = Pace()
    for event in desk.run(task, user=user, page=page):
        if isinstance(event, Drawn):
            drawn.append(event.picture)
            yield {parts.result: gr.Gallery(drawn, visible=True)}
        elif isinstance(event, Finished):
            same = {True: "The same picture, to the byte.", None: "Drawn again."}
            said = same.get(event.entry.answer, "Drawn again; it differs from the one before.")
            yield {parts.status: note_line(" ".join([said, *event.entry.notes]))}
        elif isinstance(event, Failed | Cancelled) or pace.due():
            yield {parts.status: status_line(event) or gr.skip()}


def _wire_doing(desk: Desk, parts: HistoryParts) -> None:
    def again(picked: Any, guest: Any, request: gr.Request) -> Iterator[Any]:
        user = user_of(guest, request)
        yield from _drawn_again(desk, parts, picked, user, page=page_of(request, "history"))

    one = [parts.picked, desk.guest]
    parts.again.click(again, one, [parts.status, parts.result], concurrency_limit=None, **QUIET)

    def hand_over(picked: Any, guest: Any, request: gr.Request) -> Any:
        try:
            picture, recipe = _loaded(desk, picked, user_of(guest, request))
        except T2XError as error:
            return {parts.status: note_line(str(error), problem=True)}
        return desk.to_edit(picture, "" if recipe is None else recipe.text)

    parts.edit.click(hand_over, one, [*desk.handed, parts.status], **FAST)

    def fill(picked: Any, guest: Any, request: gr.Request) -> Any:
        try:
            user = user_of(guest, request)
            _, recipe = _loaded(desk, picked, user)
            if recipe is None:
                return {parts.status: gr.skip()}
            return filled(desk, recipe, user=user)
        except T2XError as error:
            return {parts.status: note_line(str(error), problem=True)}

    parts.form.click(fill, one, [*form_boxes(desk), parts.status], **FAST)


def _wire_keeping(desk: Desk, parts: HistoryParts) -> None:
    inputs = [parts.picked, *parts.view, desk.guest]
    outputs = [*parts.listing, *parts.detail]

    def shown(user: str, words: str, only: bool, page: int, marked: list[str]) -> dict[Any, Any]:
        found = desk.history.page(user, number=page, words=words or "", favourites=only)
        return listed(desk, parts, found, searched=bool(words or only), marked=marked)

    def mark(
        picked: Any, words: str, only: bool, page: int, marked: list[str], guest: Any,
        request: gr.Request,
    ) -> Any:  # fmt: skip
        user = user_of(guest, request)
        try:
            kept = desk.history.get(user, picked[1])
            desk.history.set_favourite(user, kept.id, not kept.favourite)
            detail = kept_detail(desk, parts, user, desk.history.get(user, kept.id))
            return shown(user, words, only, page, marked) | detail
        except (T2XError, TypeError) as error:
            return {parts.status: note_line(str(error), problem=True)}

    parts.mark.click(mark, inputs, outputs, **FAST)

    def delete(
        picked: Any, words: str, only: bool, page: int, marked: list[str], guest: Any,
        request: gr.Request,
    ) -> dict[Any, Any]:  # fmt: skip
        if not picked:
            raise T2XError("choose a picture first")
        user, id = user_of(guest, request), picked[1]
        desk.history.delete(user, [id])
        forget_copies(parts, [id])
        left = [other for other in marked if other != id]
        gone = {parts.chosen: gr.Column(visible=False), parts.picked: None}
        found = shown(user, words, only, page, left) | gone
        return found | {parts.said: f"{note_line('1 picture deleted.')}{found[parts.said]}"}

    parts.delete.wire(lambda *given: "Really delete it", delete, inputs, outputs, parts.status)
