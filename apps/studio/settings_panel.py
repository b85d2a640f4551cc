"""The settings corner: which models are loaded, and how pictures are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.evaluation.html import escaped
from t2x.reward_facts import FACTS
from t2x.studio.events import Event, Failed, Loaded
from t2x.studio.requests import Sampling
from t2x.studio.state import ModelState, StudioState

from .desk import Desk, user_of
from .live import note_line, status_line

__all__ = ["SettingsPanel", "reward_choices", "settings_panel"]

_NO_NEGATIVE = "This model takes none"


@dataclass
class SettingsPanel:
    """The components; the values of ``drawing`` come back through ``sampling``."""

    generator: gr.Dropdown
    rewriter: gr.Dropdown
    load: gr.Button
    rewards: gr.Dropdown
    num: gr.Slider
    height: gr.Number
    width: gr.Number
    steps: gr.Number
    scale: gr.Number
    frames: gr.Number
    negative: gr.Textbox
    state: gr.HTML

    @property
    def inputs(self) -> set[Any]:
        """What a handler needs to draw."""
        drawing = {self.height, self.width, self.steps, self.scale, self.frames}
        return drawing | {self.num, self.negative, self.rewards}

    def sampling(self, given: Mapping[Any, Any]) -> Sampling:
        """How pictures are drawn; an empty box leaves it to the model, and so does one side of two.

        Values are checked where the request is.
        """
        height, width = _count(given[self.height]), _count(given[self.width])
        scale = given[self.scale]
        return Sampling(
            size=None if height is None or width is None else (height, width),
            steps=_count(given[self.steps]),
            guidance_scale=None if scale is None else float(scale),
            num_frames=_count(given[self.frames]),
        )


def settings_panel(desk: Desk) -> SettingsPanel:
    """Lay the corner out; ``wire`` after the page's status line is there."""
    from t2x.registry import known_names

    state = desk.studio.state()
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        with gr.Row(elem_classes="fields"):
            generator = _model("generator", "Generator", state.generator, known_names)
            rewriter = _model("rewriter", "Rewriter", state.rewriter, known_names)
            load = gr.Button("Load", elem_id="load-models", size="md", scale=0, min_width=90)
        usual = [reward.name for reward in state.rewards]
        rewards = gr.Dropdown(
            reward_choices(usual),
            value=usual,
            multiselect=True,
            label="Rewards that score the pictures",
            elem_id="rewards",
        )
        with gr.Row(elem_classes="fields"):
            num = gr.Slider(1, 16, 4, step=1, label="Pictures", elem_id="num", min_width=150)
            desk.seed.render()
            steps = _number("Steps", "steps")
            scale = _number("Guidance scale", "scale", precision=None)
            height = _number("Height", "height")
            width = _number("Width", "width")
            frames = gr.Number(
                None, label="Frames", elem_id="frames", precision=0, min_width=90, visible=False
            )
        negative = gr.Textbox(
            label="Must not show", elem_id="negative", placeholder="a dog", max_lines=3
        )
        shown = gr.HTML(state_html(state), elem_id="models-state")
    return SettingsPanel(
        generator=generator,
        rewriter=rewriter,
        load=load,
        rewards=rewards,
        num=num,
        height=height,
        width=width,
        steps=steps,
        scale=scale,
        frames=frames,
        negative=negative,
        state=shown,
    )


