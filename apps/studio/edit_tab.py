"""The tab "Edit": a picture and an instruction, what may change and how; before and after, what
was decided, what changed and what was kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import gradio as gr

from t2x.errors import T2XError
from t2x.guidance.edit_plans import chosen_method
from t2x.studio.editing import check_plan
from t2x.studio.events import Drawn, Event, Waiting
from t2x.studio.requests import EditRequest, Sampling
from t2x.studio.uploads import read_dropped

from .changed import Changed, changed_html, decided_html
from .desk import FAST, QUIET, Desk, user_of
from .edit_source import NEEDED, SourceLine, source_line, wire_source
from .guidance_panel import RewardRows, reward_rows
from .live import note_line
from .region import region_of
from .settings_panel import optional_number, typed
from .stage import Show, Stage, pictures_area, wire_stage
from .words import METHODS

__all__ = ["EditPage", "tab"]

_START = (("", 1.0), ("", 0.3), ("", 0.3))
_USUAL = {"vqa": 1.0, "clip": 0.3}  # where rewards shall steer and none is chosen
_STEERED = ("", "rewardflow")
_LEFT_TO_RECIPES = ("source_scale", "focus")


@dataclass
class EditPage:
    """The components of the tab, beside those of the desk."""

    source: SourceLine
    instruction: gr.Textbox
    said: gr.HTML
    target: gr.Textbox
    method: gr.Dropdown
    num: gr.Slider
    seed: gr.Number
    steps: gr.Textbox
    strength: gr.Textbox
    tether: gr.Textbox
    height: gr.Textbox
    width: gr.Textbox
    steering: gr.Group
    rows: RewardRows
    decided: gr.HTML
    changed: gr.HTML
    stage: Stage
    boxes: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.boxes = [self.instruction, self.target, self.method, self.num, self.seed, self.steps]
        self.boxes += [self.strength, self.tether, self.height, self.width]

    @property
    def form(self) -> list[Any]:
        """What ``filled`` changes, beside what the desk hands over."""
        rows = [*self.rows.names, *self.rows.amounts, self.steering]
        return [*self.boxes, *rows, self.said, self.source.said, self.stage.status]

    def filled(self, request: EditRequest) -> dict[Any, Any]:
        """The boxes such that they ask for what ``request`` does; a line tells what the form has no
        box for. Raises T2XError for more rewards than it has rows."""
        height, width = request.sampling.size or (None, None)
        numbers = {
            self.steps: request.sampling.steps,
            self.strength: request.strength,
            self.tether: request.tether,
            self.height: height,
            self.width: width,
        }
        extra = {name: getattr(request, name) for name in _LEFT_TO_RECIPES}
        extra["guidance scale"] = request.sampling.guidance_scale
        told = ", ".join(f"{name}={value}" for name, value in extra.items() if value is not None)
        note = f"The recipe also sets {told}; Draw again, in the history, keeps it."
        return {
            self.instruction: request.instruction,
            self.target: request.target_prompt,
            self.method: request.method or "",
            self.num: request.num,
            self.seed: request.seed,
            **{box: "" if value is None else f"{value!r}" for box, value in numbers.items()},
            **self.rows.filled(request.weights),
            self.steering: gr.Group(visible=(request.method or "") in _STEERED),
            self.said: "",
            self.source.said: "" if request.picture else note_line(NEEDED, problem=True),
            self.stage.status: note_line(note) if told else "",
        }


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="edit", elem_classes="t2x-page"):
        page = _layout(desk)
    wire_stage(desk, page.stage)
    wire_source(desk, page.source, (page.height, page.width))
    _wire(desk, page)


def _layout(desk: Desk) -> EditPage:
    parts: dict[str, Any] = {}
    with gr.Row(elem_classes="editor"):
        with gr.Column(scale=1, min_width=280):
            desk.edit_picture.render()
            parts["source"] = source_line()
            desk.edit_region.render()
        with gr.Column(scale=2, min_width=280):
            draw, stop = _layout_box(parts)
            parts["said"] = gr.HTML(elem_id="edit-said")
            desk.edit_shows.render()
            _layout_options(parts)
            status = gr.HTML(elem_id="edit-status")
            parts["decided"] = gr.HTML(elem_id="edit-decided", visible=False)
    with gr.Row(visible=False, elem_classes="tools", elem_id="edit-tools") as tools:
        pass
    stage = pictures_area(desk, prefix="edit-", draw=draw, stop=stop, status=status, tools=tools)
    parts["changed"] = gr.HTML(elem_id="edit-changed", visible=False)
    page = desk.edit = EditPage(stage=stage, **parts)
    return page


def _layout_box(parts: dict[str, Any]) -> tuple[gr.Button, gr.Button]:
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
        draw = gr.Button("Edit", variant="primary", elem_id="edit-draw", scale=0, min_width=96)
        stop = gr.Button(
            "Stop", variant="stop", elem_id="edit-stop", scale=0, min_width=96, visible=False
        )
    return draw, stop


def _layout_options(parts: dict[str, Any]) -> None:
    with gr.Accordion("More", open=False, elem_id="edit-more"):
        parts["target"] = gr.Textbox(
            label="What the edited picture should show",
            info="target prompt",
            placeholder="worked out from the instruction",
            elem_id="edit-target",
            max_lines=4,
        )
        with gr.Row(elem_classes="fields"):
            parts["method"] = gr.Dropdown(
                [("chosen for you", ""), *((name, key) for key, name in METHODS.items())],
                value="",
                label="Method",
                elem_id="edit-method",
                min_width=200,
            )
            parts["num"] = gr.Slider(
                1, 8, 1, step=1, label="Pictures", elem_id="edit-num", min_width=150
            )
            parts["seed"] = gr.Number(
                0, label="Seed", precision=0, minimum=0, min_width=90, elem_id="edit-seed"
            )
        with gr.Row(elem_classes="fields"):
            parts["steps"] = optional_number("Steps", "edit-steps")
            own = "usual"
            parts["strength"] = optional_number(
                "Strength", "edit-strength", placeholder=own, info="0 to 1: how far it may go"
            )
            parts["tether"] = optional_number(
                "Keep near", "edit-tether", placeholder=own, info="tether to the source; 0 is free"
            )
            parts["height"] = optional_number("Height", "edit-height", placeholder="its own")
            parts["width"] = optional_number("Width", "edit-width", placeholder="its own")
        with gr.Group(elem_id="edit-steering", elem_classes="panel") as parts["steering"]:
            gr.HTML('<p class="t2x-hint">Rewards that steer the edit (RewardFlow)</p>')
            parts["rows"] = reward_rows(_START, prefix="edit-")


# ---- asking -------------------------------------------------------------------------------------


def _request(page: EditPage, desk: Desk, given: Mapping[Any, Any]) -> EditRequest:
    """What the boxes ask for. Raises T2XError for one that makes no sense."""
    seed, method = given[page.seed], given[page.method] or ""
    height, width = typed(given[page.height], "height"), typed(given[page.width], "width")
    if (height is None) != (width is None):
        raise T2XError("a size has a height and a width; give both, or none")
    steps = typed(given[page.steps], "steps")
    return EditRequest(
        instruction=(given[page.instruction] or "").strip(),
        source_prompt=(given[desk.edit_shows] or "").strip(),
        target_prompt=(given[page.target] or "").strip(),
        method=method or None,
        weights=page.rows.weights(given) if method in _STEERED else {},
        strength=typed(given[page.strength], "strength", whole=False),
        tether=typed(given[page.tether], "tether", whole=False),
        region=region_of(given[desk.edit_region]),
        num=int(given[page.num]),
        seed=0 if seed is None else int(seed),
        sampling=Sampling(
            size=None if height is None or width is None else (int(height), int(width)),
            steps=None if steps is None else int(steps),
        ),
    )


def _asked(
    page: EditPage, desk: Desk, given: Mapping[Any, Any]
) -> tuple[EditRequest | None, dict[Any, Any]]:
    """The request with its picture, or None, and a line beside each box that is to be mended: what
    is seen stays until there is a job."""
    lines: dict[Any, Any] = {page.said: "", page.source.said: gr.skip()}
    request: EditRequest | None = None
    try:
        request = _request(page, desk, given)
        if not desk.studio.state().generator.facts.get("instructed"):
            check_plan(request)
    except T2XError as error:
        lines[page.said], request = note_line(str(error), problem=True), None
    path = given[desk.edit_picture]
    try:
        if not path:
            raise T2XError("an edit begins with a picture; drop one here")
        picture = read_dropped(path).picture
    except T2XError as error:
        lines[page.source.said] = note_line(str(error), problem=True)
        return None, lines
    return None if request is None else replace(request, picture=picture), lines


def _wire(desk: Desk, page: EditPage) -> None:
    stage = page.stage
    inputs = {desk.edit_picture, desk.edit_shows, desk.edit_region, desk.guest, stage.album}
    inputs |= {*page.boxes, *page.rows.inputs}

    def draw(given: dict[Any, Any], request: gr.Request) -> Iterator[Any]:
        asked, lines = _asked(page, desk, given)
        yield lines
        if asked is None:
            return
        show = Show(stage, asked, given[stage.album])
        user = user_of(given[desk.guest], request)
        changed: list[Changed] = []
        events = desk.run(asked, user=user, page=stage.page(request))
        for event, changes in show.updates(events):
            changes |= _told(page, asked, event, changed)
            if changes:
                yield changes

    gr.on(
        [stage.draw.click, page.instruction.submit, desk.edit_shows.submit, page.target.submit],
        draw,
        inputs,
        [*stage.outputs, page.decided, page.changed, page.said, page.source.said],
        concurrency_limit=None,
        **QUIET,
    )

    def choose(method: str, *names: str) -> list[Any]:
        rows = [gr.skip()] * (2 * len(names))
        if method == "rewardflow" and not any(names):
            rows = list(page.rows.filled(_USUAL).values())
            rows = [*rows[::2], *rows[1::2]]
        return [gr.Group(visible=method in _STEERED), *rows]

    page.method.input(
        choose,
        [page.method, *page.rows.names],
        [page.steering, *page.rows.names, *page.rows.amounts],
        **FAST,
    )


def _told(
    page: EditPage, request: EditRequest, event: Event, changed: list[Changed]
) -> dict[Any, Any]:
    """What was decided is known with the first edit, what changed with each."""
    if isinstance(event, Waiting):
        changed.clear()
        return {
            page.decided: gr.HTML("", visible=False),
            page.changed: gr.HTML("", visible=False),
        }
    if not isinstance(event, Drawn) or event.arm != "edited":
        return {}
    told: dict[Any, Any] = {}
    if not event.index:
        text = str(event.recipe.get("text", ""))
        method = request.method or chosen_method(
            request.source_prompt, rewards=bool(request.weights)
        )
        told[page.decided] = gr.HTML(decided_html(request, text, method), visible=True)
    if event.change is not None:
        changed.append((event.seed, event.change))
        html = changed_html(changed, region=request.region)
        told[page.changed] = gr.HTML(html, visible=True)
    return told
