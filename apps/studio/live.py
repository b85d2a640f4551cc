"""What is seen while a job runs, as HTML: one calm line, and of guided sampling the strip of x0_hat
with the curves of the rewards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from t2x.evaluation.html import data_url, escaped
from t2x.media import spaced
from t2x.studio.events import Cancelled, Event, Failed, GuidanceStep, Progress, Waiting

from .bars import number

__all__ = ["Pace", "curves_html", "note_line", "status_line", "strip_html"]

SHOWN = 8  # thumbnails at most
WIDTH, HEIGHT, EDGE = 220, 64, 4  # of a curve, in pixels of its own


def status_line(event: Event) -> str:
    """The line of an event: what goes on and how long it will take, or how it ended; "" for events
    that are seen elsewhere."""
    if isinstance(event, Waiting):
        if not event.place:
            return _line("Starting…")
        jobs = "1 job is" if event.place == 1 else f"{event.place} jobs are"
        return _line(f"Waiting: {jobs} before yours.")
    if isinstance(event, Progress):
        return _progress(event)
    if isinstance(event, Failed):
        return note_line(event.message, problem=True)
    if isinstance(event, Cancelled):
        kept = {0: "", 1: " One picture was finished."}
        return _line("Stopped." + kept.get(event.pictures, f" {event.pictures} were finished."))
    return ""


def note_line(text: str, *, problem: bool = False) -> str:
    """A line that stays: a problem, told to screen readers at once, or a note."""
    kind, role = ("problem", "alert") if problem else ("note", "status")
    first, _, rest = text.partition(" ")
    if not any(mark in first.rstrip(".,:;") for mark in "._/"):  # the name of a file stays as it is
        first = first[:1].upper() + first[1:]
    shown = f"{first} {rest}" if rest else first
    return f'<div class="t2x-status {kind}" role="{role}">{escaped(shown)}</div>'


def _line(text: str, share: float | None = None, left: str = "") -> str:
    bar = "" if share is None else f'<i><b style="width:{100 * share:.0f}%"></b></i>'
    return (
        f'<div class="t2x-status" role="status"><span>{escaped(text)}</span>{bar}<em>{left}</em>'
        "</div>"
    )


def _progress(event: Progress) -> str:
    inside = event.step / event.steps if event.steps else 0.0
    share = min(1.0, (event.done + inside) / event.total) if event.total else 0.0
    counted = f" · {min(event.done + 1, event.total)} of {event.total}" if event.total > 1 else ""
    left = ""
    if event.seconds_left is not None and event.seconds_left >= 1:
        left = _duration(event.seconds_left)
    what = event.what[:1].upper() + event.what[1:]
    return _line(what + counted, share, left)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s left" if minutes else f"{rest} s left"


def strip_html(steps: Sequence[GuidanceStep]) -> str:
    """What the denoiser expected over the steps of one picture, evenly spaced, the last one too."""
    seen = [step for step in steps if step.thumbnail is not None]
    if not seen:
        return ""
    cells = []
    for i in spaced(len(seen), SHOWN):
        step, picture = seen[i], seen[i].thumbnail
        assert picture is not None
        cells.append(
            f'<figure><img src="{data_url(picture)}" alt="step {step.step + 1}">'
            f"<figcaption>{step.step + 1}</figcaption></figure>"
        )
    last = steps[-1]
    return (
        f'<section class="t2x-strip"><h3>What the model expects <small>seed {last.seed}, step '
        f'{last.step + 1} of {last.steps}</small></h3><div class="cells">{"".join(cells)}</div>'
        "</section>"
    )


def curves_html(steps: Sequence[GuidanceStep]) -> str:
    """One small curve for each reward that steers, over the steps of one picture."""
    if not steps:
        return ""
    names = list(dict.fromkeys(name for step in steps for name in step.values))
    total = max(step.steps for step in steps)
    if steps[-1].step + 1 >= total:  # done: only the steps that were measured are left to show
        total = 1 + max(
            (s.step for s in steps if any(map(math.isfinite, s.values.values()))), default=0
        )
    curves = "".join(
        _curve(name, [(s.step, s.values.get(name, math.nan)) for s in steps], total)
        for name in names
    )
    return f'<section class="t2x-curves" aria-label="Rewards over the steps">{curves}</section>'


def _curve(name: str, points: Sequence[tuple[int, float]], total: int) -> str:
    known = [(step, value) for step, value in points if math.isfinite(value)]
    if not known:
        return (
            f'<figure data-reward="{escaped(name)}"><figcaption><b>{escaped(name)}</b> '
            "<span>not measured</span></figcaption></figure>"
        )
    low, high = min(v for _, v in known), max(v for _, v in known)
    spread = high - low or 1.0
    placed = [
        (
            EDGE + (WIDTH - 2 * EDGE) * step / max(1, total - 1),
            HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * ((value - low) / spread if high > low else 0.5),
        )
        for step, value in known
    ]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    x, y = placed[-1]
    return (
        f'<figure data-reward="{escaped(name)}"><figcaption><b>{escaped(name)}</b> '
        f"<span>{number(known[0][1])} → {number(known[-1][1])}</span></figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" preserveAspectRatio="none" '
        f'aria-label="{escaped(name)} over the steps"><polyline points="{path}" '
        f'vector-effect="non-scaling-stroke"/></svg>'
        f'<i style="left:{100 * x / WIDTH:.1f}%;bottom:{HEIGHT - y:.1f}px"></i></figure>'
    )


class Pace:
    """Lets a page be told at most every ``seconds``: a browser gains nothing from more."""

    def __init__(self, seconds: float = 0.2) -> None:
        self._seconds, self._last = seconds, -math.inf

    def due(self) -> bool:
        """Whether it is time again."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True
