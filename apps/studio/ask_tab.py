"""The tab "Ask me": short questions, each a row of pictures that differ in one thing, and the
prompt that grows out of the answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.asking.records import DOESNT_MATTER, MOST_OPTIONS, SOMETHING_ELSE
from t2x.asking.turns import BACK, Turn, first_turn, take_turn
from t2x.evaluation.html import escaped
from t2x.studio.events import LAST, Answered, Event
from t2x.studio.requests import TaskRequest
from t2x.studio.work import Work

from .desk import FAST, QUIET, Desk, page_of, user_of
from .live import note_line, status_line

__all__ = ["tab"]

EXAMPLES = ("two pets", "an animal and a vehicle", "something red", "fruit")
_MOST_CHARACTERS = 2000


@dataclass
class _Page:
    """The components of the tab."""

    turn: gr.State
    prompt: gr.Textbox
    ask: gr.Button
    examples: list[gr.Button]
    start: gr.Column
    status: gr.HTML
    talk: gr.Row
    question: gr.HTML
    cells: list[gr.Column]
    pictures: list[gr.Image]
    options: list[gr.Button]
    other: gr.Button
    any: gr.Button
    back: gr.Button
    grown: gr.HTML
    draw: gr.Button

    @property
    def answers(self) -> list[gr.Button]:
        """Every button that goes on or back."""
        return [*self.options, self.other, self.any, self.back]

    @property
    def outputs(self) -> list[Any]:
        """All that a turn changes."""
        return [
            self.turn,
            self.prompt,
            self.ask,
            self.start,
            self.status,
            self.talk,
            self.question,
            *self.cells,
            *self.pictures,
            *self.answers,
            self.grown,
            self.draw,
        ]


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="ask", elem_classes="t2x-page"):
        page = _layout()
    _wire(desk, page)


def _layout() -> _Page:
    parts: dict[str, Any] = {"turn": gr.State(None)}
    with gr.Row(elem_classes="box"):
        parts["prompt"] = gr.Textbox(
            label="What you want to see, in a word or two",
            show_label=False,
            container=False,
            placeholder="two pets",
            lines=1,
            max_lines=4,
            max_length=_MOST_CHARACTERS,
            elem_id="ask-prompt",
            scale=1,
        )
        parts["ask"] = gr.Button(
            "Ask me", variant="primary", elem_id="ask-begin", scale=0, min_width=110
        )
    parts["status"] = gr.HTML(elem_id="ask-status")
    with gr.Column(elem_id="ask-start") as parts["start"]:
        gr.HTML(
            "<p>Say it in a word or two. Then pick pictures: each row differs in one thing, and "
            "your picks become the prompt.</p>"
        )
        with gr.Row(elem_classes="examples"):
            parts["examples"] = [gr.Button(text, size="sm", scale=0) for text in EXAMPLES]
    with gr.Row(visible=False, elem_id="ask-talk") as parts["talk"]:
        with gr.Column(scale=3, min_width=300, elem_id="ask-left"):
            parts["question"] = gr.HTML(elem_id="ask-question")
            _layout_row(parts)
            with gr.Row(elem_classes="tools"):
                parts["other"] = gr.Button("Something else", size="sm", elem_id="ask-other")
                parts["any"] = gr.Button("Doesn't matter", size="sm", elem_id="ask-any")
                parts["back"] = gr.Button("Back", size="sm", elem_id="ask-back")
        with gr.Column(scale=1, min_width=220, elem_id="ask-right"):
            parts["grown"] = gr.HTML(elem_id="ask-grown")
            parts["draw"] = gr.Button("Draw it", variant="primary", elem_id="ask-draw")
    return _Page(**parts)


def _layout_row(parts: dict[str, Any]) -> None:
    parts["cells"], parts["pictures"], parts["options"] = [], [], []
    with gr.Row(elem_id="ask-row"):
        for at in range(MOST_OPTIONS):
            with gr.Column(min_width=120, elem_classes="ask-cell") as cell:
                picture = gr.Image(
                    show_label=False,
                    container=False,
                    interactive=False,
                    buttons=[],
                    type="pil",
                    format="png",
                    elem_id=f"ask-picture-{at}",
                )
                option = gr.Button("", elem_id=f"ask-option-{at}")
            parts["cells"].append(cell)
            parts["pictures"].append(picture)
            parts["options"].append(option)


# ---- turns --------------------------------------------------------------------------------------


class _Asking:
    """What the buttons do."""

    def __init__(self, desk: Desk, page: _Page) -> None:
        self.desk, self.page = desk, page
        self._measured: dict[str, dict[str, float]] = {}  # influences by generator, for all users

    def begin(self, prompt: str, guest: str | None, request: gr.Request) -> Iterator[Any]:
        """Ask the first question about a prompt."""
        said = (prompt or "").strip()[:_MOST_CHARACTERS]
        if not said:
            line = note_line("Say in a word or two what you want to see.", problem=True)
            yield {self.page.status: gr.HTML(line)}
            return
        yield {self.page.prompt: said}
        yield from self._go(first_turn(said), None, guest, request)

    def option(self, at: int) -> Any:
        """The handler of the picture at a place."""

        def handler(turn: Turn | None, guest: str | None, request: gr.Request) -> Iterator[Any]:
            if turn is not None and at < len(turn.options):
                yield from self._go(turn, turn.options[at], guest, request)

        return handler

    def other(self, label: str) -> Any:
        """The handler of an answer that is no picture, or of ``BACK``."""

        def handler(turn: Turn | None, guest: str | None, request: gr.Request) -> Iterator[Any]:
            if turn is not None and (turn.settled if label == BACK else label in turn.answers):
                yield from self._go(turn, label, guest, request)

        return handler

    def _go(
        self, turn: Turn, answer: str | None, guest: str | None, request: gr.Request
    ) -> Iterator[Any]:
        yield {**_asleep(self.page), self.page.status: gr.HTML("")}
        known = self._measured.setdefault(self.desk.studio.models.generator_name, {})

        def run(work: Work) -> Turn:
            return take_turn(work, turn, answer, influences=known)

        task = TaskRequest("questions", run, {"prompt": turn.data["prompt"]})
        user, page = user_of(guest, request), page_of(request, "ask")
        for event in self.desk.run(task, user=user, page=page):
            if changes := _told(self.page, turn, event):
                yield changes


def _wire(desk: Desk, page: _Page) -> None:
    asking = _Asking(desk, page)
    common: dict[str, Any] = {"outputs": page.outputs, "concurrency_limit": None, **QUIET}
    gr.on([page.ask.click, page.prompt.submit], asking.begin, [page.prompt, desk.guest], **common)
    for button in page.examples:
        button.click(asking.begin, [button, desk.guest], **common)
    for at, (picture, button) in enumerate(zip(page.pictures, page.options, strict=True)):
        gr.on([picture.select, button.click], asking.option(at), [page.turn, desk.guest], **common)
    words = {page.other: SOMETHING_ELSE, page.any: DOESNT_MATTER, page.back: BACK}
    for button, label in words.items():
        button.click(asking.other(label), [page.turn, desk.guest], **common)
    handed = page.draw.click(
        lambda turn: (turn.prompt if turn else "", desk.open_tab("create")),
        page.turn,
        [desk.prompt, desk.tabs],
        **FAST,
    )
    if desk.create is not None and desk.create.draw_after is not None:
        desk.create.draw_after(handed)


def _asleep(page: _Page) -> dict[Any, Any]:
    """While a row is drawn nothing can be answered twice."""
    return {button: gr.Button(interactive=False) for button in [*page.answers, page.ask]}


def _told(page: _Page, before: Turn, event: Event) -> dict[Any, Any]:
    """What an event of the job changes."""
    if isinstance(event, Answered):
        return _shown(page, event.value)
    line = status_line(event)
    changes: dict[Any, Any] = {page.status: gr.HTML(line)} if line else {}
    if isinstance(event, LAST) and line:  # it ended without an answer: the old row stands
        changes |= _awake(page, before)
    return changes


def _awake(page: _Page, turn: Turn) -> dict[Any, Any]:
    changes: dict[Any, Any] = {button: gr.Button(interactive=True) for button in page.options}
    changes[page.ask] = gr.Button(interactive=True)
    asks = bool(turn.question)
    changes[page.other] = gr.Button(interactive=True, visible=SOMETHING_ELSE in turn.answers)
    changes[page.any] = gr.Button(interactive=True, visible=asks)
    changes[page.back] = gr.Button(interactive=bool(turn.settled))
    return changes


def _shown(page: _Page, turn: Turn) -> dict[Any, Any]:
    """The page at a turn."""
    changes: dict[Any, Any] = {
        page.turn: turn,
        page.start: gr.Column(visible=False),
        page.status: gr.HTML(""),
        page.talk: gr.Row(visible=True),
        page.question: gr.HTML(_question_html(turn)),
        page.grown: gr.HTML(_grown_html(turn)),
        **_awake(page, turn),
    }
    for at, (cell, picture, option) in enumerate(
        zip(page.cells, page.pictures, page.options, strict=True)
    ):
        there = at < len(turn.options)
        changes[cell] = gr.Column(visible=there)
        changes[picture] = gr.Image(turn.pictures[at] if there else None)
        changes[option] = gr.Button(turn.options[at] if there else "", interactive=there)
    return changes


def _question_html(turn: Turn) -> str:
    if not turn.question:
        told = "That is all I can ask." if turn.settled else "There is nothing to ask about this."
        return f'<p class="t2x-question">{told} Draw it, or go back.</p>'
    number = len(turn.settled) + 1
    return f'<p class="t2x-question"><small>{number}</small> {escaped(turn.question)}</p>'


def _grown_html(turn: Turn) -> str:
    """The prompt as it stands, and what was answered."""
    rows = "".join(
        f"<li><span>{escaped(question)}</span> <b>{escaped(answer)}</b></li>"
        for question, answer in turn.settled
    )
    return (
        f'<h3>Prompt so far</h3><p class="t2x-grown">{escaped(turn.prompt)}</p>'
        f'<ul class="t2x-settled">{rows}</ul>'
    )
