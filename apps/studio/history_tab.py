"""The tab "History": what was drawn, its recipe, and what can be done with it; a picture that is
dropped here brings its recipe back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gradio as gr
from PIL import Image

from t2x.errors import T2XError
from t2x.evaluation.html import escaped
from t2x.studio.events import Cancelled, Drawn, Failed, Finished
from t2x.studio.history import Kept, Page
from t2x.studio.history_zip import json_beside, zip_history
from t2x.studio.recipes import Recipe
from t2x.studio.redrawing import draw_again, request_of
from t2x.studio.requests import EditRequest, Sampling, TaskRequest
from t2x.studio.uploads import read_dropped

from .bars import ARMS, number
from .desk import Desk, page_of, user_of
from .live import Pace, note_line, status_line
from .stage import QUIET

__all__ = ["tab"]

_FAST: dict[str, Any] = {"queue": False, **QUIET}
_KEPT, _DROPPED = "kept", "dropped"


@dataclass
class _Parts:
    """The components of the tab."""

    words: gr.Textbox
    favourites: gr.Checkbox
    said: gr.HTML
    gallery: gr.Gallery
    pager: gr.Row
    before: gr.Button
    after: gr.Button
    place: gr.HTML
    everything: gr.DownloadButton
    zip: gr.Button
    zip_found: gr.Button
    drop: gr.File
    chosen: gr.Column
    shown: gr.Image
    about: gr.HTML
    recipe: gr.JSON
    again: gr.Button
    form: gr.Button
    edit: gr.Button
    mark: gr.Button
    delete: gr.Button
    sure: gr.Button
    png: gr.DownloadButton
    beside: gr.DownloadButton
    status: gr.HTML
    result: gr.Gallery
    ids: gr.State
    page: gr.State
    picked: gr.State

    @property
    def listing(self) -> list[Any]:
        """What shows a page of the history."""
        return [self.said, self.gallery, self.pager, self.place, self.before, self.after,
                self.ids, self.page, self.everything]  # fmt: skip

    @property
    def detail(self) -> list[Any]:
        """What shows one picture."""
        return [self.chosen, self.shown, self.about, self.recipe, self.again, self.form, self.mark,
                self.delete, self.sure, self.png, self.beside, self.status, self.result,
                self.picked]  # fmt: skip


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="history", elem_classes="t2x-page"):
        parts = _layout()
    _wire_listing(desk, parts)
    _wire_picture(desk, parts)
    _wire_doing(desk, parts)


def _layout() -> _Parts:
    parts: dict[str, Any] = {}
    with gr.Row(elem_classes="box"):
        parts["words"] = gr.Textbox(
            label="Search", show_label=False, container=False, placeholder="Search by words",
            elem_id="history-words", scale=1, min_width=200,
        )  # fmt: skip
        parts["favourites"] = gr.Checkbox(
            False, label="Favourites", container=False, elem_id="history-favourites", scale=0,
            min_width=110,
        )  # fmt: skip
    parts["said"] = gr.HTML(elem_id="history-said")
    parts["gallery"] = gr.Gallery(
        label="Pictures", show_label=False, elem_id="history-gallery", columns=6, height="auto",
        object_fit="contain", interactive=False, allow_preview=False, container=False, buttons=[],
    )  # fmt: skip
    with gr.Row(visible=False, elem_classes="tools", elem_id="history-pager") as parts["pager"]:
        parts["before"] = gr.Button("Newer", size="sm", elem_id="history-newer", scale=0)
        parts["place"] = gr.HTML(elem_id="history-place")
        parts["after"] = gr.Button("Older", size="sm", elem_id="history-older", scale=0)
    _layout_picture(parts)
    with gr.Row(elem_classes="tools"):
        parts["zip"] = gr.Button("Zip of everything", size="sm", elem_id="history-zip", scale=0)
        parts["zip_found"] = gr.Button(
            "Zip of what is shown", size="sm", elem_id="history-zip-found", scale=0
        )
        parts["everything"] = gr.DownloadButton(
            "Download the zip", size="sm", elem_id="history-zip-file", visible=False, scale=0
        )
    parts["drop"] = gr.File(
        label="A picture whose recipe comes back (also of A1111, ComfyUI, InvokeAI, Fooocus)",
        file_count="single", type="filepath", elem_id="history-drop", height=150,
    )  # fmt: skip
    parts["ids"], parts["page"], parts["picked"] = gr.State([]), gr.State(0), gr.State(None)
    return _Parts(**parts)


def _layout_picture(parts: dict[str, Any]) -> None:
    with gr.Column(visible=False, elem_id="history-picked", elem_classes="picked") as column:
        parts["chosen"] = column
        with gr.Row():
            with gr.Column(scale=1, min_width=200):
                parts["shown"] = gr.Image(
                    label="Picture", show_label=False, elem_id="history-picture", type="filepath",
                    interactive=False, buttons=[], container=False,
                )  # fmt: skip
            with gr.Column(scale=2, min_width=280):
                parts["about"] = gr.HTML(elem_id="history-about")
                with gr.Row(elem_classes="tools"):
                    for name, label in (
                        ("again", "Draw again"), ("form", "Use prompt"), ("edit", "Send to edit"),
                        ("mark", "Favourite"), ("delete", "Delete"), ("sure", "Really delete"),
                    ):  # fmt: skip
                        parts[name] = gr.Button(
                            label, size="sm", elem_id=f"history-{name}", scale=0,
                            visible=name != "sure",
                        )  # fmt: skip
                    parts["png"] = gr.DownloadButton(
                        "Download", size="sm", elem_id="history-png", scale=0
                    )
                    parts["beside"] = gr.DownloadButton(
                        "Recipe (JSON)", size="sm", elem_id="history-json", scale=0
                    )
                parts["status"] = gr.HTML(elem_id="history-status")
                parts["result"] = gr.Gallery(
                    visible=False, label="Drawn again", show_label=False, container=False,
                    elem_id="history-result", columns=4, height="auto", object_fit="contain",
                    interactive=False, buttons=[],
                )  # fmt: skip
        with gr.Accordion("The whole recipe", open=False):
            parts["recipe"] = gr.JSON(show_label=False, elem_id="history-recipe")


# ---- the list -----------------------------------------------------------------------------------


def _listed(desk: Desk, parts: _Parts, page: Page, *, searched: bool) -> dict[Any, Any]:
    """What shows a page."""
    items = [(str(kept.path), _caption(kept)) for kept in page.items if not kept.problem]
    lost = [kept for kept in page.items if kept.problem]
    there = [kept.id for kept in page.items if not kept.problem]
    lines = [escaped(text) for text in desk.history.problems]
    lines += [f"{escaped(kept.recipe.prompt[:80])}: {kept.problem}" for kept in lost]
    if not page.total:
        found = "Nothing was found." if searched else "What you draw is kept here."
        lines.insert(0, found)
    return {
        parts.said: "".join(f'<p class="t2x-status note">{line}</p>' for line in lines),
        parts.gallery: gr.Gallery(items, selected_index=None, visible=bool(items)),
        parts.pager: gr.Row(visible=page.pages > 1),
        parts.place: f"{page.number + 1} of {page.pages}",
        parts.before: gr.Button(interactive=page.number > 0),
        parts.after: gr.Button(interactive=page.number + 1 < page.pages),
        parts.ids: there,
        parts.page: page.number,
        parts.everything: gr.DownloadButton(visible=False),
    }


def _caption(kept: Kept) -> str:
    mark = "♥ " if kept.favourite else ""
    return f"{mark}{kept.recipe.text[:60]}"


def _wire_listing(desk: Desk, parts: _Parts) -> None:
    inputs = [parts.words, parts.favourites, parts.page, desk.guest]

    def show(words: str, only: bool, page: int, guest: Any, request: gr.Request) -> Any:
        try:
            found = desk.history.page(
                user_of(guest, request), number=int(page), words=words or "", favourites=only
            )
        except T2XError as error:
            return {parts.said: note_line(str(error), problem=True)}
        return _listed(desk, parts, found, searched=bool((words or "").strip() or only))

    wiring: dict[str, Any] = {"outputs": parts.listing, **_FAST}
    fresh = [parts.words, parts.favourites, gr.State(0), desk.guest]
    gr.on([parts.words.change, parts.favourites.change], show, fresh, **wiring)
    gr.on([desk.tabs.select, parts.drop.clear], show, inputs, **wiring)
    for button, step in ((parts.before, -1), (parts.after, 1)):
        button.click(_stepping(show, step), inputs, **wiring)

    def zipped(ids: list[str] | None, guest: Any, request: gr.Request) -> Any:
        try:
            path = zip_history(desk.history, user_of(guest, request), ids)
        except T2XError as error:
            return {parts.said: note_line(str(error), problem=True)}
        size = path.stat().st_size / 2**20
        label = f"Download the zip ({size:.1f} MB)"
        return {parts.everything: gr.DownloadButton(label, value=str(path), visible=True)}

    both = [parts.everything, parts.said]

    def all_zipped(guest: Any, request: gr.Request) -> Any:
        return zipped(None, guest, request)

    parts.zip.click(all_zipped, desk.guest, both, **QUIET)
    parts.zip_found.click(zipped, [parts.ids, desk.guest], both, **QUIET)


def _stepping(show: Any, step: int) -> Any:
    def move(words: str, only: bool, page: int, guest: Any, request: gr.Request) -> Any:
        return show(words, only, int(page) + step, guest, request)

    return move


# ---- one picture --------------------------------------------------------------------------------


def _detail(
    parts: _Parts, path: str, recipe: Recipe | None, about: str, **changes: Any
) -> dict[Any, Any]:
    """What shows one picture."""
    return {
        parts.chosen: gr.Column(visible=True),
        parts.shown: path,
        parts.about: about,
        parts.recipe: {} if recipe is None else recipe.record(),
        parts.again: gr.Button(visible=bool(changes.get("again"))),
        parts.form: gr.Button(visible=recipe is not None),
        parts.mark: gr.Button(changes.get("mark", ""), visible="mark" in changes),
        parts.delete: gr.Button(visible="mark" in changes),
        parts.sure: gr.Button(visible=False),
        parts.png: gr.DownloadButton(value=path, visible="mark" in changes),
        parts.beside: gr.DownloadButton(value=changes.get("beside"), visible="beside" in changes),
        parts.status: "",
        parts.result: gr.Gallery([], visible=False),
        parts.picked: changes["picked"],
    }


def _kept_detail(desk: Desk, parts: _Parts, user: str, kept: Kept) -> dict[Any, Any]:
    return _detail(
        parts, str(kept.path), kept.recipe, _about(kept),
        again=True,
        mark="Not a favourite" if kept.favourite else "Favourite",
        beside=str(json_beside(desk.history, user, kept)),
        picked=(_KEPT, kept.id),
    )  # fmt: skip


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


def _wire_picture(desk: Desk, parts: _Parts) -> None:
    def select(ids: list[str], guest: Any, event: gr.SelectData, request: gr.Request) -> Any:
        user = user_of(guest, request)
        try:
            kept = desk.history.get(user, ids[int(event.index)])
            return _kept_detail(desk, parts, user, kept)
        except (T2XError, IndexError, TypeError) as error:
            return {parts.said: note_line(str(error), problem=True)}

    outputs = [*parts.detail, parts.said]
    parts.gallery.select(select, [parts.ids, desk.guest], outputs, **_FAST)

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


def _loaded(desk: Desk, picked: Any, user: str) -> tuple[Image.Image, Recipe | None]:
    """Pixels and recipe of the picture that is picked. Raises T2XError if it is gone."""
    if not picked:
        raise T2XError("choose a picture first")
    kind, name = picked
    if kind == _DROPPED:
        found = read_dropped(name, name=Path(name).name)
        return found.picture, found.recipe
    kept = desk.history.get(user, name)
    return read_dropped(kept.path).picture, kept.recipe


def _source(desk: Desk, recipe: Recipe, user: str) -> Image.Image | None:
    """What an edit starts from: from the history, else what the Edit tab can't know."""
    digest = str(recipe.source.get("digest", ""))
    return desk.history.source(user, digest) if digest else None


