"""What an edit decided, what it changed and what it kept, as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from t2x.evaluation.html import data_url, escaped
from t2x.studio.changes import Change
from t2x.studio.requests import EditRequest

from .words import METHODS, marked

__all__ = ["Changed", "changed_html", "decided_html"]

Changed: TypeAlias = tuple[int, Change]
"""Seed of an edited picture, and what changed in it."""


def decided_html(request: EditRequest, target: str, method: str) -> str:
    """What the edited picture shall show, with what is new in it marked, the method, and where it
    may change. ``target``: what the generator was given."""
    shown = marked(request.source_prompt, target)[1] if request.source_prompt else escaped(target)
    where = "everywhere"
    if request.region is not None:
        left, top, right, bottom = (f"{100 * side:.0f}" for side in request.region)
        where = f"inside a box: {left} to {right} % across, {top} to {bottom} % down"
    facts = {"Method": METHODS.get(method, method), "May change": where}
    rows = "".join(f"<dt>{name}</dt><dd>{escaped(fact)}</dd>" for name, fact in facts.items())
    return (
        f'<dl class="t2x-decided"><dt>Should show</dt><dd class="t2x-words">{shown}</dd>{rows}</dl>'
    )


def changed_html(
    changed: Sequence[Changed], *, region: tuple[float, float, float, float] | None
) -> str:
    """A small map for each edit: the edited picture with what stayed faded, how much that is, and
    how well the rest was kept."""
    where = "whole picture" if region is None else "outside the box"
    cells = "".join(_cell(seed, change, where) for seed, change in changed)
    return (
        '<section class="t2x-changed"><h3>What changed <small>what stayed is faded; more decibels '
        f'(PSNR) are nearer to the source</small></h3><div class="cells">{cells}</div></section>'
    )


def _cell(seed: int, change: Change, where: str) -> str:
    if change.kept_all:
        kept = f"{where} nothing"
    else:
        kept = "" if math.isnan(change.kept) else f"{where} kept to {change.kept:.1f} dB"
    share = f"{100 * change.share:.0f} % of the pixels"
    told = ", ".join(filter(None, [share, kept]))
    return (
        f'<figure><img src="{data_url(change.map)}" alt="what changed with seed {seed}: {told}">'
        f"<figcaption>seed {seed}<br>{share} changed<br>{escaped(kept)}</figcaption></figure>"
    )
