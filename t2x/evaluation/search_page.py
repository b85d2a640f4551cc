"""``history.html``: how the texts of a search converged over its rounds, in one file that works
offline. Each round's candidates with their pictures and scores, the winner and what it descends
from, what was refused and why, what was spent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.evaluation.html import data_url, escaped, fill_page
from t2x.plain import plain

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.search.history import History
    from t2x.search.records import Candidate, Shot

FILES = ("history.html", "history.json", "best.png")
_WIDE, _HIGH, _EDGE = 900, 260, 46  # the chart, in its own units
_TITLE = 80

__all__ = ["FILES", "history_page", "picture_of", "write_history"]


def write_history(history: History, folder: Path) -> list[Path]:
    """Write ``FILES`` into a folder that is there; without a measured picture, no best.png."""
    from t2x.media import save_png

    record = json.dumps(plain(history.record()), ensure_ascii=False, indent=2, allow_nan=False)
    written = [folder / name for name in FILES[: 2 + (history.shot is not None)]]
    try:
        written[0].write_text(history_page(history), encoding="utf-8")
        written[1].write_text(record + "\n", encoding="utf-8")
        if history.shot is not None:
            text = history.candidates[history.shot_of].rewrite.text
            meta = {"prompt": history.prompt, "text": text, "seed": str(history.shot.seed)}
            save_png(history.shot.frame, written[2], text=meta)
    except OSError as error:
        raise T2XError(f"cannot write into {str(folder)!r}: {error}") from error
    return written


def history_page(history: History) -> str:
    """Write the page. The same history gives the same text, but for the seconds."""
    prompt = history.prompt
    short = prompt if len(prompt) <= _TITLE else f"{prompt[:_TITLE]}..."
    return fill_page(
        "search.html",
        title=escaped(f"t2x search: {short}"),
        heading=escaped(prompt if len(prompt) <= 3 * _TITLE else short),
        summary=escaped(_summary(history)),
        fairness=_fairness(history),
        arms=_arms(history),
        chart=_chart(history),
        rounds="\n".join(_round(history, turn) for turn in _turns(history)),
        refused=_refused(history),
        cost=_cost(history),
        settings=_pairs(history.settings.items()),
    )


def picture_of(shot: Shot) -> Image:
    """The picture of a shot; of a video the middle frame."""
    from t2x.media import to_pil

    return to_pil(shot.frame.unsqueeze(0))[0]


# ---- the top of the page ------------------------------------------------------------------------


def _summary(history: History) -> str:
    own, best = history.candidates[0].mean(), history.winner.mean()
    tried = len(history.candidates) - 1
    if math.isnan(best):
        return "Nothing could be scored; the user's own words stay."
    if history.winner.number == 0:
        return f"None of {tried} other texts scored higher than the user's own words ({own:.4f})."
    return f"{own:.4f} for the user's own words, {best:.4f} for the best of {tried} other texts."


def _fairness(history: History) -> str:
    number = history.cost.pictures
    seeds = history.settings.get("seeds", 1)
    noise = "one seed" if seeds == 1 else f"{seeds} seeds"
    return (
        f"{number} pictures were drawn. Every score is taken against the user's own words, and "
        f"every text was drawn from the same {noise} first; what one seed says of a text is one "
        f"draw. Texts that led may have been drawn from more.{_noise(history)}"
    )


def _noise(history: History) -> str:
    noise = history.noise()
    return "" if math.isnan(noise) else f" Seeds alone moved a score by about {noise:.4f}."


def _arms(history: History) -> str:
    rows = (
        ("original", "The user's own words", history.candidates[0], ""),
        ("rewritten", "The winner", history.winner, history.winner.operator),
    )
    return "\n".join(
        f'<div class="arm {kind}"><h3>{title}'
        + (f'<span class="status accepted">{escaped(operator)}</span>' if operator else "")
        + f'</h3><p class="prompt">{escaped(c.rewrite.text)}</p>{_negative(c)}</div>'
        for kind, title, c, operator in rows
    )


def _negative(candidate: Candidate) -> str:
    negative = candidate.rewrite.negative
    return f'<p class="muted">Negative prompt: {escaped(negative)}</p>' if negative else ""


# ---- the chart ----------------------------------------------------------------------------------


def _chart(history: History) -> str:
    """Mean score of every candidate by round, the best so far, and the lines of descent."""
    shown = [c for c in history.candidates if not math.isnan(c.mean())]
    if not shown:
        return '<p class="muted">No candidate was measured.</p>'
    place = _Scale(shown)
    lineage = set(history.lineage())
    lines = []
    for c in shown:
        for parent in (p for p in shown if p.number in c.parents):
            own = c.number in lineage and parent.number in lineage
            style = "stroke:var(--after);stroke-width:2" if own else "stroke:var(--line)"
            (x1, y1), (x2, y2) = place.at(parent), place.at(c)
            lines.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" style="{style}"/>')
    dots = "".join(_dot(c, place, lineage, history.winner.number) for c in shown)
    best = " ".join(f"{x},{y}" for x, y in place.best())
    label = 'style="fill:var(--muted);font-size:13px"'
    return (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="scores by round">'
        f'<polyline points="{best}" style="fill:none;stroke:var(--better);stroke-dasharray:5 4"/>'
        f"{''.join(lines)}{dots}"
        f'<text x="4" y="16" {label}>score {place.high:.4f}</text>'
        f'<text x="4" y="{_HIGH - _EDGE // 2 - 6}" {label}>{place.low:.4f}</text>'
        + "".join(
            f'<text x="{place.column(turn)}" y="{_HIGH - 6}" text-anchor="middle" {label}>'
            f"round {turn}</text>"
            for turn in place.turns
        )
        + '</svg><p class="muted">A dot is a text, its height the mean score of its pictures; the '
        "dashed line is the best so far, blue is the winner and what it descends from.</p>"
    )


class _Scale:
    """Where rounds and scores lie in the chart; texts of one round stand beside each other."""

    def __init__(self, shown: Sequence[Candidate]) -> None:
        self.shown = shown
        self.turns = sorted({c.turn for c in shown})
        values = [c.mean() for c in shown]
        self.low, self.high = min(values), max(values)

    def column(self, turn: int) -> float:
        step = (_WIDE - 3 * _EDGE) / max(len(self.turns) - 1, 1)
        return round(2 * _EDGE + self.turns.index(turn) * step, 1)

    def at(self, candidate: Candidate) -> tuple[float, float]:
        same = [c.number for c in self.shown if c.turn == candidate.turn]
        aside = (same.index(candidate.number) - (len(same) - 1) / 2) * 12
        return round(self.column(candidate.turn) + aside, 1), self.height(candidate.mean())

    def height(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return round(_HIGH - _EDGE - (value - self.low) / span * (_HIGH - 1.6 * _EDGE), 1)

    def best(self) -> list[tuple[float, float]]:
        """The best mean up to each round."""
        return [
            (self.column(t), self.height(max(c.mean() for c in self.shown if c.turn <= t)))
            for t in self.turns
        ]


def _dot(candidate: Candidate, place: _Scale, lineage: set[int], winner: int) -> str:
    x, y = place.at(candidate)
    colour = "--after" if candidate.number in lineage else "--before"
    radius = 7 if candidate.number == winner else 5
    return (
        f'<circle cx="{x}" cy="{y}" r="{radius}" style="fill:var({colour})">'
        f"<title>{escaped(candidate.number)}: {escaped(candidate.rewrite.text)}</title></circle>"
    )


# ---- round by round -----------------------------------------------------------------------------


def _turns(history: History) -> list[int]:
    return sorted({c.turn for c in history.candidates})


def _round(history: History, turn: int) -> str:
    title = "The user's own words" if turn == 0 else f"Round {turn}"
    lineage = set(history.lineage())
    cards = "\n".join(
        _card(history, c, c.number in lineage) for c in history.candidates if c.turn == turn
    )
    return f'<h2>{title}</h2>\n<section class="pairs">\n{cards}\n</section>'


def _card(history: History, candidate: Candidate, ancestor: bool) -> str:
    badge = ""
    if candidate.number == history.winner.number:
        badge = '<span class="status accepted">winner</span>'
    elif ancestor:
        badge = '<span class="status">the winner descends from it</span>'
    parents = ", ".join(map(str, candidate.parents))
    origin = escaped(candidate.operator) + (f" of {parents}" if parents else "")
    shots = "\n".join(
        f'<figure><img class="shot" alt="seed {s.seed}" src="{data_url(picture_of(s))}">'
        f"<figcaption>seed {s.seed}: {_number(s.score)}</figcaption></figure>"
        for s in candidate.shots.values()
    )
    return (
        f'<div class="pair"><h3>{candidate.number}. {origin}{badge}</h3>\n'
        f'<p class="prompt">{escaped(candidate.rewrite.text)}</p>{_negative(candidate)}\n'
        f'<div class="shots">\n{shots}\n</div>\n{_measured(candidate)}</div>'
    )


def _measured(candidate: Candidate) -> str:
    """Means of the rewards, key points and remarks."""
    names = dict.fromkeys(n for s in candidate.shots.values() for n in s.scores)
    rows = [(n, _mean([s.scores[n] for s in candidate.shots.values()])) for n in names]
    rows += [(f"key point: {name}", value) for name, value in candidate.points.items()]
    cells = "\n".join(
        f'<tr><td>{escaped(name)}</td><td class="n">{_number(value)}</td></tr>'
        for name, value in rows
    )
    said = "".join(f'<p class="muted">Critique: {escaped(r)}</p>' for r in candidate.remarks)
    return f"<table><tbody>\n{cells}\n</tbody></table>{said}"


def _refused(history: History) -> str:
    if not history.refusals:
        return '<p class="muted">Nothing was refused.</p>'
    rows = "\n".join(
        f"<tr><td>{r.turn}</td><td>{escaped(r.operator)}</td><td>{escaped(r.text)}</td>"
        f"<td>{escaped(r.reason)}</td></tr>"
        for r in history.refusals
    )
    head = "<tr><th>round</th><th>operator</th><th>text</th><th>why</th></tr>"
    return (
        f'<div class="scroll"><table><thead>{head}</thead><tbody>\n{rows}\n</tbody></table></div>'
    )


def _cost(history: History) -> str:
    cost = history.cost
    rows: list[tuple[str, Any]] = [
        ("pictures", cost.pictures),
        ("reward calls", cost.reward_calls),
        ("texts asked of a model", cost.lm_calls),
        *((f"seconds of {phase}", f"{s:.2f}") for phase, s in sorted(cost.seconds.items())),
    ]
    if not math.isnan(cost.flops):
        rows.append(("FLOPs", f"{cost.flops:.3g}"))
    return _pairs(rows)


def _pairs(rows: Iterable[tuple[str, Any]]) -> str:
    body = "\n".join(f"<dt>{escaped(k)}</dt><dd>{escaped(_flat(v))}</dd>" for k, v in rows)
    return f"<dl>\n{body}\n</dl>"


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "not measured"
