"""How rewards steer: which, how much, in what way, and for how many evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.guidance.recipe import MODES

from .desk import FAST
from .settings_panel import optional_number, reward_choices, typed

__all__ = ["GuidancePanel", "guidance_panel"]

_START = (("questions", 1.0), ("clip", 0.3), ("", 0.3))
_TITLES = {
    "E": "Decoder",
    "J": "Decoder and denoiser",
    "particles": "Particles",
    "E+particles": "Decoder + particles",
    "J+particles": "Denoiser + particles",
    "noise": "First noise",
    "search": "Search",
}


@dataclass
class GuidancePanel:
    """The components; their values come back through ``weights``."""

    group: gr.Group
    names: list[gr.Dropdown]
    amounts: list[gr.Slider]
    mode: gr.Radio
    budget: gr.Textbox

    @property
    def inputs(self) -> set[Any]:
        """What a handler needs to steer."""
        return {*self.names, *self.amounts, self.mode, self.budget}

    def weights(self, given: Mapping[Any, Any]) -> dict[str, float]:
        """Weight of each reward that is chosen; of one that is chosen twice the sum."""
        found: dict[str, float] = {}
        for name, amount in zip(self.names, self.amounts, strict=True):
            if given[name] and given[amount]:
                found[given[name]] = found.get(given[name], 0.0) + float(given[amount])
        return found

    def asked(self, given: Mapping[Any, Any]) -> dict[str, Any]:
        """The fields of a ``GuideRequest`` that this panel decides. Raises T2XError."""
        budget = typed(given[self.budget], "budget")
        return {
            "weights": self.weights(given),
            "mode": given[self.mode],
            "budget": None if budget is None else int(budget),
        }


def guidance_panel(*, visible: bool = False) -> GuidancePanel:
    """Lay the panel out."""
    names, amounts = [], []
    with gr.Group(visible=visible, elem_id="guidance", elem_classes="panel") as group:
        with gr.Row(elem_classes="fields rewards"):
            for number, (name, weight) in enumerate(_START, 1):
                with gr.Column(min_width=220):
                    choices = reward_choices([n for n, _ in _START if n])
                    names.append(
                        gr.Dropdown(
                            [("none", ""), *choices],
                            value=name,
                            label=f"Reward {number}",
                            elem_id=f"steer-reward-{number}",
                        )
                    )
                    amounts.append(
                        gr.Slider(
                            0,
                            3,
                            weight,
                            step=0.05,
                            label="Weight",
                            elem_id=f"steer-weight-{number}",
                        )
                    )
        with gr.Row(elem_classes="fields"):
            mode = gr.Radio(
                [(_TITLES.get(name, name), name) for name in MODES],
                value="J",
                label="How",
                info=_help("J"),
                elem_id="steer-mode",
                elem_classes="pills",
                min_width=320,
                scale=4,
            )
            budget = optional_number(
                "Budget",
                "steer-budget",
                placeholder="mode's own",
                info="denoiser evaluations",
                min_width=150,
            )
        mode.change(
            lambda name: gr.Radio(info=_help(name)),
            mode,
            mode,
            **FAST,
        )
    return GuidancePanel(group, names, amounts, mode, budget)


def _help(name: str) -> str:
    about = MODES[name].about
    needs = "" if not MODES[name].steered else "; needs rewards with gradients"
    return f"{about}{needs}"
