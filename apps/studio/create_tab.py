"""The tab "Create": one box; the user's words beside their rewrite, the pictures of both, what the
rewards say, and rewards that steer while it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from t2x.errors import T2XError
from t2x.studio.events import Event, Rewritten, Waiting
from t2x.studio.requests import (
    BestOfRequest,
    CompareRequest,
    EditRequest,
    GuideRequest,
    Request,
    TaskRequest,
)
from t2x.studio.state import StudioState

from .album import Album
from .desk import FAST, QUIET, Desk, user_of
from .guidance_panel import GuidancePanel, guidance_panel
from .live import note_line
from .settings_panel import SettingsPanel, settings_panel, wire_settings
from .stage import Show, Stage, pictures_area, wire_stage
from .taste_buttons import pair_buttons, thumb_buttons
from .words import rewrite_html

__all__ = ["CreatePage", "tab"]

EXAMPLES = (
    "two kittens to the left of a crimson slice of pizza",
    "the animal with a trunk and a red umbrella",
    "four green apples",
    "a bus above a yellow bird",
)
MODES = {"Compare": "compare", "Best of many": "best_of", "Steer": "guide"}


@dataclass
class CreatePage:
    """The components of the tab. ``draw_after`` makes what the form asks for be drawn when an event
    of any tab is done; it is there once the tab is wired."""

    mode: gr.Radio
    rewrite: gr.Checkbox
    settings: SettingsPanel
    guidance: GuidancePanel
    start: gr.Column
    examples: list[gr.Button]
    words: gr.HTML
    use: gr.Button
    by_hand: gr.Button
    own: gr.Textbox
    own_row: gr.Row
    own_draw: gr.Button
    again: gr.Button
    fresh: gr.Button
    stage: Stage
    draw_after: Callable[[Any], None] | None = None

    @property
    def form(self) -> list[Any]:
        """What ``filled`` changes, beside the desk's own boxes."""
        said = [self.mode, self.rewrite, self.own, self.own_row, self.stage.status]
        return [*said, *self.settings.filled_boxes, *self.guidance.outputs]

    def filled(self, request: Request, state: StudioState) -> dict[Any, Any]:
        """The boxes such that they ask for what ``request`` does, as far as the form has boxes and
        the generator that is loaded takes it. Raises T2XError for more than they hold."""
        assert not isinstance(request, EditRequest | TaskRequest)
        facts, sampling, own = state.generator.facts, request.sampling, request.text
        if facts.get("modality") != "video":
            sampling = replace(sampling, num_frames=None)
        negative = request.negative if facts.get("negative", True) else ""
        return {
            self.mode: "guide" if isinstance(request, GuideRequest) else "compare",
            self.rewrite: request.rewrite or own is not None,
            self.own: own or "",
            self.own_row: gr.Row(visible=own is not None),
            self.stage.status: _left_out(request) if isinstance(request, GuideRequest) else "",
            **self.settings.filled(sampling, negative),
            **self.guidance.filled(request),
        }


def _left_out(request: GuideRequest) -> str:
    """A line about what the recipe sets and the form does not show."""
    extra = {**request.options, **({"three_way": request.three_way} if request.three_way else {})}
    if not extra:
        return ""
    told = ", ".join(f"{name}={value}" for name, value in extra.items())
    return note_line(f"The recipe also sets {told}; Draw again, in the history, keeps it.")


def tab(desk: Desk) -> None:
    """Lay the tab out and wire it."""
    with gr.Column(elem_id="create", elem_classes="t2x-page"):
        page = _layout(desk)
        pairs = pair_buttons(desk, page.stage)
    thumb_buttons(desk)
    models = wire_settings(desk, page.settings, page.stage.status)
    wire_stage(desk, page.stage)
    _wire_drawing(desk, page, pairs, models)
    _wire_words(desk, page)
    page.mode.change(
        lambda mode: gr.Group(visible=mode == "guide"),
        page.mode,
        page.guidance.group,
        **FAST,
    )


def _layout(desk: Desk) -> CreatePage:
    parts: dict[str, Any] = {}
    with gr.Row(elem_id="box", elem_classes="box"):
        desk.prompt.render()
        draw = gr.Button("Draw", variant="primary", elem_id="draw", scale=0, min_width=96)
        stop = gr.Button(
            "Stop", variant="stop", elem_id="stop", scale=0, min_width=96, visible=False
        )
    with gr.Row(elem_id="how"):
        parts["mode"] = gr.Radio(
            list(MODES.items()),
            value="compare",
            label="What to do",
            show_label=False,
            container=False,
            elem_id="mode",
            elem_classes="pills",
            min_width=270,
        )
        parts["rewrite"] = gr.Checkbox(
            True, label="Rewrite my words", elem_id="rewrite", container=False, min_width=150
        )
    parts["guidance"] = guidance_panel()
    parts["settings"] = settings_panel(desk)
    status = gr.HTML(elem_id="status")
    with gr.Column(elem_id="start") as parts["start"]:
        gr.HTML("<p>Write what you want to see, or try one of these.</p>")
        with gr.Row(elem_classes="examples"):
            parts["examples"] = [gr.Button(text, size="sm", scale=0) for text in EXAMPLES]
    parts["words"] = gr.HTML(elem_id="words", visible=False)
    with gr.Row(visible=False, elem_classes="tools", elem_id="tools") as tools:
        parts["again"] = gr.Button("Draw the same again", size="sm", elem_id="same-seeds", scale=0)
        parts["fresh"] = gr.Button("Draw others", size="sm", elem_id="new-seeds", scale=0)
        parts["use"] = gr.Button(
            "Use rewrite as prompt", size="sm", elem_id="use-rewrite", scale=0, visible=False
        )
        parts["by_hand"] = gr.Button(
            "Edit rewrite", size="sm", elem_id="edit-rewrite", scale=0, visible=False
        )
    _layout_own(parts)
    parts["stage"] = pictures_area(
        desk, prefix="", draw=draw, stop=stop, status=status, tools=tools
    )
    page = desk.create = CreatePage(**parts)
    return page


