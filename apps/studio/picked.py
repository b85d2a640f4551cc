"""The picture that is selected: what the rewards say of it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from t2x.evaluation.html import escaped

from .album import Album, Picture
from .bars import number
from .desk import FAST, Desk

__all__ = ["Picked", "picked_bar", "wire_picked"]


@dataclass
class Picked:
    """The components of the bar."""

    bar: gr.Column
    about: gr.HTML
    video: gr.DownloadButton
    png: gr.DownloadButton
    recipe: gr.DownloadButton
    edit: gr.Button
    shows: gr.State
    path: gr.State

    @property
    def outputs(self) -> list[Any]:
        """What a selection changes."""
        files = [self.video, self.png, self.recipe]
        return [self.bar, self.about, *files, self.shows, self.path]

    def cleared(self) -> dict[Any, Any]:
        """Nothing is selected."""
        return {self.bar: gr.Column(visible=False), self.path: None}

    def selected(self, album: Album, picture: Picture) -> dict[Any, Any]:
        """One picture is selected."""
        return {
            self.bar: gr.Column(visible=True),
            self.about: about_html(album, picture),
            self.video: gr.DownloadButton(value=picture.video or None, visible=bool(picture.video)),
            self.png: gr.DownloadButton(
                "PNG with its recipe" if picture.video else "Download", value=picture.path
            ),
            self.recipe: gr.DownloadButton(value=picture.recipe),
            self.shows: picture.text,
            self.path: picture.path,
        }


def picked_bar(desk: Desk, *, prefix: str = "") -> Picked:
    """Lay the bar out. To that of the Create tab, which has no ``prefix``, other tabs may add
    (``desk.picked_tools``)."""
    with gr.Column(visible=False, elem_id=f"{prefix}picked", elem_classes="picked") as bar:
        about = gr.HTML(elem_id=f"{prefix}picked-about")
        row = gr.Row(elem_classes="tools") if prefix else desk.picked_tools.render()
        with row:
            video = gr.DownloadButton(
                "Download", size="sm", elem_id=f"{prefix}download-video", visible=False, scale=0
            )
            png = gr.DownloadButton("Download", size="sm", elem_id=f"{prefix}download-png", scale=0)
            recipe = gr.DownloadButton(
                "Recipe (JSON)", size="sm", elem_id=f"{prefix}download-json", scale=0
            )
            edit = gr.Button("Edit this", size="sm", elem_id=f"{prefix}edit-this", scale=0)
        path = gr.State(None) if prefix else desk.picked
    return Picked(bar, about, video, png, recipe, edit, gr.State(""), path)


def about_html(album: Album, picture: Picture) -> str:
    """Which picture it is and its rewards, one after the other."""
    values = "".join(
        f"<span>{escaped(name)} <b>{number(value)}</b></span>"
        for name, value in album.values(picture).items()
    )
    return f'<p class="t2x-picked"><b>{escaped(album.title(picture))}</b>{values}</p>'


def wire_picked(
    desk: Desk,
    picked: Picked,
    album: gr.State,
    galleries: Mapping[gr.Gallery, int],
    arm_of: Callable[[Album, int], str],
) -> None:
    """Fill the bar when a picture of a gallery is selected (``galleries``: side of each)."""

    def selecting(side: int) -> Callable[..., Any]:
        def select(shown: Album | None, event: gr.SelectData) -> Any:
            pictures = [] if shown is None else shown.placed(arm_of(shown, side))
            index = event.index if isinstance(event.index, int) else -1
            if shown is None or not 0 <= index < len(pictures):
                return {picked.bar: gr.skip()}
            return picked.selected(shown, pictures[index])

        return select

    for gallery, side in galleries.items():
        gallery.select(selecting(side), album, picked.outputs, **FAST)

    def hand_over(path: str | None, shows: str) -> dict[Any, Any]:
        if not path or not Path(path).is_file():  # another job has begun meanwhile
            return {desk.tabs: gr.skip()}
        return desk.to_edit(path, shows)

    picked.edit.click(
        hand_over,
        [picked.path, picked.shows],
        desk.handed,
        **FAST,
    )
