"""The tab "History": what was drawn, its recipe, and what can be done with it; a picture that is
dropped here brings its recipe back. What is known of the user's taste can be forgotten here, too.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from t2x.errors import T2XError
from t2x.evaluation.html import escaped
from t2x.memory.machine import readable_bytes
from t2x.studio.history_zip import zip_history

from .desk import FAST, QUIET, Desk, user_of
from .history_parts import HistoryParts, forget_copies, layout, listed
from .history_picture import kept_detail, wire_picture
from .live import note_line

__all__ = ["tab"]


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="history", elem_classes="t2x-page"):
        parts = layout()
    _wire_listing(desk, parts)
    _wire_selecting(desk, parts)
    _wire_zips(desk, parts)
    _wire_deleting(desk, parts)
    _wire_taste(desk, parts)
    wire_picture(desk, parts)


def _found(
    desk: Desk, parts: HistoryParts, user: str, words: str, only: bool, page: int, marked: list[str]
) -> dict[Any, Any]:
    """What shows a page of what is searched for; T2XError is told in its place."""
    try:
        found = desk.history.page(user, number=int(page), words=words or "", favourites=only)
    except T2XError as error:
        return {parts.said: note_line(str(error), problem=True)}
    searched = bool((words or "").strip() or only)
    return listed(desk, parts, found, searched=searched, marked=marked)


def _wire_listing(desk: Desk, parts: HistoryParts) -> None:
    inputs = [*parts.view, desk.guest]

    def show(
        words: str, only: bool, page: int, marked: list[str], guest: Any, request: gr.Request
    ) -> Any:
        return _found(desk, parts, user_of(guest, request), words, only, page, marked)

    wiring: dict[str, Any] = {"outputs": parts.listing, **FAST}
    fresh = [parts.words, parts.favourites, gr.State(0), parts.marked, desk.guest]
    gr.on([parts.words.change, parts.favourites.change], show, fresh, **wiring)
    gr.on([desk.tabs.select, parts.drop.clear], show, inputs, **wiring)

    def stepping(step: int) -> Any:
        def move(
            words: str, only: bool, page: int, marked: list[str], guest: Any, request: gr.Request
        ) -> Any:
            return show(words, only, int(page) + step, marked, guest, request)

        return move

    for button, step in ((parts.before, -1), (parts.after, 1)):
        button.click(stepping(step), inputs, **wiring)


def _wire_selecting(desk: Desk, parts: HistoryParts) -> None:
    """A click shows a picture, or while several are being selected takes it in or out."""

    def select(
        ids: list[str], selecting: bool, words: str, only: bool, page: int, marked: list[str],
        guest: Any, event: gr.SelectData, request: gr.Request,
    ) -> Any:  # fmt: skip
        user = user_of(guest, request)
        try:
            id = ids[int(event.index)]
            if not selecting:
                return kept_detail(desk, parts, user, desk.history.get(user, id))
        except (T2XError, IndexError, TypeError) as error:
            return {parts.said: note_line(str(error), problem=True)}
        changed = [other for other in marked if other != id] if id in marked else [*marked, id]
        return _found(desk, parts, user, words, only, page, changed)

    inputs = [parts.ids, parts.selecting, *parts.view, desk.guest]
    outputs = list(dict.fromkeys([*parts.detail, *parts.listing]))
    parts.gallery.select(select, inputs, outputs, **FAST)

    def switch(
        words: str, only: bool, page: int, marked: list[str], guest: Any, request: gr.Request
    ) -> Any:
        closed = {parts.chosen: gr.Column(visible=False), parts.picked: None}
        return _found(desk, parts, user_of(guest, request), words, only, page, []) | closed

    changed = [*parts.listing, parts.chosen, parts.picked]
    parts.selecting.change(switch, [*parts.view, desk.guest], changed, **FAST)


def _wire_zips(desk: Desk, parts: HistoryParts) -> None:
    def zipped(ids: list[str] | None, guest: Any, request: gr.Request) -> Any:
        try:
            path = zip_history(desk.history, user_of(guest, request), ids)
        except T2XError as error:
            return {parts.said: note_line(str(error), problem=True)}
        label = f"Download the zip ({readable_bytes(path.stat().st_size)})"
        return {parts.everything: gr.DownloadButton(label, value=str(path), visible=True)}

    def all_zipped(guest: Any, request: gr.Request) -> Any:
        return zipped(None, guest, request)

    both = [parts.everything, parts.said]
    parts.zip.click(all_zipped, desk.guest, both, **QUIET)
    parts.zip_found.click(zipped, [parts.ids, desk.guest], both, **QUIET)
    parts.zip_marked.click(zipped, [parts.marked, desk.guest], both, **QUIET)


def _wire_deleting(desk: Desk, parts: HistoryParts) -> None:
    """Of several pictures: those that are selected, those whose files are gone, all."""
    inputs = [parts.marked, parts.gone, parts.words, parts.favourites, parts.page, desk.guest]
    outputs = [*parts.listing, parts.chosen, parts.picked]

    def deleted(ids: list[str] | None, user: str, *view: Any) -> dict[Any, Any]:
        """Delete them and show what is left; ``view`` is words, favourites and page."""
        every = [kept.id for kept in desk.history.each(user)] if ids is None else ids
        number = desk.history.delete(user, ids)
        forget_copies(parts, every)
        closed = {parts.chosen: gr.Column(visible=False), parts.picked: None}
        words, only, page = view
        left = _found(desk, parts, user, words, only, page, []) | closed
        return left | {parts.said: f"{note_line(f'{_number(number)} deleted.')}{left[parts.said]}"}

    def count_marked(marked: list[str], *given: Any) -> str:
        if not marked:
            raise T2XError("select pictures first")
        return f"Really delete {_number(len(marked))}"

    def delete_marked(marked: list[str], gone: Any, *given: Any) -> dict[Any, Any]:
        *view, guest, request = given
        return deleted(marked, user_of(guest, request), *view)

    parts.delete_marked.wire(count_marked, delete_marked, inputs, outputs, parts.said)

    def count_all(*given: Any) -> str:
        total = desk.history.page(user_of(given[-2], given[-1]), size=1).total
        if not total:
            raise T2XError("there is nothing to delete")
        return f"Really delete all {_number(total)}"

    def delete_all(marked: Any, gone: Any, *given: Any) -> dict[Any, Any]:
        *view, guest, request = given
        return deleted(None, user_of(guest, request), *view)

    parts.delete_all.wire(count_all, delete_all, inputs, outputs, parts.said)

    def clean(
        marked: list[str], gone: list[str], words: str, only: bool, page: int, guest: Any,
        request: gr.Request,
    ) -> Any:  # fmt: skip
        try:
            return deleted(gone, user_of(guest, request), words, only, page)
        except T2XError as error:
            return {parts.said: note_line(str(error), problem=True)}

    parts.lost.click(clean, inputs, outputs, **FAST)


def _number(pictures: int) -> str:
    return "1 picture" if pictures == 1 else f"{pictures} pictures"


def _wire_taste(desk: Desk, parts: HistoryParts) -> None:
    def shown(guest: Any, request: gr.Request) -> dict[Any, Any]:
        try:
            state = desk.tastes.state(user_of(guest, request))
        except T2XError as error:
            return {parts.taste: note_line(str(error), problem=True)}
        said = f"{state.counted} kept. {state.said}" if state.clicks else ""
        return {parts.taste: escaped(said), **parts.forget.ready(visible=bool(state.clicks))}

    outputs = [parts.taste, *parts.forget.buttons]
    desk.tabs.select(shown, desk.guest, outputs, **FAST)

    def count(guest: Any, request: gr.Request) -> str:
        state = desk.tastes.state(user_of(guest, request))
        return f"Really forget {state.counted}"

    def forget(guest: Any, request: gr.Request) -> dict[Any, Any]:
        desk.tastes.forget(user_of(guest, request))
        return shown(guest, request) | {parts.taste: "Your taste is forgotten."}

    parts.forget.wire(count, forget, [desk.guest], outputs, parts.taste)
