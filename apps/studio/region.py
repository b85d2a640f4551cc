"""What an edit may change: everywhere, or inside a box that is drawn on the picture or typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gradio as gr

from t2x.guidance.edit_plans import parsed_box

__all__ = ["region_box", "region_of", "region_text"]

_SIDES = ("Left", "Top", "Right", "Bottom")
_FORM = """<fieldset class="t2x-region"><legend>What may change</legend>
<div class="choice">
<label><input type="radio" name="t2x-region" value="" checked> Everywhere</label>
<label><input type="radio" name="t2x-region" value="box"> Inside a box</label>
</div>
<div class="sides">{sides}<p>Drag on the picture, or give its sides in percent.</p></div>
</fieldset>"""
_SIDE = (
    '<label>{name} <input type="number" min="0" max="100" step="1" inputmode="numeric" '
    'aria-label="{name} of the box, percent"></label>'
)


def region_box() -> gr.HTML:
    """The choice, not yet on the page; its value is what ``region_of`` reads."""
    sides = "".join(_SIDE.format(name=name) for name in _SIDES)
    return gr.HTML(
        "",
        render=False,
        elem_id="edit-region",
        html_template=_FORM.format(sides=sides),
        js_on_load=Path(__file__).with_name("region.js").read_text(encoding="utf-8"),
        apply_default_css=False,
    )


def region_of(text: str | None) -> tuple[float, float, float, float] | None:
    """Left, top, right, bottom in [0, 1], or None for everywhere. Raises T2XError for anything
    else."""
    if not (text or "").strip():
        return None
    return parsed_box(str(text))


def region_text(region: Sequence[float] | None) -> str:
    """The value that stands for a region."""
    return "" if region is None else ",".join(repr(float(side)) for side in region)
