"""The tab "Edit": a picture and an instruction; before and after, and what was decided."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.evaluation.html import escaped
from t2x.guidance.edit_plans import chosen_method
from t2x.studio.events import Drawn, Event, Waiting
from t2x.studio.requests import EditRequest, Sampling

from .album import Album
from .desk import FAST, QUIET, Desk, user_of
from .settings_panel import reward_choices
from .stage import Show, Stage, pictures_area, wire_stage
from .words import marked

__all__ = ["decided_html", "tab"]

METHODS = {
    "chosen for you": "",
    "FlowEdit: follow the difference of the words": "flowedit",
    "SDEdit: draw again from part of the way": "sdedit",
    "RewardFlow: rewards steer": "rewardflow",
}


@dataclass
class _Page:
    """The components of the tab."""

    instruction: gr.Textbox
    shows: gr.Textbox
    target: gr.Textbox
    method: gr.Dropdown
    reward: gr.Dropdown
    weight: gr.Slider
    strength: gr.Slider
    own_strength: gr.Checkbox
    num: gr.Slider
    seed: gr.Number
    decided: gr.HTML
    stage: Stage


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="edit", elem_classes="t2x-page"):
        page = _layout(desk)
    wire_stage(desk, page.stage)
    _wire(desk, page)


def _layout(desk: Desk) -> _Page:
    parts: dict[str, Any] = {}
    with gr.Row(elem_classes="editor"):
        with gr.Column(scale=1, min_width=220):
            desk.edit_picture.render()
        with gr.Column(scale=2, min_width=280):
            with gr.Row(elem_classes="box"):
                parts["instruction"] = gr.Textbox(
                    label="What to change",
                    show_label=False,
                    container=False,
                    placeholder="make the cat blue",
                    lines=1,
                    max_lines=6,
                    elem_id="edit-instruction",
                    scale=1,
                )
                draw = gr.Button(
                    "Edit", variant="primary", elem_id="edit-draw", scale=0, min_width=96
                )
                stop = gr.Button(
                    "Stop",
                    variant="stop",
                    elem_id="edit-stop",
                    scale=0,
                    min_width=96,
                    visible=False,
                )
            desk.edit_shows.render()
            _layout_options(parts)
            status = gr.HTML(elem_id="edit-status")
            parts["decided"] = gr.HTML(elem_id="edit-decided", visible=False)
    with gr.Row(visible=False, elem_classes="tools", elem_id="edit-tools") as tools:
        pass
    stage = pictures_area(desk, prefix="edit-", draw=draw, stop=stop, status=status, tools=tools)
    return _Page(shows=desk.edit_shows, stage=stage, **parts)


def _layout_options(parts: dict[str, Any]) -> None:
    with gr.Accordion("More", open=False, elem_id="edit-more"):
        parts["target"] = gr.Textbox(
            label="What the edited picture shows",
            placeholder="worked out from the instruction",
            elem_id="edit-target",
            max_lines=4,
        )
        with gr.Row(elem_classes="fields"):
            parts["method"] = gr.Dropdown(
                list(METHODS.items()), value="", label="Method", elem_id="edit-method"
            )
            parts["num"] = gr.Slider(1, 8, 1, step=1, label="Edits", elem_id="edit-num")
            parts["seed"] = gr.Number(
                0, label="Seed", precision=0, minimum=0, min_width=90, elem_id="edit-seed"
            )
        with gr.Row(elem_classes="fields"):
            parts["own_strength"] = gr.Checkbox(
                True, label="Usual strength", elem_id="edit-usual", min_width=140
            )
            parts["strength"] = gr.Slider(
                0.05,
                1,
                0.85,
                step=0.05,
                label="How far it may go",
                elem_id="edit-strength",
                interactive=False,
            )
        with gr.Row(elem_classes="fields"):
            parts["reward"] = gr.Dropdown(
                [("none", ""), *reward_choices(["vqa", "clip"])],
                value="",
                label="Reward that steers",
                elem_id="edit-reward",
            )
            parts["weight"] = gr.Slider(0, 3, 1, step=0.05, label="Weight", elem_id="edit-weight")


def _request(page: _Page, desk: Desk, given: Mapping[Any, Any]) -> EditRequest:
    seed, steers = given[page.seed], given[page.reward]
    return EditRequest(
        picture=given[desk.edit_picture],
        instruction=given[page.instruction] or "",
        source_prompt=given[page.shows] or "",
        target_prompt=given[page.target] or "",
        method=given[page.method] or None,
        weights={steers: float(given[page.weight])} if steers else {},
        strength=None if given[page.own_strength] else float(given[page.strength]),
        num=int(given[page.num]),
        seed=0 if seed is None else int(seed),
        sampling=Sampling(),
    )


def _wire(desk: Desk, page: _Page) -> None:
    stage = page.stage
    inputs = {desk.edit_picture, desk.guest, stage.album, page.instruction, page.shows}
    inputs |= {page.target, page.method, page.num, page.seed, page.own_strength, page.strength}
    inputs |= {page.reward, page.weight}

    def draw(given: dict[Any, Any], request: gr.Request) -> Iterator[Any]:
        asked = _request(page, desk, given)
        show = Show(stage, asked, given[stage.album])
        user = user_of(given[desk.guest], request)
        events = desk.run(asked, user=user, page=stage.page(request))
        for event, changes in show.updates(events):
            changes |= _decided(page, show.album, event)
            if changes:
                yield changes

    gr.on(
        [stage.draw.click, page.instruction.submit],
        draw,
        inputs,
        [*stage.outputs, page.decided],
        concurrency_limit=None,
        **QUIET,
    )
    page.own_strength.change(
        lambda usual: gr.Slider(interactive=not usual),
        page.own_strength,
        page.strength,
        **FAST,
    )


def _decided(page: _Page, album: Album, event: Event) -> dict[Any, Any]:
    """What was decided is known with the first edit."""
    if isinstance(event, Waiting):
        return {page.decided: gr.HTML("", visible=False)}
    if not isinstance(event, Drawn) or event.arm != "edited" or event.index:
        return {}
    assert isinstance(album.request, EditRequest)
    text = str(event.recipe.get("text", ""))
    return {page.decided: gr.HTML(decided_html(album.request, text), visible=True)}


def decided_html(request: EditRequest, target: str) -> str:
    """What the edited picture shall show, with what is new in it marked, and the method.

    ``target``: what the generator was given.
    """
    method = request.method or chosen_method(request.source_prompt, rewards=bool(request.weights))
    shown = marked(request.source_prompt, target)[1] if request.source_prompt else escaped(target)
    known = {value: name for name, value in METHODS.items() if value}
    return (
        '<dl class="t2x-decided"><dt>Shall show</dt>'
        f'<dd class="t2x-words">{shown}</dd><dt>Method</dt>'
        f"<dd>{escaped(known.get(method, method))}</dd></dl>"
    )
