"""What the tab "History" is made of: its components, their layout, and the list that they show."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from t2x.evaluation.html import escaped
from t2x.studio.history import Kept, Page

from .bars import ARMS
from .confirming import Confirm, confirm_button
from .desk import Desk

__all__ = ["HistoryParts", "forget_copies", "layout", "listed", "marks"]


@dataclass
class HistoryParts:
    """The components of the tab."""

    words: gr.Textbox
    favourites: gr.Checkbox
    selecting: gr.Checkbox
    said: gr.HTML
    lost: gr.Button
    gallery: gr.Gallery
    pager: gr.Row
    before: gr.Button
    after: gr.Button
    place: gr.HTML
    marking: gr.Row
    marked_said: gr.HTML
    zip_marked: gr.Button
    delete_marked: Confirm
    everything: gr.DownloadButton
    zip: gr.Button
    zip_found: gr.Button
    delete_all: Confirm
    taste: gr.HTML
    forget: Confirm
    drop: gr.File
    chosen: gr.Column
    shown: gr.Image
    about: gr.HTML
    recipe: gr.JSON
    again: gr.Button
    form: gr.Button
    edit: gr.Button
    mark: gr.Button
    delete: Confirm
    png: gr.DownloadButton
    beside: gr.DownloadButton
    status: gr.HTML
    result: gr.Gallery
    ids: gr.State
    gone: gr.State
    page: gr.State
    picked: gr.State
    marked: gr.State

    @property
    def listing(self) -> list[Any]:
        """What shows a page of the history."""
        return [self.said, self.lost, self.gallery, self.pager, self.place, self.before, self.after,
                self.ids, self.gone, self.page, self.everything, self.marking, self.marked_said,
                self.marked, *self.delete_marked.buttons]  # fmt: skip

    @property
    def detail(self) -> list[Any]:
        """What shows one picture."""
        return [self.chosen, self.shown, self.about, self.recipe, self.again, self.form, self.edit,
                self.mark, *self.delete.buttons, self.png, self.beside, self.status, self.result,
                self.picked]  # fmt: skip

    @property
    def view(self) -> list[Any]:
        """What says which page is shown: inputs of whatever changes it."""
        return [self.words, self.favourites, self.page, self.marked]


def layout() -> HistoryParts:
    """Lay the tab out."""
    parts: dict[str, Any] = {}
    with gr.Row(elem_classes="box"):
        parts["words"] = gr.Textbox(
            label="Search", show_label=False, container=False, placeholder="Search",
            elem_id="history-words", scale=1, min_width=100,
        )  # fmt: skip
        for name, label in (("favourites", "Favourites"), ("selecting", "Select")):
            parts[name] = gr.Checkbox(
                False, label=label, container=False, elem_id=f"history-{name}",
                elem_classes="beside", scale=0, min_width=80,
            )  # fmt: skip
    parts["said"] = gr.HTML(elem_id="history-said")
    with gr.Row(elem_classes="tools"):
        parts["lost"] = gr.Button(
            "Take what is gone off the list", size="sm", elem_id="history-lost", scale=0,
            visible=False,
        )  # fmt: skip
    with gr.Row(visible=False, elem_classes="tools", elem_id="history-marking") as parts["marking"]:
        parts["marked_said"] = gr.HTML(elem_id="history-marked", elem_classes="beside")
        parts["zip_marked"] = gr.Button(
            "Zip of these", size="sm", elem_id="history-zip-marked", scale=0
        )
        parts["delete_marked"] = confirm_button("Delete these", "history-delete-marked")
    parts["gallery"] = gr.Gallery(
        label="Pictures", show_label=False, elem_id="history-gallery", columns=6, height="auto",
        object_fit="contain", interactive=False, allow_preview=False, container=False, buttons=[],
    )  # fmt: skip
    with gr.Row(visible=False, elem_classes="tools", elem_id="history-pager") as parts["pager"]:
        parts["before"] = gr.Button("Newer", size="sm", elem_id="history-newer", scale=0)
        parts["place"] = gr.HTML(elem_id="history-place", elem_classes="beside")
        parts["after"] = gr.Button("Older", size="sm", elem_id="history-older", scale=0)
    _layout_picture(parts)
    _layout_everything(parts)
    parts["drop"] = gr.File(
        label="Drop a picture for its recipe",
        file_count="single", type="filepath", elem_id="history-drop", height=150,
    )  # fmt: skip
    parts |= {"ids": gr.State([]), "gone": gr.State([]), "page": gr.State(0)}
    return HistoryParts(**parts, picked=gr.State(None), marked=gr.State([]))


def _layout_everything(parts: dict[str, Any]) -> None:
    with gr.Row(elem_classes="tools"):
        parts["zip"] = gr.Button("Zip of everything", size="sm", elem_id="history-zip", scale=0)
        parts["zip_found"] = gr.Button(
            "Zip of what is shown", size="sm", elem_id="history-zip-found", scale=0
        )
        parts["everything"] = gr.DownloadButton(
            "Download the zip", size="sm", elem_id="history-zip-file", visible=False, scale=0
        )
        parts["delete_all"] = confirm_button("Delete everything", "history-delete-all")
    with gr.Row(elem_classes="tools", elem_id="taste"):
        parts["taste"] = gr.HTML(elem_id="taste-said")
        parts["forget"] = confirm_button("Forget my taste", "taste-forget", visible=False)


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
                        ("mark", "Favourite"),
                    ):  # fmt: skip
                        parts[name] = gr.Button(
                            label, size="sm", elem_id=f"history-{name}", scale=0
                        )
                    parts["delete"] = confirm_button("Delete", "history-delete")
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


def listed(
    desk: Desk, parts: HistoryParts, page: Page, *, searched: bool, marked: Collection[str] = ()
) -> dict[Any, Any]:
    """What shows a page, with the pictures that are ``marked``."""
    there = [kept for kept in page.items if not kept.problem]
    lost = [kept for kept in page.items if kept.problem]
    lines = [escaped(text) for text in desk.history.problems]
    lines += [f"{escaped(kept.recipe.prompt[:80])}: {kept.problem}" for kept in lost]
    if not page.total:
        found = "Nothing was found." if searched else "What you draw is kept here."
        lines.insert(0, found)
    items = [(str(kept.path), _caption(kept, marked)) for kept in there]
    return {
        parts.said: "".join(f'<p class="t2x-status note">{line}</p>' for line in lines),
        parts.lost: gr.Button(visible=bool(lost)),
        parts.gallery: gr.Gallery(items, selected_index=None, visible=bool(items)),
        parts.pager: gr.Row(visible=page.pages > 1),
        parts.place: f"{page.number + 1} of {page.pages}",
        parts.before: gr.Button(interactive=page.number > 0),
        parts.after: gr.Button(interactive=page.number + 1 < page.pages),
        parts.ids: [kept.id for kept in there],
        parts.gone: [kept.id for kept in lost],
        parts.page: page.number,
        parts.everything: gr.DownloadButton(visible=False),
        **marks(parts, marked),
    }


def marks(parts: HistoryParts, marked: Collection[str]) -> dict[Any, Any]:
    """What tells how many pictures are selected."""
    return {
        parts.marked: list(marked),
        parts.marking: gr.Row(visible=bool(marked)),
        parts.marked_said: f"{len(marked)} selected",
        **parts.delete_marked.ready(),
    }


def _caption(kept: Kept, marked: Collection[str]) -> str:
    signs = ("✓ " if kept.id in marked else "") + ("♥ " if kept.favourite else "")
    arm = ARMS.get(kept.arm, kept.arm)
    seed = f"seed {kept.recipe.seed}"
    return f"{signs}{arm}, {seed}\n{kept.recipe.prompt[:120]}" if arm else f"{signs}{seed}"


def forget_copies(parts: HistoryParts, ids: Iterable[str] | None) -> None:
    """Delete gradio's copies of pictures that the history has deleted, and of their recipes; of one
    user's pictures (``ids``), None is nobody's."""
    wanted = set(ids or ())
    for shows in (parts.gallery, parts.shown, parts.png, parts.beside, parts.everything):
        for copy in list(shows.temp_files):
            if any(id in Path(copy).name for id in wanted):
                with suppress(OSError):
                    Path(copy).unlink()
                shows.temp_files.discard(copy)
