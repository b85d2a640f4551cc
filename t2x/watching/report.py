"""``report.html`` of one training or of several: curves over each other, pictures and texts over
time, the groups that did best and worst, alarms and settings, in one file that works offline.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from t2x.evaluation.html import data_url, escaped, fill_page
from t2x.files import write_whole
from t2x.watching.alarms import HELD_OUT
from t2x.watching.panels import PANELS, Panel
from t2x.watching.plots import COLOURS, draw_panel
from t2x.watching.runs import LOG, Run, read_runs, summary_of
from t2x.watching.samples import picture_path
from t2x.watching.trends import Curve

NAME = "report.html"
_COLUMNS = 6  # steps whose pictures are shown
_THUMBNAIL = 192
_GROUPS = 4  # shown from either end
_LATE = 10  # logged steps whose groups are shown

__all__ = ["NAME", "report_page", "require_plots", "try_report", "write_report"]

log = logging.getLogger(__name__)


def require_plots() -> None:
    """Raise ``MissingDependencyError`` if what draws the plots is not installed."""
    if find_spec("matplotlib") is None:
        from t2x.registry import missing_dependency

        raise missing_dependency(ModuleNotFoundError(name="matplotlib"))


def write_report(
    folders: Sequence[str | Path], path: str | Path | None = None, *, by: str = "step"
) -> Path:
    """Write the page about runs; ``path`` None is report.html in the first folder.

    ``by``: "step" or "seconds", what the curves run along. Turns or rounds of a run with a log each
    are shown as runs (``t2x.watching.runs.read_runs``). Raises T2XError for a folder that holds no
    run.
    """
    require_plots()
    runs = read_runs(folders)
    path = Path(path) if path is not None else Path(folders[0]) / NAME
    write_whole(path, report_page(runs, by=by))
    return path


def try_report(folder: Path) -> None:
    """Write a run's own page while it goes on: what fails is said and never ends a training."""
    if not (folder / LOG).is_file():  # of a training that was shorter than trainer.logging_steps
        log.warning("nothing was logged in %s, so there is no %s", folder, NAME)
        return
    try:
        write_report([folder])
    except Exception:  # a page is worth no training
        log.warning("%s could not be written; `t2x report` tries again", NAME, exc_info=True)


def report_page(runs: Sequence[Run], *, by: str = "step") -> str:
    """Write the page. The same folders give the same text."""
    title = ", ".join(run.name for run in runs)
    return fill_page(
        "training.html",
        title=escaped(f"t2x training: {title}"),
        heading=escaped(title),
        summary=escaped(_summary(runs)),
        runs=_run_table(runs),
        alarms=_alarms(runs),
        plots="\n".join(_section(name, panels, runs, by) for name, panels in _panels(runs)),
        samples="\n".join(_samples(run, runs) for run in runs if run.samples),
        groups="\n".join(_groups(run, runs) for run in runs if run.groups),
        settings=_settings(runs),
    )


# ---- the top ------------------------------------------------------------------------------------


