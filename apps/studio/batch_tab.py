"""The tab "Batch": a file of prompts in, rewrites and pictures out; what was stopped goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from t2x.errors import T2XError
from t2x.evaluation.html import escaped
from t2x.jobs.output import side_files
from t2x.studio.batches import Batch, BatchState
from t2x.studio.events import LAST, Cancelled, Finished
from t2x.studio.requests import TaskRequest

from .confirming import Confirm, confirm_button
from .desk import FAST, QUIET, Desk, page_of, user_of
from .live import Pace, note_line, status_line
from .words import STATUS

__all__ = ["tab"]

SHOWN = 12  # rewrites in the table


@dataclass
class _Parts:
    """The components of the tab."""

    file: gr.File
    column: gr.Dropdown
    num: gr.Number
    seed: gr.Number
    add: gr.Button
    chosen: gr.Dropdown
    start: gr.Button
    draw: gr.Button
    stop: gr.Button
    delete: Confirm
    status: gr.HTML
    said: gr.HTML
    table: gr.HTML
    gallery: gr.Gallery
    jsonl: gr.DownloadButton
    errors: gr.DownloadButton
    zip: gr.Button
    zip_file: gr.DownloadButton

    @property
    def shown(self) -> list[Any]:
        """What shows a batch."""
        return [self.said, self.table, self.gallery, self.start, self.draw, *self.delete.buttons,
                self.jsonl, self.errors, self.zip, self.zip_file]  # fmt: skip


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="batch", elem_classes="t2x-page"):
        parts = _layout()
    _wire_files(desk, parts)
    _wire_work(desk, parts)


def _layout() -> _Parts:
    parts: dict[str, Any] = {}
    parts["file"] = gr.File(
        label="A file of prompts",
        file_count="single", type="filepath", elem_id="batch-file", height=150,
    )  # fmt: skip
    with gr.Row():
        parts["column"] = gr.Dropdown(
            [], label="Column (CSV)", elem_id="batch-column", min_width=130, visible=False
        )
        parts["num"] = gr.Number(
            1, label="Rewrites of each", precision=0, minimum=1, maximum=16,
            elem_id="batch-num", min_width=130,
        )  # fmt: skip
        parts["seed"] = gr.Number(
            0, label="Seed", precision=0, minimum=0, elem_id="batch-seed", min_width=130
        )
    with gr.Row(elem_classes="tools"):
        parts["add"] = gr.Button(
            "Rewrite these", variant="primary", elem_id="batch-add", scale=0,
            min_width=200,
        )  # fmt: skip
        parts["stop"] = gr.Button(
            "Stop", variant="stop", elem_id="batch-stop", scale=0, visible=False
        )
    parts["status"] = gr.HTML(elem_id="batch-status")
    parts["chosen"] = gr.Dropdown(
        [], label="Your batches", elem_id="batch-chosen", visible=False, filterable=False
    )
    parts["said"] = gr.HTML(elem_id="batch-said")
    with gr.Row(elem_classes="tools"):
        for name, label in (
            ("start", "Go on rewriting"), ("draw", "Draw the pictures"), ("zip", "Make a zip"),
        ):  # fmt: skip
            parts[name] = gr.Button(
                label, size="sm", elem_id=f"batch-{name}", scale=0, visible=False
            )
        for name, label in (
            ("jsonl", "Download JSONL"), ("errors", "Lines left out"),
            ("zip_file", "Download the zip"),
        ):  # fmt: skip
            parts[name] = gr.DownloadButton(
                label, size="sm", elem_id=f"batch-{name}", scale=0, visible=False
            )
        parts["delete"] = confirm_button("Delete", "batch-delete", visible=False)
    parts["table"] = gr.HTML(elem_id="batch-table")
    parts["gallery"] = gr.Gallery(
        visible=False, label="Pictures", show_label=False, elem_id="batch-gallery", columns=6,
        height="auto", object_fit="contain", interactive=False, container=False, buttons=[],
    )  # fmt: skip
    return _Parts(**parts)


# ---- what is shown ------------------------------------------------------------------------------


def _shown(desk: Desk, parts: _Parts, batch: Batch | None) -> dict[Any, Any]:
    """One batch as it is now."""
    if batch is None:
        buttons = (parts.start, parts.draw, parts.zip)
        hidden: dict[Any, Any] = {button: gr.Button(visible=False) for button in buttons}
        files = (parts.jsonl, parts.errors, parts.zip_file)
        hidden |= {button: gr.DownloadButton(visible=False) for button in files}
        hidden |= parts.delete.ready(visible=False)
        return hidden | {parts.said: "", parts.table: "", parts.gallery: gr.Gallery(visible=False)}
    state = desk.batches.state(batch)
    out = desk.batches.output(batch)
    bad = side_files(out)[0]
    records = []
    for record in desk.batches.records(batch):
        records.append(record)
        if len(records) == SHOWN:
            break
    pictures = [
        (str(path), str(record["prompt"])[:60])
        for record in records
        if (path := desk.batches.picture(batch, int(record["index"]), 0)).exists()
    ]
    some = state.written > 0
    return {
        parts.said: note_line(state.said),
        parts.table: _table(records, state),
        parts.gallery: gr.Gallery(pictures, visible=bool(pictures), selected_index=None),
        parts.start: gr.Button(visible=not state.done),
        parts.draw: gr.Button(visible=some and state.drawn < state.written * batch.num),
        parts.zip: gr.Button(visible=some),
        **parts.delete.ready(),
        parts.jsonl: gr.DownloadButton(
            value=_offered(desk, batch, out, ".jsonl") if some else None, visible=some
        ),
        parts.errors: gr.DownloadButton(
            value=_offered(desk, batch, bad, ".errors.jsonl") if state.bad else None,
            visible=state.bad > 0,
        ),
        parts.zip_file: gr.DownloadButton(visible=False),
    }


def _offered(desk: Desk, batch: Batch, path: Path, ending: str) -> str:
    return str(desk.batches.offered(batch, path, ending))


def _table(records: list[dict[str, Any]], state: BatchState) -> str:
    """Prompts with their rewrites, and lines that were left out; all of it a stranger's text."""
    rows = []
    for record in records:
        for rewrite in record["rewrites"]:
            status, _ = STATUS.get(rewrite["status"], (rewrite["status"], ""))
            cells = (record["prompt"], rewrite["text"], status)
            rows.append("".join(f"<td>{escaped(str(cell)[:400])}</td>" for cell in cells))
    html = ""
    if rows:
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        head = "<tr><th>prompt</th><th>rewrite</th><th>status</th></tr>"
        html = f'<div class="t2x-table"><table>{head}{body}</table></div>'
    if len(records) < state.written:
        some = f"These are the first {len(records)} of {state.written} lines; the files have all."
        html += note_line(some)
    if state.errors:
        lines = "".join(
            f"<li>line {number}: {escaped(reason[:300])}</li>" for number, reason in state.errors
        )
        html += f'<h3 class="arm">Left out</h3><ul class="t2x-bad">{lines}</ul>'
    return html


