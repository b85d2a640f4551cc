"""``t2x score``: how well pictures and videos fit prompts, by one reward or several."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t2x.commands.console import (
    check_prompts,
    note,
    plain,
    print_json,
    print_table,
    progress,
    split_names,
)
from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.evaluation.scores import Row

__all__ = ["score"]


def score(
    pictures: Annotated[
        list[Path],
        typer.Argument(
            help="Pictures, videos, folders of them, or JSONL files with a "
            '{"picture": ..., "prompt": ...} per line.'
        ),
    ],
    prompts: Annotated[
        list[str] | None,
        typer.Option(
            "--prompt",
            "-p",
            help="The user's own prompt: one for all, or one each. Without, pictures that "
            "`t2x generate` drew bring theirs.",
        ),
    ] = None,
    prompts_file: Annotated[
        Path | None, typer.Option("--prompts", help="Text file with one prompt per line instead.")
    ] = None,
    rewards: Annotated[
        str,
        typer.Option(
            "--rewards", "--reward", "-r", help="Names from `t2x rewards`, with commas between."
        ),
    ] = "clip,hps,aesthetic,vqa",
    sort: Annotated[
        str | None, typer.Option(help="Reward that sorts sheet and page; the first one without.")
    ] = None,
    sheet: Annotated[
        Path | None, typer.Option(help="Write a contact sheet to this PNG, the best first.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_html: Annotated[
        bool, typer.Option("--html", help="Print a page with the contact sheet inside.")
    ] = False,
) -> None:
    """Score pictures against prompts; higher is better, and what cannot be measured says so.

    A file that cannot be read or scored is a line with the reason, and the exit code is 1.
    """
    if as_json + as_csv + as_html > 1:
        raise T2XError("--json, --csv and --html each fill the output; give one of them")
    texts = _prompts(prompts, prompts_file)
    names = list(dict.fromkeys(split_names(rewards, "reward", "--rewards clip,vqa")))
    by = names[0] if sort is None else sort
    if by not in names:
        raise T2XError(f"--sort {by!r} is none of the rewards: {', '.join(names)}")
    rows = _score(pictures, texts, names, thumbnails=as_html or sheet is not None)
    failed = [row for row in rows if row.error]
    if failed and len(rows) == 1:
        raise T2XError(failed[0].error)
    _print(rows, names, by, as_json=as_json, as_csv=as_csv, as_html=as_html)
    if sheet is not None:
        _write_sheet(rows, by, sheet)
    if failed:
        raise T2XError(f"{len(failed)} of {len(rows)} files have no score; see 'error'")


def _prompts(given: list[str] | None, file: Path | None) -> list[str]:
    if given and file is not None:
        raise T2XError("give --prompt or --prompts FILE, one of both")
    if file is not None:
        try:
            return file.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise T2XError(f"cannot read the prompts in {str(file)!r}: {error}") from error
    if given:
        check_prompts(given)
    return given or []


def _score(
    pictures: Sequence[Path], texts: Sequence[str], names: Sequence[str], *, thumbnails: bool
) -> list[Row]:
    from t2x.evaluation.scores import find_items, reads_prompt, score_items
    from t2x.registry import load_reward

    if texts:
        items = find_items(pictures, texts)  # what does not fit is told before anything is loaded
    loaded = {name: load_reward(name) for name in names}
    if not texts:
        items = find_items(pictures, needs_prompt=any(map(reads_prompt, loaded.values())))
    if len(items) <= 1:
        return score_items(items, loaded, thumbnails=thumbnails)
    with progress() as show:
        return score_items(
            items, loaded, thumbnails=thumbnails, progress=lambda i, n: show("scored", i, n)
        )


def _print(
    rows: Sequence[Row],
    names: Sequence[str],
    by: str,
    *,
    as_json: bool,
    as_csv: bool,
    as_html: bool,
) -> None:
    if as_html:
        from t2x.evaluation.contact_sheet import scores_page

        sys.stdout.write(scores_page(rows, by))
    elif as_json:
        print_json([_record(row) for row in rows])
    elif as_csv:
        _print_csv(rows, names)
    else:
        failures = any(row.error for row in rows)
        columns = ("picture", "prompt", *names, *(["error"] if failures else []))
        print_table("", columns, [_cells(row, names, failures) for row in rows])


def _record(row: Row) -> dict[str, object]:
    record: dict[str, object] = {"picture": row.item.picture, "prompt": row.item.prompt}
    if row.error:
        return {**record, "error": row.error}
    return {**record, "scores": row.scores}


def _cells(row: Row, names: Sequence[str], failures: bool) -> list[object]:
    scores = ["" if row.error else row.scores[name] for name in names]
    return [row.item.picture, row.item.prompt, *scores, *([row.error] if failures else [])]


def _print_csv(rows: Sequence[Row], names: Sequence[str]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["picture", "prompt", *names, "error"])
    for row in rows:
        scores = [row.scores.get(name, math.nan) for name in names]
        values = ["" if math.isnan(value) else repr(value) for value in scores]
        writer.writerow(plain([row.item.picture, row.item.prompt, *values, row.error]))


def _write_sheet(rows: Sequence[Row], by: str, path: Path) -> None:
    from t2x.evaluation.contact_sheet import draw_contact_sheet

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draw_contact_sheet(rows, by).save(path, format="PNG")
    except OSError as error:
        raise T2XError(f"cannot write {str(path)!r}: {error}") from error
    note(f"written: {path}")