def _filled(desk: Desk, recipe: Recipe) -> dict[Any, Any]:
    """The Create tab's boxes as the recipe has them. Of an edit they are left to the model: its
    numbers belong to another method. Raises T2XError for a damaged recipe."""
    changes: dict[Any, Any] = {desk.prompt: recipe.prompt, desk.seed: recipe.seed}
    if desk.settings is None:
        return changes
    sampling, negative = Sampling(), ""
    if recipe.kind != "edit":
        asked = request_of(recipe)
        if not isinstance(asked, EditRequest | TaskRequest):
            sampling, negative = asked.sampling, asked.negative
    facts = desk.studio.state().generator.facts
    if facts.get("modality") != "video":
        sampling = replace(sampling, num_frames=None)
    return changes | desk.settings.filled(sampling, negative if facts.get("negative", True) else "")


def _drawn_again(
    desk: Desk, parts: _Parts, picked: Any, user: str, *, page: str
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


def _wire_doing(desk: Desk, parts: _Parts) -> None:
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
        text = "" if recipe is None else recipe.text
        return {desk.edit_picture: picture, desk.edit_shows: text, desk.tabs: desk.open_tab("edit")}

    given = [desk.edit_picture, desk.edit_shows, desk.tabs, parts.status]
    parts.edit.click(hand_over, one, given, **_FAST)

    def fill(picked: Any, guest: Any, request: gr.Request) -> Any:
        try:
            _, recipe = _loaded(desk, picked, user_of(guest, request))
            if recipe is None:
                return {parts.status: gr.skip()}
            return _filled(desk, recipe) | {desk.tabs: desk.open_tab("create")}
        except T2XError as error:
            return {parts.status: note_line(str(error), problem=True)}

    filled = [*_filled(desk, Recipe("", "")), desk.tabs, parts.status]
    parts.form.click(fill, one, filled, **_FAST)
    _wire_keeping(desk, parts)


def _wire_keeping(desk: Desk, parts: _Parts) -> None:
    inputs = [parts.picked, parts.words, parts.favourites, parts.page, desk.guest]
    outputs = [*parts.listing, *parts.detail]

    def mark(
        picked: Any, words: str, only: bool, page: int, guest: Any, request: gr.Request
    ) -> Any:
        user = user_of(guest, request)
        try:
            kept = desk.history.get(user, picked[1])
            desk.history.set_favourite(user, kept.id, not kept.favourite)
            found = desk.history.page(user, number=page, words=words or "", favourites=only)
            detail = _kept_detail(desk, parts, user, desk.history.get(user, kept.id))
        except (T2XError, TypeError) as error:
            return {parts.status: note_line(str(error), problem=True)}
        return _listed(desk, parts, found, searched=bool(words or only)) | detail

    def delete(
        picked: Any, words: str, only: bool, page: int, guest: Any, request: gr.Request
    ) -> Any:
        user = user_of(guest, request)
        try:
            desk.history.delete(user, [picked[1]])
            found = desk.history.page(user, number=page, words=words or "", favourites=only)
        except (T2XError, TypeError) as error:
            return {parts.status: note_line(str(error), problem=True)}
        gone = {parts.chosen: gr.Column(visible=False), parts.picked: None}
        return _listed(desk, parts, found, searched=bool(words or only)) | gone

    parts.mark.click(mark, inputs, outputs, **_FAST)
    parts.delete.click(
        lambda: (gr.Button(visible=False), gr.Button(visible=True)),
        None,
        [parts.delete, parts.sure],
        **_FAST,
    )
    parts.sure.click(delete, inputs, outputs, **_FAST)