def wire_settings(desk: Desk, panel: SettingsPanel, status: gr.HTML) -> None:
    """Swap models at a click, and show what is loaded until it is known."""
    outputs = [panel.state, panel.negative, panel.frames, panel.steps, panel.scale]
    outputs += [panel.height, panel.width]
    told = gr.Timer(1.5)

    def refresh() -> list[Any]:
        state = desk.studio.state()
        settled = state.generator.readiness not in ("loading", "unloaded")
        return [*shown_state(state), gr.Timer(active=not settled)]

    told.tick(
        refresh,
        None,
        [*outputs, told],
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )

    def load(
        generator: str, rewriter: str, guest: str | None, request: gr.Request
    ) -> Iterator[list[Any]]:
        user, page = user_of(guest, request), str(request.session_hash)
        now = desk.studio.state()
        given = {"generator": generator or None, "rewriter": rewriter or None}
        before = {"generator": now.generator.name, "rewriter": now.rewriter.name}
        changed: dict[str, Any] = {k: v for k, v in given.items() if (v or "none") != before[k]}
        if changed.get("rewriter") == "none":
            changed["rewriter"] = None
        if not changed:
            yield [note_line("These are loaded already."), *[gr.skip()] * len(outputs)]
            return
        for event in desk.follow(desk.studio.load(**changed, user=user), page=page):
            yield _told(event, len(outputs))

    panel.load.click(
        load,
        [panel.generator, panel.rewriter, desk.guest],
        [status, *outputs],
        concurrency_limit=None,
        show_progress="hidden",
        api_visibility="private",
    )


def _told(event: Event, others: int) -> list[Any]:
    if isinstance(event, Loaded):
        return [note_line("Loaded."), *shown_state(event.state)]
    line = status_line(event)
    return [line if line or isinstance(event, Failed) else gr.skip(), *[gr.skip()] * others]


def shown_state(state: StudioState) -> list[Any]:
    """Updates of the state line, the negative prompt, and the numbers' hints."""
    facts = state.generator.facts
    takes = bool(facts.get("negative", True))
    settings = facts.get("settings", {})
    video = facts.get("modality") == "video"

    def hint(name: str) -> Any:
        value = settings.get(name)
        return gr.Number(placeholder="model's own" if value is None else f"{value:g}")

    return [
        state_html(state),
        gr.Textbox(interactive=takes, placeholder="a dog" if takes else _NO_NEGATIVE),
        gr.Number(visible=video),
        hint("num_inference_steps"),
        hint("guidance_scale"),
        hint("height"),
        hint("width"),
    ]


def state_html(state: StudioState) -> str:
    """Each model and whether it can be used; why not, where it can't."""
    roles = [("draws", state.generator), ("rewrites", state.rewriter)]
    roles += [("scores", reward) for reward in state.rewards]
    return f'<ul class="t2x-models">{"".join(_model_line(*role) for role in roles)}</ul>'


def _model_line(does: str, model: ModelState) -> str:
    said = {
        "none": "not wanted",
        "unloaded": "loads when it is needed",
        "loading": "loading…",
        "ready": does,
        "failed": model.problem,
    }[model.readiness]
    return (
        f'<li class="{model.readiness}"><b>{escaped(model.name)}</b> <span>{escaped(said)}</span>'
        "</li>"
    )


def reward_choices(more: list[str]) -> list[tuple[str, str]]:
    """Names of rewards for a menu, with what they measure; those that the studio has come first."""
    names = [*more, *(name for name in sorted(FACTS) if name not in more)]
    return [(_choice(name), name) for name in names]


def _choice(name: str) -> str:
    facts = FACTS.get(name)
    if facts is None:
        return name
    more = "" if facts.differentiable else ", no gradients"
    more += "" if facts.download == "embedded" else f", {facts.download}"
    return f"{name}{more}"


def _model(name: str, label: str, state: ModelState, known: Any) -> gr.Dropdown:
    names = [*known(f"{name}s")]
    if state.name not in names:
        names.insert(0, state.name)
    return gr.Dropdown(
        names,
        value=state.name,
        label=label,
        elem_id=name,
        allow_custom_value=True,
        min_width=200,
        info="a name, a folder or a hub id",
    )


def _number(label: str, name: str, *, precision: int | None = 0) -> gr.Number:
    return gr.Number(None, label=label, elem_id=name, precision=precision, minimum=0, min_width=90)


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)
