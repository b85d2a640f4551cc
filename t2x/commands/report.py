"""``t2x report``: curves, pictures, texts and alarms of trainings on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from t2x.commands.console import note, print_json, print_table
from t2x.errors import T2XError

AXES = ("step", "seconds")

__all__ = ["report"]


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs: run.out of `t2x train`.")],
    out: Annotated[
        Path | None,
        typer.Option(help="The page. [default: report.html in the run, or here for several]"),
    ] = None,
    by: Annotated[str, typer.Option(help=f"What curves run along: {', '.join(AXES)}.")] = "step",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write one HTML file about a training, or about several over each other; it works offline."""
    from t2x.files import made_folder
    from t2x.watching.report import NAME, write_report
    from t2x.watching.runs import read_runs, summary_of

    if by not in AXES:
        raise T2XError(f"--by is {by!r}; give one of {', '.join(AXES)}")
    found = [summary_of(run) for run in read_runs(runs)]
    path = out or (runs[0] / NAME if len(runs) == 1 else Path(NAME))
    made_folder(path.parent)
    write_report(runs, path, by=by)
    if as_json:
        print_json({"report": path, "runs": found})
        return
    columns = ("run", "steps", "held-out first", "best", "at step", "alarms")
    print_table(
        "",
        columns,
        [
            (
                run["name"],
                run["steps"],
                *("-" if run[k] is None else run[k] for k in _MEASURED),
                len(run["alarms"]),
            )
            for run in found
        ],
    )
    note(f"written: {path}")


_MEASURED = ("first_held_out", "best_held_out", "best_step")
