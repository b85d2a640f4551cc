"""What comes from a browser or a program, before a handler has it: what can't be used is refused in
one line, without a traceback in the log and without what gradio would tell of this machine.
"""

from __future__ import annotations

import logging
import math
from abc import ABCMeta
from collections.abc import Sequence
from typing import Any

import gradio as gr
from gradio.component_meta import ComponentMeta
from PIL import Image

from t2x.failures import first_line

__all__ = ["Page", "PictureFile", "WholeNumber", "refusal"]

log = logging.getLogger(__name__)


def refusal(message: str) -> gr.Error:
    """What to raise for a caller's own mistake: the log has no traceback of it."""
    return gr.Error(message, print_exception=False)


class Page(gr.Blocks):
    """A page whose events take what they can use, or say in one line that they can't."""

    def validate_inputs(self, block_fn: Any, inputs: Sequence[Any]) -> None:
        """Too few values; what is too much is left out."""
        if len(inputs) < (wanted := len(block_fn.inputs)):
            labels = [getattr(block, "label", None) or "?" for block in block_fn.inputs]
            raise refusal(f"{len(inputs)} values came, and {wanted} belong here: {_list(labels)}")

    async def preprocess_data(
        self, block_fn: Any, inputs: list[Any], *more: Any, **how: Any
    ) -> Any:
        """Values as handlers get them; gradio's own words name components and paths."""
        try:
            return await super().preprocess_data(block_fn, inputs, *more, **how)
        except gr.Error:
            raise
        except Exception as error:
            log.warning("a request can't be used: %s", first_line(error))
            raise refusal(
                "a value of this request can't be used: its kind is wrong, or it names a file that "
                "was not uploaded here"
            ) from None


def _list(labels: Sequence[str]) -> str:
    return ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")


class _Quiet(ComponentMeta):
    """Makes a component's class without writing stubs for editors beside this file."""

    def __new__(cls, name: str, bases: Any, attributes: Any) -> Any:
        return ABCMeta.__new__(cls, name, bases, attributes)


class PictureFile(gr.Image, metaclass=_Quiet):
    """A picture as the path of what was uploaded, whatever that is: ``read_dropped`` judges it, in
    words that fit. gradio would open it first, and fail in its own. For ``type="filepath"``."""

    is_template = True

    def preprocess(self, payload: Any) -> Any:
        """The path; pixels that were sent inside of the request become a file."""
        if payload is None or not (payload.path or payload.url):
            return None
        if payload.url and payload.url.startswith("data:"):
            try:
                return super().preprocess(payload)
            except (ValueError, OSError, gr.Error, Image.DecompressionBombError):
                raise refusal(
                    "the picture in the request is damaged; upload it as a file"
                ) from None
        return payload.path


class WholeNumber(gr.Number, metaclass=_Quiet):
    """A number without a fraction, which must be given."""

    is_template = True

    def preprocess(self, payload: Any) -> Any:
        """An int. Raises gr.Error for anything else, null too."""
        number = isinstance(payload, int | float) and not isinstance(payload, bool)
        if not number or not math.isfinite(payload) or payload != int(payload):
            given = "null" if payload is None else repr(payload)[:40]
            raise refusal(f"{self.label} is {given}; give a whole number")
        return int(payload)
