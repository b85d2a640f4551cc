"""How rewards steer: which, how much, in what way, and for how many evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.errors import T2XError
from t2x.guidance.recipe import MODES
from t2x.studio.requests import GuideRequest, Request

from .desk import FAST
from .settings_panel import optional_number, reward_choices, typed

__all__ = ["GuidancePanel", "RewardRows", "guidance_panel", "reward_rows"]

_MOST = 3.0  # of a weight, on its slider
_START = (("questions", 1.0), ("clip", 0.3), ("", 0.3))
_TITLES = {
    "E": "Gently",
    "J": "Firmly",
    "particles": "Best of several",
    "E+particles": "Gently, best of several",
    "J+particles": "Firmly, best of several",
    "noise": "From a better start",
    "search": "Draw many, keep one",
}
_TERMS = {  # of modes that ``MODES`` tells by others
    "E+particles": "gradients through the decoder, and trajectories that compete",
    "J+particles": "gradients through decoder and denoiser, and trajectories that compete",
}


@dataclass
class RewardRows:
    """Rewards that steer, each with its weight; their values come back through ``weights``."""

    names: list[gr.Dropdown]
    amounts: list[gr.Slider]

    @property
    def inputs(self) -> set[Any]:
        """What a handler needs to steer."""
        return {*self.names, *self.amounts}

    def weights(self, given: Mapping[Any, Any]) -> dict[str, float]:
        """Weight of each reward that is chosen; of one that is chosen twice the sum."""
        found: dict[str, float] = {}
        for name, amount in zip(self.names, self.amounts, strict=True):
            if given[name] and given[amount]:
                found[given[name]] = found.get(given[name], 0.0) + float(given[amount])
        return found

    def filled(self, weights: Mapping[str, float]) -> dict[Any, Any]:
        """Updates after which ``weights`` gives the same back. Raises T2XError for more rewards
        than there are rows."""
        if len(weights) > len(self.names):
            raise T2XError(
                f"the recipe steers by {len(weights)} rewards, and the form takes "
                f"{len(self.names)}; draw it again from the history"
            )
        rows = [*weights.items(), *[("", 0.3)] * (len(self.names) - len(weights))]
        changes: dict[Any, Any] = {}
        for name, amount, (reward, weight) in zip(self.names, self.amounts, rows, strict=True):
            changes[name] = gr.Dropdown(_choices([reward] if reward else []), value=reward)
            changes[amount] = gr.Slider(
                value=weight,
                minimum=min(0, weight),
                maximum=max(_MOST, weight),
                interactive=bool(reward),
            )
        return changes


@dataclass
class GuidancePanel:
    """The components; their values come back through ``asked``."""

    group: gr.Group
    rows: RewardRows
    mode: gr.Radio
    budget: gr.Textbox

    @property
    def inputs(self) -> set[Any]:
        """What a handler needs to steer."""
        return self.rows.inputs | {self.mode, self.budget}

    @property
    def outputs(self) -> list[Any]:
        """What ``filled`` changes."""
        return [*self.rows.names, *self.rows.amounts, self.mode, self.budget, self.group]

    def asked(self, given: Mapping[Any, Any]) -> dict[str, Any]:
        """The fields of a ``GuideRequest`` that this panel decides. Raises T2XError."""
        budget = typed(given[self.budget], "budget")
        return {
            "weights": self.rows.weights(given),
            "mode": given[self.mode],
            "budget": None if budget is None else int(budget),
        }

    def filled(self, request: Request) -> dict[Any, Any]:
        """Updates after which ``asked`` gives the same back; the panel is shown if the request
        steers. Raises T2XError for one that the panel has no room for."""
        if not isinstance(request, GuideRequest):
            return {self.group: gr.Group(visible=False)}
        return {
            **self.rows.filled(request.weights),
            self.mode: gr.Radio(value=request.mode, info=_help(request.mode)),
            self.budget: "" if request.budget is None else str(request.budget),
            self.group: gr.Group(visible=True),
        }


def _choices(more: list[str]) -> list[tuple[str, str]]:
    known = [name for name, _ in _START if name]
    return [("none", ""), *reward_choices(list(dict.fromkeys([*more, *known])))]


def reward_rows(start: Sequence[tuple[str, float]], *, prefix: str) -> RewardRows:
    """Lay out a row for each reward that may steer, from which ones and weights; ``prefix`` begins
    their ids."""
    names, amounts = [], []
    with gr.Row(elem_classes="fields rewards"):
        for number, (name, weight) in enumerate(start, 1):
            with gr.Row(elem_classes="reward-row"):
                names.append(
                    gr.Dropdown(
                        _choices([]), value=name, label=f"Reward {number}", min_width=130,
                        elem_id=f"{prefix}reward-{number}",
                    )
                )  # fmt: skip
                amounts.append(
                    gr.Slider(
                        0, _MOST, weight, step=0.05, label=f"Weight {number}", min_width=130,
                        elem_id=f"{prefix}weight-{number}", interactive=bool(name),
                    )
                )  # fmt: skip
            names[-1].change(_weighable, names[-1], amounts[-1], **FAST)
    return RewardRows(names, amounts)


def _weighable(name: str) -> gr.Slider:
    """The weight of a reward: there is nothing to weigh without one."""
    return gr.Slider(interactive=bool(name))


def guidance_panel(*, visible: bool = False) -> GuidancePanel:
    """Lay the panel out."""
    with gr.Group(visible=visible, elem_id="guidance", elem_classes="panel") as group:
        rows = reward_rows(_START, prefix="steer-")
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
                "Effort",
                "steer-budget",
                placeholder="as usual",
                info="budget in denoiser evaluations",
                min_width=150,
            )
        mode.change(
            lambda name: gr.Radio(info=_help(name)),
            mode,
            mode,
            **FAST,
        )
    return GuidancePanel(group, rows, mode, budget)


def _help(name: str) -> str:
    """What a mode is in the terms of the field."""
    about = _TERMS.get(name, MODES[name].about)
    needs = "; needs rewards with gradients" if MODES[name].steered else ""
    return f"mode {name}: {about}{needs}"