def _summary(runs: Sequence[Run]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs over each other."
    (run,) = runs
    held_out = run.curves.get(HELD_OUT, Curve())
    if not len(held_out):
        return f"{run.step} steps; nothing was measured on held-out prompts."
    found = summary_of(run)
    end = "; ended early by an alarm" if found["stopped_early"] else ""
    return (
        f"Held-out reward {held_out.values[0]:.4f} at step {held_out.steps[0]:g}, "
        f"{held_out.values[-1]:.4f} at step {held_out.steps[-1]:g}, highest "
        f"{found['best_held_out']:.4f} at step {found['best_step']}{end}."
    )


def _run_table(runs: Sequence[Run]) -> str:
    head = ("run", "steps", "time", "training reward", "held-out: first", "last", "best (step)",
            "gain over own words", "KL", "drift: kept", "violations")  # fmt: skip
    cells = "".join(f"<th{' class=n' if i else ''}>{name}</th>" for i, name in enumerate(head))
    rows = "\n".join(_run_row(i, run) for i, run in enumerate(runs))
    return (
        f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>\n{rows}\n'
        "</tbody></table></div>"
    )


def _run_row(index: int, run: Run) -> str:
    found = summary_of(run)
    best = _number(_float(found["best_held_out"]))
    if found["best_step"] is not None:
        best += f" ({found['best_step']})"
    gain, error = run.last("heldout/gain"), run.last("heldout/gain_error")
    shown = f"{gain:+.4f}" if math.isfinite(gain) else "–"
    if math.isfinite(error):
        shown += f" ± {1.96 * error:.4f}"
    seconds = run.last("seconds")
    values = (
        str(run.step),
        str(timedelta(seconds=round(seconds))) if math.isfinite(seconds) else "–",
        _number(run.last("reward")),
        _number(_float(found["first_held_out"])),
        _number(run.last(HELD_OUT)),
        best,
        shown,
        _number(run.last("kl")),
        _number(run.last("heldout/similarity")),
        _number(run.last("heldout/violations")),
    )
    cells = "".join(f'<td class="n">{escaped(value)}</td>' for value in values)
    return f"<tr><td>{_chip(index)}{escaped(run.name)}</td>{cells}</tr>"


def _alarms(runs: Sequence[Run]) -> str:
    items = [
        f'<li><span class="{"worse" if alarm.get("stop") else ""}">step {escaped(alarm["step"])}, '
        f"{escaped(alarm.get('name', ''))}</span>: {escaped(alarm.get('text', ''))}"
        f"{'. The run ended here.' if alarm.get('stop') else ''}{_of(run, runs)}</li>"
        for run in runs
        for alarm in run.alarms
    ]
    if not items:
        return '<p class="muted">No alarm was raised.</p>'
    return f'<h2>Alarms</h2>\n<ul class="alarms">\n{"".join(items)}\n</ul>'


# ---- curves -------------------------------------------------------------------------------------


def _panels(runs: Sequence[Run]) -> Iterable[tuple[str, list[Panel]]]:
    """The panels of each section for which a run has a curve."""
    keys = {key for run in runs for key, curve in run.curves.items() if len(curve)}
    named = {panel.key for panels in PANELS.values() for panel in panels}
    for name, panels in PANELS.items():
        own = [panel for panel in panels if panel.key in keys]
        if name == "Rewards by name":
            own += [
                Panel(key, _title(key))
                for key in sorted(keys - named)
                if key.startswith(("reward/", "gain/", "heldout/")) and not key.endswith("_error")
            ]
        if own:
            yield name, own


def _title(key: str) -> str:
    kind, _, name = key.partition("/")
    where = {"heldout": "held out", "gain": "gain in training"}.get(kind, "training")
    return f"{name}, {where}"


def _section(name: str, panels: Sequence[Panel], runs: Sequence[Run], by: str) -> str:
    drawn = "\n".join(f"<div>{_panel(panel, runs, by)}</div>" for panel in panels)
    return f'<h2>{escaped(name)}</h2>\n<section class="plots">\n{drawn}\n</section>'


def _panel(panel: Panel, runs: Sequence[Run], by: str) -> str:
    curves = []
    for i, run in enumerate(runs):
        curve = run.curves.get(panel.key, Curve())
        error = run.curves.get(panel.error) if panel.error else None
        if len(curve):
            place = _along(run, by)
            curves.append((i, place(curve), None if error is None else place(error)))
    marks = []
    if len(runs) == 1:
        place = _along(runs[0], by)
        steps = tuple(float(alarm["step"]) for alarm in runs[0].alarms)
        marks = list(place(Curve(steps, steps)).steps)
    return draw_panel(
        panel.title, curves, x_label=by, marks=marks, zero=panel.zero, share=panel.share
    )


def _along(run: Run, by: str) -> Any:
    """What puts a run's curves along its steps or its seconds."""
    if by == "step":
        return lambda curve: curve
    seconds = run.curves.get("seconds", Curve())
    at = dict(zip(seconds.steps, seconds.values, strict=True))
    return lambda curve: Curve(tuple(at.get(s, math.nan) for s in curve.steps), curve.values)


# ---- pictures and texts -------------------------------------------------------------------------


def _samples(run: Run, runs: Sequence[Run]) -> str:
    shown = _spread(run.samples)
    steps = "".join(f"<th>step {escaped(line['step'])}</th>" for line in shown)
    rows = "\n".join(
        f"<tr><td>{_own_words(run, sample, i)}</td>"
        + "".join(_sample(run, line, i) for line in shown)
        + "</tr>"
        for i, sample in enumerate(shown[-1]["samples"])
    )
    return (
        f"<h2>Pictures of the same prompts and seeds{_of(run, runs)}</h2>\n"
        f'<div class="scroll"><table class="time"><thead><tr><th>the user\'s words</th>{steps}</tr>'
        f"</thead><tbody>\n{rows}\n</tbody></table></div>"
    )


def _own_words(run: Run, sample: dict[str, Any], index: int) -> str:
    shots = (picture_path(run.folder, None, index, j) for j in range(len(sample["scores"])))
    return "".join(_shot(path, "own words") for path in shots) + escaped(sample["prompt"])


def _spread(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """First, last, and some evenly between."""
    if len(lines) <= _COLUMNS:
        return lines
    last = len(lines) - 1
    return [lines[round(i * last / (_COLUMNS - 1))] for i in range(_COLUMNS)]


def _sample(run: Run, line: dict[str, Any], index: int) -> str:
    samples = line["samples"]
    if index >= len(samples):
        return "<td></td>"
    sample = samples[index]
    shots = "".join(
        _shot(picture_path(run.folder, line["step"], index, j), _number(_float(score)))
        for j, score in enumerate(sample["scores"])
    )
    status = sample["status"]
    badge = "" if status == "accepted" else f'<br><span class="muted">{escaped(status)}</span>'
    return f"<td>{shots}{escaped(sample['text'])}{badge}</td>"


def _shot(path: Path, caption: str) -> str:
    from PIL import Image

    from t2x.evaluation.picture import fitted

    if not path.is_file():
        return ""
    with Image.open(path) as picture:
        url = data_url(fitted(picture.convert("RGB"), _THUMBNAIL))
    caption = f"<figcaption>{escaped(caption)}</figcaption>"
    return f'<figure><img class="shot" alt="" src="{url}">{caption}</figure>'


def _groups(run: Run, runs: Sequence[Run]) -> str:
    steps = sorted({line["step"] for line in run.groups})[-_LATE:]
    known = [g for g in run.groups if g["step"] in steps and g["gain"] is not None]
    ranked = sorted(known, key=lambda g: -g["gain"])
    few = min(_GROUPS, len(ranked) // 2)
    best, worst = ranked[:few], ranked[len(ranked) - few :][::-1]
    parts = [
        f"<h3>{name}</h3>\n<section class='pairs'>{''.join(map(_group, chosen))}</section>"
        for name, chosen in (("Gained most", best), ("Gained least", worst))
        if chosen
    ]
    return (
        f"<h2>Groups of the last logged steps{_of(run, runs)}</h2>\n"
        '<p class="muted">Rewards of all rewrites of a prompt, against the user\'s own words.</p>\n'
        + "\n".join(parts)
    )


def _group(group: dict[str, Any]) -> str:
    members = "".join(
        f'<div class="member"><b>{_number(_float(m["reward"]))}</b><span>{escaped(m["text"])}'
        + ("" if m["kind"] == "rewrite" else f' <span class="muted">({escaped(m["kind"])})</span>')
        + "</span></div>"
        for m in group["members"]
    )
    return (
        f'<div class="pair"><h3>{escaped(group["prompt"])}</h3>'
        f'<p class="muted">step {escaped(group["step"])}, own words '
        f"{_number(_float(group['own_words']))}, gain {group['gain']:+.4f}</p>{members}</div>"
    )


# ---- settings -----------------------------------------------------------------------------------


def _settings(runs: Sequence[Run]) -> str:
    whole = "\n".join(
        f"<details{' open' if len(runs) == 1 else ''}><summary>{escaped(run.name)}</summary>"
        f"<pre>{escaped(run.config)}</pre></details>"
        for run in runs
        if run.config
    )
    return (_differences(runs) if len(runs) > 1 else "") + (
        whole or '<p class="muted">There is no config.yaml in the folder.</p>'
    )


def _differences(runs: Sequence[Run]) -> str:
    settings = [run.settings() for run in runs]
    keys = dict.fromkeys(key for found in settings for key in found)
    rows = [
        (key, [found.get(key, "–") for found in settings])
        for key in keys
        if len({str(found.get(key)) for found in settings}) > 1
    ]
    if not rows:
        return '<p class="muted">All runs have the same settings.</p>'
    names = "".join(f"<th>{_chip(i)}{escaped(run.name)}</th>" for i, run in enumerate(runs))
    body = "\n".join(
        f"<tr><td>{escaped(key)}</td>" + "".join(f"<td>{escaped(v)}</td>" for v in values) + "</tr>"
        for key, values in rows
    )
    return (
        '<p class="muted">Where they differ:</p>\n<div class="scroll"><table><thead><tr><th></th>'
        f"{names}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


def _of(run: Run, runs: Sequence[Run]) -> str:
    return f" ({escaped(run.name)})" if len(runs) > 1 else ""


def _chip(index: int) -> str:
    return f'<span class="chip" style="background:var(--run{index % COLOURS})"></span>'


def _float(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else "–"
