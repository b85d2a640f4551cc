"""The settings corner: which models are loaded, and how pictures are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.errors import T2XError
from t2x.evaluation.html import escaped
from t2x.reward_facts import FACTS
from t2x.studio.events import LAST, Cancelled, Event, Failed, Loaded
from t2x.studio.requests import Sampling
from t2x.studio.state import ModelState, StudioState

from .desk import FAST, QUIET, Desk, page_of, user_of
from .live import note_line, status_line

__all__ = [
    "SettingsPanel",
    "optional_number",
    "reward_choices",
    "settings_panel",
    "typed",
    "wire_settings",
]

OWN = "model's own"
_NO_NEGATIVE = "This model takes none"


@dataclass
class SettingsPanel:
    """The components; the values of ``drawing`` come back through ``sampling``."""

    generator: gr.Dropdown
    rewriter: gr.Dropdown
    load: gr.Button
    stop: gr.Button
    rewards: gr.Dropdown
    num: gr.Slider
    height: gr.Textbox
    width: gr.Textbox
    steps: gr.Textbox
    scale: gr.Textbox
    frames: gr.Textbox
    negative: gr.Textbox
    state: gr.HTML

    @property
    def inputs(self) -> set[Any]:
        """What a handler needs to draw."""
        drawing = {self.height, self.width, self.steps, self.scale, self.frames}
        return drawing | {self.num, self.negative, self.rewards}

    def sampling(self, given: Mapping[Any, Any]) -> Sampling:
        """How pictures are drawn; an empty box leaves it to the model. Raises T2XError for what is
        no number, and for one side without the other.
        """
        height, width = typed(given[self.height], "height"), typed(given[self.width], "width")
        if (height is None) != (width is None):
            raise T2XError("a size has a height and a width; give both, or none")
        return Sampling(
            size=None if height is None or width is None else (int(height), int(width)),
            steps=_whole(typed(given[self.steps], "steps")),
            guidance_scale=typed(given[self.scale], "guidance scale", whole=False),
            num_frames=_whole(typed(given[self.frames], "frames")),
        )

    @property
    def filled_boxes(self) -> list[Any]:
        """What ``filled`` changes."""
        return [self.height, self.width, self.steps, self.scale, self.frames, self.negative]

    def filled(self, sampling: Sampling, negative: str) -> dict[Any, Any]:
        """Updates after which ``sampling`` gives the same back; what it leaves to the model becomes
        an empty box."""
        height, width = sampling.size or (None, None)
        numbers = {
            self.height: height,
            self.width: width,
            self.steps: sampling.steps,
            self.scale: sampling.guidance_scale,
            self.frames: sampling.num_frames,
        }
        said = {box: "" if number is None else str(number) for box, number in numbers.items()}
        return said | {self.negative: negative}


def settings_panel(desk: Desk) -> SettingsPanel:
    """Lay the corner out; ``wire`` after the page's status line is there."""
    from t2x.registry import known_names

    state = desk.studio.state()
    with gr.Accordion("Settings", open=False, elem_id="settings"):
        with gr.Row(elem_classes="fields"):
            generator = _model("generator", "Generator", state.generator, known_names)
            rewriter = _model("rewriter", "Rewriter", state.rewriter, known_names)
            load = gr.Button("Load", elem_id="load-models", size="md", scale=0, min_width=90)
            stop = gr.Button(
                "Stop", variant="stop", elem_id="load-stop", size="md", scale=0, min_width=90,
                visible=False,
            )  # fmt: skip
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
            steps = optional_number("Steps", "steps")
            scale = optional_number("Guidance scale", "scale")
            height = optional_number("Height", "height")
            width = optional_number("Width", "width")
            frames = optional_number("Frames", "frames", visible=False)
        negative = gr.Textbox(
            label="Must not show", elem_id="negative", placeholder="a dog", max_lines=3
        )
        shown = gr.HTML(state_html(state), elem_id="models-state")
    return SettingsPanel(
        generator=generator,
        rewriter=rewriter,
        load=load,
        stop=stop,
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


def wire_settings(desk: Desk, panel: SettingsPanel, status: gr.HTML) -> dict[str, Any]:
    """Swap models at a click, and show what is loaded: until it is known, when the page is opened
    or a tab of it, since others may have swapped them.

    Gives the arguments of a ``then`` that shows it again.
    """
    outputs = [panel.state, panel.negative, panel.frames, panel.steps, panel.scale]
    outputs += [panel.height, panel.width]
    boxes = [panel.generator, panel.rewriter]
    told = gr.Timer(1.5)

    def now() -> list[Any]:
        state = desk.studio.state()
        return [*_chosen(state), *shown_state(state)]

    shown: dict[str, Any] = {"fn": now, "inputs": None, "outputs": [*boxes, *outputs], **FAST}
    gr.on(None, **shown)
    desk.tabs.select(**shown)

    def refresh() -> list[Any]:
        state = desk.studio.state()
        settled = state.generator.readiness not in ("loading", "unloaded")
        return [*shown_state(state), gr.Timer(active=not settled)]

    told.tick(
        refresh,
        None,
        [*outputs, told],
        **FAST,
    )

    def load(
        generator: str, rewriter: str, guest: str | None, request: gr.Request
    ) -> Iterator[list[Any]]:
        user, page = user_of(guest, request), page_of(request, "load")
        now = desk.studio.state()
        given = {"generator": generator or None, "rewriter": rewriter or None}
        before = {"generator": now.generator.name, "rewriter": now.rewriter.name}
        changed: dict[str, Any] = {k: v for k, v in given.items() if (v or "none") != before[k]}
        if changed.get("rewriter") == "none":
            changed["rewriter"] = None
        if not changed:
            nothing = [gr.skip()] * (5 + len(outputs))
            yield [note_line("These are loaded already."), *nothing]
            return
        for event in desk.follow(desk.studio.load(**changed, user=user), page=page):
            ended = isinstance(event, LAST)
            buttons = [gr.Button(visible=ended), gr.Button(visible=not ended)]
            line, *others = _told(event, desk, len(outputs))
            timer = gr.Timer(active=True) if ended else gr.skip()
            chosen = _chosen(desk.studio.state()) if ended else [gr.skip(), gr.skip()]
            yield [line, *buttons, timer, *chosen, *others]

    panel.load.click(
        load,
        [panel.generator, panel.rewriter, desk.guest],
        [status, panel.load, panel.stop, told, *boxes, *outputs],
        concurrency_limit=None,
        **QUIET,
    )

    def stop(guest: str | None, request: gr.Request) -> Any:
        found = desk.stop(page_of(request, "load"), user=user_of(guest, request))
        return note_line("Stopping: what is being read is read first.") if found else gr.skip()

    panel.stop.click(stop, desk.guest, status, **FAST)
    return shown


def _chosen(state: StudioState) -> list[str]:
    """What the boxes of the generator and the rewriter say: what there is."""
    return [state.generator.name, state.rewriter.name]


def _told(event: Event, desk: Desk, others: int) -> list[Any]:
    if isinstance(event, Loaded):
        return [note_line("Loaded."), *shown_state(event.state)]
    if isinstance(event, Failed):
        return [status_line(event), *shown_state(desk.studio.state())]
    if isinstance(event, Cancelled):
        kept = note_line("Stopped. The models are those that were there before.")
        return [kept, *shown_state(desk.studio.state())]
    line = status_line(event)
    return [line or gr.skip(), *[gr.skip()] * others]


def shown_state(state: StudioState) -> list[Any]:
    """Updates of the state line, the negative prompt, and the numbers' hints."""
    facts = state.generator.facts
    takes = bool(facts.get("negative", True))
    settings = facts.get("settings", {})
    video = facts.get("modality") == "video"

    def hint(name: str) -> Any:
        value = settings.get(name)
        return gr.Textbox(placeholder=OWN if value is None else f"{value:g}")

    return [
        state_html(state),
        gr.Textbox(interactive=takes, placeholder="a dog" if takes else _NO_NEGATIVE),
        gr.Textbox(visible=video),
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


def optional_number(label: str, name: str, **more: Any) -> gr.Textbox:
    """A box for a number that may stay empty (``gr.Number`` turns an empty one into 0)."""
    given = {"placeholder": OWN, "min_width": 90, **more}
    return gr.Textbox(label=label, elem_id=name, max_lines=1, **given)


def typed(text: str | None, name: str, *, whole: bool = True) -> float | None:
    """The number in a box; None of an empty one. Raises T2XError for anything else."""
    said = (text or "").strip()
    if not said:
        return None
    try:
        return int(said) if whole else float(said)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise T2XError(f"{name} is {said[:20]!r}; give {kind}, or leave it empty") from None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