def _choices(batches: list[Batch]) -> list[tuple[str, str]]:
    return [(f"{batch.name} · {batch.total} lines", batch.id) for batch in batches]


# ---- wiring -------------------------------------------------------------------------------------


def _wire_files(desk: Desk, parts: _Parts) -> None:
    def refresh(chosen: str | None, guest: Any, request: gr.Request) -> dict[Any, Any]:
        user = user_of(guest, request)
        found = desk.batches.all(user)
        ids = [batch.id for batch in found]
        batch = next((b for b in found if b.id == chosen), found[0] if found else None)
        dropdown = gr.Dropdown(
            _choices(found), value=None if batch is None else batch.id, visible=bool(ids)
        )
        return {parts.chosen: dropdown} | _shown(desk, parts, batch)

    every = [parts.chosen, *parts.shown]
    desk.tabs.select(refresh, [parts.chosen, desk.guest], every, **FAST)

    def columns(path: str | None) -> gr.Dropdown:
        """What a table that was chosen has; other files have no columns."""
        names, likely = desk.batches.columns(path, name=Path(path).name) if path else ([], None)
        return gr.Dropdown(names, value=likely, visible=bool(names))

    parts.file.change(columns, parts.file, parts.column, **FAST)

    def choose(chosen: str | None, guest: Any, request: gr.Request) -> Any:
        try:
            batch = desk.batches.get(user_of(guest, request), chosen or "")
        except T2XError as error:
            return {parts.said: note_line(str(error), problem=True)}
        return _shown(desk, parts, batch)

    parts.chosen.input(choose, [parts.chosen, desk.guest], parts.shown, **FAST)

    def delete(chosen: str | None, guest: Any, request: gr.Request) -> dict[Any, Any]:
        desk.batches.delete(desk.batches.get(user_of(guest, request), chosen or ""))
        return refresh(None, guest, request)

    def question(chosen: str | None, guest: Any, request: gr.Request) -> str:
        batch = desk.batches.get(user_of(guest, request), chosen or "")
        drawn = desk.batches.state(batch).drawn
        return f"Really delete it{f' and its {drawn} pictures' if drawn > 1 else ''}"

    parts.delete.wire(question, delete, [parts.chosen, desk.guest], every, parts.said)

    def zipped(chosen: str | None, guest: Any, request: gr.Request) -> Any:
        try:
            path = desk.batches.zip(desk.batches.get(user_of(guest, request), chosen or ""))
        except T2XError as error:
            return {parts.said: note_line(str(error), problem=True)}
        return {parts.zip_file: gr.DownloadButton(value=str(path), visible=True)}

    parts.zip.click(zipped, [parts.chosen, desk.guest], [parts.zip_file, parts.said], **QUIET)


