"""What rewards say, as HTML: a bar for each arm, against the user's own words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from t2x.evaluation.html import escaped
from t2x.reward_facts import FACTS
from t2x.studio.events import Scored

__all__ = ["ARMS", "bars_html", "number"]

_NOTHING = 5e-4  # of a value, what the eye would not see in a bar
ARMS = {
    "original": "Your words",
    "rewritten": "Rewrite",
    "plain": "Unsteered",
    "guided": "Steered",
    "source": "Before",
    "edited": "After",
}


def bars_html(scores: Sequence[Scored], *, against: str = "your own words") -> str:
    """One block for each reward: its name and what it measures, and the mean of each arm as a bar
    with its number; what is not measured says why. The longest bar is the largest value that the
    reward can have, or of these where it has no bound. ``against``: the words that it was asked.
    """
    if not scores:
        return ""
    blocks = "".join(_block(score) for score in scores)
    return (
        '<section class="t2x-bars" aria-label="Rewards"><h3>Rewards '
        f"<small>against {escaped(against)}, mean over pictures</small></h3>"
        f'<div class="grid">{blocks}'
        "</div></section>"
    )


def number(value: float) -> str:
    """Three significant digits, "–" for what is not measured."""
    return "–" if math.isnan(value) else f"{value:.3g}"


def _block(score: Scored) -> str:
    means = {arm: _mean(values) for arm, values in score.values.items()}
    known = [mean for mean in means.values() if not math.isnan(mean)]
    best = max(known, default=math.nan)
    rows = "".join(
        _row(arm, mean, _share(mean, known, score.range), leads=len(known) > 1 and mean == best)
        for arm, mean in means.items()
        if not math.isnan(mean)
    )
    if not known:
        why = score.problem or "the reward gave no number"
        rows = f'<p class="missing">not measured: {escaped(why)}</p>'
    elif missing := sum(math.isnan(v) for values in score.values.values() for v in values):
        many = "picture is" if missing == 1 else "pictures are"
        rows += f'<p class="missing">{missing} {many} not measured</p>'
    facts = FACTS.get(score.reward)
    about = f"<small>{escaped(facts.measures)}</small>" if facts else ""
    return (
        f'<div class="reward" data-reward="{escaped(score.reward)}">'
        f"<h4>{escaped(score.reward)}{_change(means)}</h4>{about}{rows}</div>"
    )


def _row(arm: str, mean: float, share: float, *, leads: bool) -> str:
    return (
        f'<div class="bar {escaped(arm)}{" leads" if leads else ""}">'
        f"<span>{escaped(ARMS.get(arm, arm))}</span>"
        f'<i><b style="width:{100 * share:.1f}%"></b></i><em>{number(mean)}</em></div>'
    )


def _change(means: Mapping[str, float]) -> str:
    """What the second arm gains over the first."""
    if len(means) != 2 or any(math.isnan(mean) for mean in means.values()):
        return ""
    first, second = means.values()
    gain = second - first
    if abs(gain) < _NOTHING * max(abs(first), abs(second), 1.0):
        return ' <span class="change same">±0</span>'
    return f' <span class="change {"up" if gain > 0 else "down"}">{gain:+.2g}</span>'


def _share(mean: float, means: Sequence[float], bounds: tuple[float, float]) -> float:
    """Length of a bar in [0, 1]; a little is left where all values are the lowest."""
    low, high = bounds
    if not math.isfinite(low):
        low = min(0.0, *means)
    if not math.isfinite(high):
        high = max(0.0, *means)
    return min(1.0, max(0.01, (mean - low) / (high - low))) if high > low else 1.0


def _mean(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