def _layout_own(parts: dict[str, Any]) -> None:
    with gr.Row(visible=False, elem_id="own-row", elem_classes="box") as parts["own_row"]:
        parts["own"] = gr.Textbox(
            label="Draw this instead of the rewrite",
            show_label=False,
            container=False,
            lines=1,
            max_lines=8,
            elem_id="own-text",
            scale=1,
        )
        parts["own_draw"] = gr.Button(
            "Draw this", variant="primary", elem_id="own-draw", scale=0, min_width=110
        )


def _request(page: CreatePage, desk: Desk, given: Mapping[Any, Any], own: str | None) -> Request:
    """What the page asks for. Raises T2XError for a box that says nothing usable."""
    panel = page.settings
    seed = given[desk.seed]
    asked: dict[str, Any] = {
        "prompt": (given[desk.prompt] or "").strip(),
        "num": int(given[panel.num]),
        "seed": 0 if seed is None else int(seed),
        "rewrite": bool(given[page.rewrite]),
        "text": own,
        "negative": given[panel.negative] or "",
        "sampling": panel.sampling(given),
        "rewards": tuple(given[panel.rewards] or ()),
    }
    mode = given[page.mode]
    if mode == "guide":
        steering = page.guidance.asked(given)
        if not steering["weights"]:
            raise T2XError("nothing steers: choose a reward and give it a weight")
        names = dict.fromkeys([*asked.pop("rewards"), *steering["weights"]])
        return GuideRequest(**asked, **steering, rewards=tuple(names))
    return BestOfRequest(**asked) if mode == "best_of" else CompareRequest(**asked)


# ---- wiring -------------------------------------------------------------------------------------


def _wire_drawing(
    desk: Desk, page: CreatePage, pairs: Mapping[str, Any], models: Mapping[str, Any]
) -> None:
    """``pairs`` and ``models``: what is done when pictures are there."""
    stage = page.stage
    inputs = {desk.prompt, desk.seed, desk.guest, page.mode, page.rewrite, page.own, stage.album}
    inputs |= page.settings.inputs | page.guidance.inputs
    words = [page.start, page.words, page.use, page.by_hand, page.own, page.own_row]

    def run(given: dict[Any, Any], request: gr.Request, own: str | None) -> Iterator[Any]:
        try:
            asked = _request(page, desk, given, own)
        except T2XError as error:
            yield {stage.status: note_line(str(error), problem=True)}
            return
        show = Show(stage, asked, given[stage.album])
        user = user_of(given[desk.guest], request)
        events = desk.run(asked, user=user, page=stage.page(request))
        for event, changes in show.updates(events):
            changes |= _words(page, show.album, event)
            if changes:
                yield changes

    def draw(given: dict[Any, Any], request: gr.Request) -> Iterator[Any]:
        yield from run(given, request, None)

    def draw_own(given: dict[Any, Any], request: gr.Request) -> Iterator[Any]:
        yield from run(given, request, given[page.own])

    job: dict[str, Any] = {
        "inputs": inputs,
        "outputs": [*stage.outputs, *words],
        "concurrency_limit": None,
        **QUIET,
    }
    gr.on([stage.draw.click, desk.prompt.submit, page.again.click], draw, **job).then(**pairs).then(
        **models
    )
    gr.on([page.own_draw.click, page.own.submit], draw_own, **job).then(**pairs).then(**models)

    def draw_after(event: Any) -> None:
        event.then(draw, **job).then(**pairs).then(**models)

    page.draw_after = draw_after
    newer = page.fresh.click(
        lambda seed, num: int(seed or 0) + int(num),
        [desk.seed, page.settings.num],
        desk.seed,
        **FAST,
    )
    draw_after(newer)
    for button in page.examples:
        draw_after(button.click(lambda text: text, button, desk.prompt, **FAST))


def _no_words(page: CreatePage) -> dict[Any, Any]:
    return {
        page.start: gr.Column(visible=False),
        page.words: gr.HTML("", visible=False),
        page.use: gr.Button(visible=False),
        page.by_hand: gr.Button(visible=False),
        page.own_row: gr.Row(visible=False),
    }


def _words(page: CreatePage, album: Album, event: Event) -> dict[Any, Any]:
    """The panel of the rewrite, when it is there; gone when a job begins."""
    if isinstance(event, Waiting):
        return _no_words(page)
    if not isinstance(event, Rewritten):
        return {}
    rewrite = event.rewrite
    album.rewrite, album.words = rewrite, event.words
    return {
        page.words: gr.HTML(rewrite_html(rewrite), visible=True),
        page.use: gr.Button(visible=rewrite.changed),
        page.by_hand: gr.Button(visible=True),
        page.own: rewrite.text,
    }


def _wire_words(desk: Desk, page: CreatePage) -> None:
    page.use.click(
        lambda album: gr.skip() if album is None or album.rewrite is None else album.rewrite.text,
        page.stage.album,
        desk.prompt,
        **FAST,
    )
    page.by_hand.click(lambda: gr.Row(visible=True), None, page.own_row, **FAST)
