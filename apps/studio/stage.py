"""Where a job is seen: its line, its pictures in two arms, what the rewards say, the picture that
is selected. The Create and the Edit tab have one each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.evaluation.html import escaped
from t2x.studio.events import (
    LAST,
    Drawn,
    Event,
    Failed,
    Finished,
    GuidanceStep,
    Progress,
    Scored,
)
from t2x.studio.requests import CompareRequest, Request

from .album import BY_SEED, Album
from .bars import bars_html
from .desk import FAST, QUIET, Desk, page_of, user_of
from .live import Pace, curves_html, note_line, status_line, strip_html
from .picked import Picked, picked_bar, wire_picked

__all__ = ["Show", "Stage", "pictures_area", "wire_stage"]

# Arms that are shown side by side, by kind of request.
SIDES = {
    "compare": ("original", "rewritten"),
    "guide": ("plain", "guided"),
    "edit": ("source", "edited"),
}


@dataclass
class Stage:
    """The components. ``prefix`` begins their ids: two stages of a page may be at work at once."""

    prefix: str
    draw: gr.Button
    stop: gr.Button
    status: gr.HTML
    live: gr.HTML
    left_title: gr.HTML
    left: gr.Gallery
    right_column: gr.Column
    right_title: gr.HTML
    right: gr.Gallery
    tools: gr.Row
    sort: gr.Dropdown
    bars: gr.HTML
    picked: Picked
    album: gr.State

    def page(self, request: gr.Request) -> str:
        """Names this stage of one open page, for ``Desk.run`` and ``Desk.stop``."""
        return page_of(request, f"{self.prefix}stage")

    @property
    def outputs(self) -> list[Any]:
        """What a job may change."""
        shown = [self.draw, self.stop, self.status, self.live, self.left_title, self.left]
        shown += [self.right_column, self.right_title, self.right, self.tools, self.sort]
        return [*shown, self.bars, self.album, *self.picked.outputs]


def pictures_area(
    desk: Desk, *, prefix: str, draw: gr.Button, stop: gr.Button, status: gr.HTML, tools: gr.Row
) -> Stage:
    """Lay out pictures and rewards; ``prefix`` begins the ids of the components, ``tools`` is the
    row that appears with the pictures."""
    parts: dict[str, Any] = {}
    with tools:
        parts["sort"] = gr.Dropdown(
            _orders([]),
            value=BY_SEED,
            label="Order of the pictures",
            show_label=False,
            container=False,
            elem_id=f"{prefix}sort",
            elem_classes="sort",
            visible=False,
            scale=0,
            min_width=180,
        )
    parts["live"] = gr.HTML(elem_id=f"{prefix}live", visible=False)
    with gr.Row(elem_classes="arms"):
        with gr.Column(min_width=140):
            parts["left_title"] = gr.HTML(elem_id=f"{prefix}left-title")
            parts["left"] = _gallery(f"{prefix}gallery-left")
        with gr.Column(min_width=140, visible=False) as parts["right_column"]:
            parts["right_title"] = gr.HTML(elem_id=f"{prefix}right-title")
            parts["right"] = _gallery(f"{prefix}gallery-right")
    parts["picked"] = picked_bar(desk, prefix=prefix)
    parts["bars"] = gr.HTML(elem_id=f"{prefix}bars", visible=False)
    parts["album"] = gr.State(None, delete_callback=_forget)
    return Stage(prefix, draw=draw, stop=stop, status=status, tools=tools, **parts)


def wire_stage(desk: Desk, stage: Stage) -> None:
    """Sorting, selecting, stopping."""
    stage.sort.input(_sorted, [stage.album, stage.sort], [stage.left, stage.album], **QUIET)
    wire_picked(desk, stage.picked, stage.album, {stage.left: 0, stage.right: 1}, _arm_of)

    def stop(guest: str | None, request: gr.Request) -> None:
        desk.stop(stage.page(request), user=user_of(guest, request))

    stage.stop.click(stop, desk.guest, None, **FAST)


def _gallery(name: str) -> gr.Gallery:
    return gr.Gallery(
        visible=False,
        label="Pictures",
        show_label=False,
        elem_id=name,
        columns=2,
        height="auto",
        object_fit="contain",
        interactive=False,
        buttons=["fullscreen"],
        container=False,
    )


class Show:
    """Turns the events of one job into updates of a stage. What is on it, ``before``, stays until
    the job is in the queue: a request that can't be done costs nothing."""

    def __init__(self, stage: Stage, request: Request, before: Album | None) -> None:
        self.stage, self.before, self.pace = stage, before, Pace()
        self.begun = False
        self.album = Album(request=request)
        self.sides = SIDES.get(request.kind, ())

    def updates(self, events: Iterator[Event]) -> Iterator[tuple[Event, dict[Any, Any]]]:
        """Each event with what it changes."""
        for event in events:
            changes = {}
            if not self.begun and not isinstance(event, Failed):
                changes = self._begin()
            changes |= self._update(event)
            if self.begun and isinstance(event, LAST):
                changes |= self._end()
            yield event, changes

    def _begin(self) -> dict[Any, Any]:
        """The stage as it is when a job starts: empty of what was there."""
        self.begun, stage = True, self.stage
        if self.before is not None:
            self.before.remove()
        return {
            stage.draw: gr.Button(visible=False),
            stage.stop: gr.Button(visible=True),
            stage.status: status_line(Progress("starting", 0, 1)),
            stage.live: gr.HTML("", visible=False),
            stage.tools: gr.Row(visible=False),
            stage.sort: gr.Dropdown(visible=False),
            stage.left_title: "",
            stage.left: gr.Gallery([], visible=False),
            stage.right_column: gr.Column(visible=False),
            stage.right: gr.Gallery([], visible=False),
            stage.bars: gr.HTML("", visible=False),
            stage.album: self.album,
            **stage.picked.cleared(),
        }

    def _update(self, event: Event) -> dict[Any, Any]:
        if isinstance(event, Drawn):
            return self._drawn(event)
        if isinstance(event, GuidanceStep):
            return self._stepped(event)
        if isinstance(event, Scored):
            self.album.scores.append(event)
            against = "what it shall show" if self.sides == SIDES["edit"] else "your own words"
            bars = bars_html(self.album.scores, against=against)
            return {self.stage.bars: gr.HTML(bars, visible=True)}
        if isinstance(event, Finished):
            return self._finished(event)
        if isinstance(event, Progress) and not self.pace.due():
            return {}
        line = status_line(event)
        return {self.stage.status: line} if line else {}

    def _end(self) -> dict[Any, Any]:
        """The buttons as they are when nothing runs."""
        stage = self.stage
        return {
            stage.draw: gr.Button(visible=True),
            stage.stop: gr.Button(visible=False),
            stage.tools: gr.Row(visible=bool(self.album.arms)),
            stage.album: self.album,
        }

    def _drawn(self, event: Drawn) -> dict[Any, Any]:
        stage, arm = self.stage, event.arm
        self.album.add(event)
        shown = gr.Gallery(
            self.album.gallery(arm), columns=self._columns(), visible=True, selected_index=None
        )
        words = escaped(str(event.recipe.get("text", "")))  # page.js names the pictures by them
        title = f'<h3 class="arm" data-words="{words}">{escaped(self.album.arm_title(arm))}</h3>'
        if self.sides and arm == self.sides[1]:
            return {
                stage.right: shown,
                stage.right_column: gr.Column(visible=True),
                stage.right_title: title,
            }
        return {stage.left: shown, stage.left_title: title}

    def _columns(self) -> int:
        """Of a gallery: two of each side where there are two, else a row of up to four."""
        album, num = self.album, int(getattr(self.album.request, "num", 1))
        if self.sides and not self._alone():
            return 1 if num == 1 else 2
        return max(2, min(4, num)) if album.arms else 2

    def _alone(self) -> bool:
        """Whether the arm on the left has no other: the rewrite was not used, or none asked for."""
        request = self.album.request
        if not isinstance(request, CompareRequest) or request.text is not None:
            return False
        rewrite = self.album.rewrite
        return not request.rewrite or (rewrite is not None and not rewrite.changed)

    def _stepped(self, event: GuidanceStep) -> dict[Any, Any]:
        self.album.step(event)
        if not self.pace.due() and event.step + 1 < event.steps:
            return {}
        steps = self.album.steps
        both = f'<div class="t2x-live">{strip_html(steps)}{curves_html(steps)}</div>'
        return {self.stage.live: gr.HTML(both, visible=True)}

    def _finished(self, event: Finished) -> dict[Any, Any]:
        stage, album = self.stage, self.album
        seconds = event.entry.seconds.get("total", 0.0)
        said = {
            stage.status: note_line(
                " ".join([f"Done in {seconds:.1f} s.", *event.entry.notes, album.note]).strip()
            )
        }
        if self.sides or not album.arms:
            columns = gr.Gallery(columns=self._columns())
            return said | ({stage.left: columns} if len(album.arms) == 1 else {})
        best = next(iter(album.measured()), BY_SEED)
        album.sort(best)
        (arm,) = album.arms
        return said | {
            stage.sort: gr.Dropdown(_orders(album.measured()), value=best, visible=True),
            stage.left: gr.Gallery(album.gallery(arm, by=best)),
        }


def _orders(rewards: list[str]) -> list[tuple[str, str]]:
    return [*((f"Best {name} first", name) for name in rewards), ("In order of seeds", BY_SEED)]


def _sorted(album: Album | None, by: str) -> tuple[Any, Any]:
    if album is None or len(album.arms) != 1:
        return gr.skip(), gr.skip()
    album.sort(by)
    (arm,) = album.arms
    return gr.Gallery(album.gallery(arm, by=by), selected_index=None), album


def _arm_of(album: Album, side: int) -> str:
    """The arm that a side of the stage shows."""
    kind = "" if album.request is None else album.request.kind
    if kind in SIDES:
        return SIDES[kind][side]
    return next(iter(album.arms), "original")


def _forget(album: Album | None) -> None:
    if album is not None:
        album.remove()
