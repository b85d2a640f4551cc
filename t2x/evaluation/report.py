"""``report.html``: everything about one comparison in a single file that works offline.

Style and pictures are inside, there is no script, every text is escaped, and the page's own
security policy forbids it to load anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from t2x.evaluation.html import data_url, escaped, fill_page
from t2x.evaluation.side_by_side import ARMS

if TYPE_CHECKING:
    from t2x.evaluation.side_by_side import RewardColumn, SideBySide

_TITLE = 80  # characters of the prompt in the browser's tab

__all__ = ["report_page"]


def report_page(result: SideBySide) -> str:
    """Write the page. The same result gives the same text; seconds are left out."""
    prompt = result.prompt if len(result.prompt) <= _TITLE else f"{result.prompt[:_TITLE]}..."
    return fill_page(
        "page.html",
        title=escaped(f"t2x: {prompt}"),
        heading=escaped(result.prompt if len(result.prompt) <= 3 * _TITLE else prompt),
        summary=escaped(result.summary()),
        fairness=_fairness(result),
        arms="\n".join(_arm(result, arm) for arm in ARMS),
        pairs="\n".join(_pair(result, i) for i in range(len(result.seeds))),
        scores=_score_table(result),
        rewrite=_rewrite(result),
        settings=_settings(result),
        again=_again(result),
    )


def _fairness(result: SideBySide) -> str:
    count = len(result.seeds)
    noise = "seed" if count == 1 else f"{count} seeds"
    origin = "The prompt was picked from t2x's own examples. " if result.picked else ""
    return (
        f"{origin}Both sides start from the same {noise}; every score is taken against the "
        f"original prompt. {count} {'pair is' if count == 1 else 'pairs are'} an example, not a "
        "measurement: <code>t2x world eval</code> compares on a thousand held-out prompts."
    )


def _arm(result: SideBySide, arm: str) -> str:
    rewritten = arm == "rewritten"
    status = result.rewrite.status if rewritten else ""
    badge = f'<span class="status {escaped(status)}">{escaped(status)}</span>' if rewritten else ""
    prompt = result.rewrite.text if rewritten else result.prompt
    more = ""
    if rewritten and result.rewrite.negative:
        more += f'<p class="muted">Negative prompt: {escaped(result.rewrite.negative)}</p>'
    if rewritten and not result.changed:
        more += '<p class="muted">The user\'s own words were used again.</p>'
        more += "".join(f'<p class="muted">Why: {escaped(reason)}</p>' for reason in result.reasons)
    return (
        f'<div class="arm {arm}"><h3>{arm.capitalize()}{badge}</h3>'
        f'<p class="prompt">{escaped(prompt)}</p>{more}</div>'
    )


def _pair(result: SideBySide, index: int) -> str:
    """Both pictures of one seed, and their scores."""
    seed = result.seeds[index]
    shots = "\n".join(
        f'<figure><img class="shot" alt="{arm}, seed {seed}" '
        f'src="{data_url(result.pictures[arm][index])}"><figcaption>{arm}</figcaption></figure>'
        for arm in ARMS
    )
    rows = "\n".join(_pair_row(reward, index) for reward in result.rewards)
    table = f"<table><tbody>\n{rows}\n</tbody></table>" if rows else ""
    return (
        f'<div class="pair"><h3>seed {seed}</h3>\n<div class="shots">\n{shots}\n</div>{table}</div>'
    )


def _pair_row(reward: RewardColumn, index: int) -> str:
    before, after = reward.original[index], reward.rewritten[index]
    kind = "better" if after > before else "worse" if after < before else ""
    return (
        f'<tr><td>{escaped(reward.name)}</td><td class="n">{_number(before)}</td>'
        f'<td class="n {kind}">{_number(after)}</td></tr>'
    )


def _score_table(result: SideBySide) -> str:
    if not result.rewards:
        return '<p class="muted">No reward was asked for.</p>'
    head = "".join(
        f"<th{' class=n' if numeric else ''}>{name}</th>"
        for name, numeric in (
            ("reward", False),
            ("original", True),
            ("rewritten", True),
            ("difference", True),
            ("seeds won / lost", True),
            ("what it says", False),
        )
    )
    rows = "\n".join(map(_score_row, result.rewards))
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{rows}\n'
        '</tbody></table></div><p class="muted">Means over the seeds that were measured on both '
        "sides; higher is better.</p>"
    )


def _score_row(reward: RewardColumn) -> str:
    means = {arm: reward.mean(arm) for arm in ARMS}
    change = reward.difference
    kind = "better" if change > 0 else "worse" if change < 0 else ""
    low, high = (f"{end:g}" if math.isfinite(end) else "open" for end in reward.range)
    about = f"{escaped(reward.scale)} <span class=muted>({low} to {high})</span>"
    if reward.problem:
        about = f'<span class="muted">not measured: {escaped(reward.problem)}</span>'
    elif reward.missing:
        about += f'<br><span class="muted">{reward.missing} scores not measured</span>'
    bars = "".join(
        f'<div class="bar"><i class="{arm}" style="width:{reward.share(mean):.1%}"></i></div>'
        for arm, mean in means.items()
        if math.isfinite(mean)
    )
    signed = f"{change:+.4f}" if change else _number(change)
    return (
        f"<tr><td>{escaped(reward.name)}{bars}</td>"
        + "".join(f'<td class="n">{_number(means[arm])}</td>' for arm in ARMS)
        + f'<td class="n {kind}">{signed if math.isfinite(change) else _number(change)}</td>'
        + f'<td class="n">{reward.won} / {reward.lost}</td><td>{about}</td></tr>'
    )


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "not measured"


def _rewrite(result: SideBySide) -> str:
    rewrite = result.rewrite
    rows = "\n".join(
        f'<tr><td class="{"better" if check.passed else "worse"}">'
        f"{'passed' if check.passed else 'not passed'}</td><td>{escaped(check.name)}</td>"
        f"<td>{escaped(check.reason)}</td></tr>"
        for check in rewrite.checks
    )
    parts = [f"<p>{escaped(rewrite.model_id)}, seed {rewrite.seed}, status {rewrite.status}.</p>"]
    if rewrite.reasoning:
        parts.append(
            f'<p class="muted">What it thought:</p><pre>{escaped(rewrite.reasoning)}</pre>'
        )
    if rewrite.raw and not result.changed:
        parts.append(f'<p class="muted">What it wrote:</p><pre>{escaped(rewrite.raw)}</pre>')
    if rows:
        head = "<tr><th></th><th>check</th><th>reason</th></tr>"
        parts.append(
            f'<div class="scroll"><table><thead>{head}</thead><tbody>\n{rows}\n'
            "</tbody></table></div>"
        )
    return "\n".join(parts)


def _settings(result: SideBySide) -> str:
    values: dict[str, Any] = {
        "generator": result.generator,
        "rewriter": result.rewrite.model_id,
        "seeds": ", ".join(map(str, result.seeds)),
    }
    values |= {name: _flat(value) for name, value in result.settings.items()}
    values |= {f"version of {name}": value for name, value in result.versions.items()}
    rows = "\n".join(f"<dt>{escaped(k)}</dt><dd>{escaped(v)}</dd>" for k, v in values.items())
    return f"<dl>\n{rows}\n</dl>"


def _again(result: SideBySide) -> str:
    """How to get the same again: the command, or what the parts were that no command can name."""
    if result.command:
        return (
            '<p class="muted">The same pictures and scores again:</p>\n'
            f"<pre>{escaped(result.command)}</pre>"
        )
    if not result.objects:
        return ""
    rows = "\n".join(
        f"<dt>{escaped(name)}</dt><dd>{escaped(_flat(values))}</dd>"
        for name, values in result.objects.items()
    )
    return (
        '<p class="muted">Made from Python objects, so that no command gives the same again; what '
        f"they were:</p>\n<dl>\n{rows}\n</dl>"
    )


def _flat(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_flat(item)}" for key, item in value.items())
    return str(value)
