"""A button that deletes something, and asks before it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from t2x.errors import T2XError

from .desk import FAST
from .live import note_line

__all__ = ["Confirm", "confirm_button"]


@dataclass
class Confirm:
    """The button, and the two that stand in its place until the question is answered."""

    ask: gr.Button
    yes: gr.Button
    no: gr.Button

    @property
    def buttons(self) -> list[Any]:
        """For lists of outputs."""
        return [self.ask, self.yes, self.no]

    def asked(self, question: str) -> dict[Any, Any]:
        """Stand the question in place of the button."""
        yes = gr.Button(question, visible=True)
        return {self.ask: gr.Button(visible=False), self.yes: yes, self.no: gr.Button(visible=True)}

    def ready(self, *, visible: bool = True) -> dict[Any, Any]:
        """As it is before it is pressed, or hidden."""
        hidden = {button: gr.Button(visible=False) for button in (self.yes, self.no)}
        return {self.ask: gr.Button(visible=visible), **hidden}

    def wire(
        self,
        question: Callable[..., str],
        do: Callable[..., dict[Any, Any]],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        said: gr.HTML,
    ) -> None:
        """``question`` gives the words of the button that really does it, ``do`` the changes; both
        take ``inputs`` and the request. T2XError of either is told in ``said``.
        """

        def attempt(what: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
            try:
                return what()
            except T2XError as error:
                return {**self.ready(), said: note_line(str(error), problem=True)}

        def ask(request: gr.Request, *given: Any) -> dict[Any, Any]:
            return attempt(lambda: self.asked(question(*given, request)))

        def done(request: gr.Request, *given: Any) -> dict[Any, Any]:
            return attempt(lambda: {**self.ready(), **do(*given, request)})

        every = list(dict.fromkeys([*self.buttons, said, *outputs]))
        self.ask.click(ask, list(inputs), [*self.buttons, said], **FAST)
        self.yes.click(done, list(inputs), every, **FAST)
        self.no.click(self.ready, None, self.buttons, **FAST)


def confirm_button(label: str, name: str, *, visible: bool = True) -> Confirm:
    """Lay it out in the row that is open; ids are ``name``, ``name-sure`` and ``name-keep``."""
    return Confirm(
        gr.Button(label, size="sm", elem_id=name, scale=0, visible=visible),
        gr.Button("", size="sm", elem_id=f"{name}-sure", variant="stop", scale=0, visible=False),
        gr.Button("Keep", size="sm", elem_id=f"{name}-keep", scale=0, visible=False),
    )