def _work(
    desk: Desk, parts: _Parts, batch: Batch, task: TaskRequest, user: str, request: gr.Request
) -> Iterator[dict[Any, Any]]:
    """Do a task of a batch and show how far it is."""
    yield {parts.stop: gr.Button(visible=True)}
    pace = Pace()
    for event in desk.run(task, user=user, page=page_of(request, "batch")):
        if isinstance(event, LAST):
            line = "" if isinstance(event, Finished) else status_line(event)
            if isinstance(event, Cancelled):
                line = note_line("Stopped; what is done is kept, and it can go on.")
            ended = {parts.status: line, parts.stop: gr.Button(visible=False)}
            yield ended | _shown(desk, parts, batch)
        elif pace.due() and (line := status_line(event)):
            yield {parts.status: line}


def _wire_work(desk: Desk, parts: _Parts) -> None:
    busy = [parts.status, parts.stop, parts.chosen, *parts.shown]

    def add(
        path: str | None, column: str, num: Any, seed: Any, guest: Any, request: gr.Request
    ) -> Iterator[Any]:
        user = user_of(guest, request)
        try:
            if not path:
                raise T2XError("choose a file of prompts first")
            batch = desk.batches.add(
                user,
                path,
                name=Path(path).name,
                column=(column or "").strip() or None,
                num=int(num or 1),
                seed=int(seed or 0),
            )
        except T2XError as error:
            yield {parts.status: note_line(str(error), problem=True)}
            return
        choices = _choices(desk.batches.all(user))
        yield {parts.chosen: gr.Dropdown(choices, value=batch.id, visible=True)}
        yield from _work(desk, parts, batch, desk.batches.rewriting(batch), user, request)

    def chosen(chosen: str | None, guest: Any, request: gr.Request, draw: bool) -> Iterator[Any]:
        user = user_of(guest, request)
        try:
            batch = desk.batches.get(user, chosen or "")
        except T2XError as error:
            yield {parts.status: note_line(str(error), problem=True)}
            return
        task = desk.batches.drawing(batch) if draw else desk.batches.rewriting(batch)
        yield from _work(desk, parts, batch, task, user, request)

    def go_on(batch: str | None, guest: Any, request: gr.Request) -> Iterator[Any]:
        yield from chosen(batch, guest, request, False)

    def draw(batch: str | None, guest: Any, request: gr.Request) -> Iterator[Any]:
        yield from chosen(batch, guest, request, True)

    job: dict[str, Any] = {"outputs": busy, "concurrency_limit": None, **QUIET}
    given = [parts.file, parts.column, parts.num, parts.seed, desk.guest]
    parts.add.click(add, given, **job)
    parts.start.click(go_on, [parts.chosen, desk.guest], **job)
    parts.draw.click(draw, [parts.chosen, desk.guest], **job)

    def stop(guest: Any, request: gr.Request) -> None:
        desk.stop(page_of(request, "batch"), user=user_of(guest, request))

    parts.stop.click(stop, desk.guest, None, **FAST)
