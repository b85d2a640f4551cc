"""``t2x eval``: compare arms, trained runs among them, on held-out prompts."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from t2x.commands.console import print_json, print_table, progress, split_names

__all__ = ["evaluate", "print_arms"]

_DRIFT = ("similarity", "violations", "exact", "words", "length_ratio")
_COSTS = ("seconds", "tokens_written", "tokens_read")
_LABELS, _COLUMN = 18, 12  # characters of the measures, and of an arm, with what is between them

evaluate = typer.Typer(no_args_is_help=True, help="Compare rewriters and trained runs.")


@evaluate.command("world")
def world(
    arms: Annotated[
        str,
        typer.Option(
            "--arms",
            "--arm",
            help="Arms with commas between: raw, rules, dense, rewrite, recipes (the model of "
            "runs/NAME), rewriters, or NAME=FOLDER.",
        ),
    ] = "raw,rules,rewrite",
    n: Annotated[
        int, typer.Option("--n", min=30, help="Held-out prompts, five a task at least.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of prompts and pictures.")] = 7,
    generator: Annotated[
        str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")
    ] = "emoji-flow",
    gap: Annotated[
        bool,
        typer.Option(help="Draw raw and dense too, which the closed share of the gap needs."),
    ] = True,
    rows: Annotated[bool, typer.Option(help="With --json: add what every prompt gave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draw from the same held-out prompts and seeds in every arm, and let the judge score the
    pictures: scores, paired differences, drift and cost.
    """
    names = split_names(arms, "arm", "--arms raw,grpo=runs/grpo/model")
    if gap:
        names += [name for name in ("raw", "dense") if name not in names]
    from t2x.world.evaluate import evaluate_arms

    with progress() as show:
        result = evaluate_arms(names, n, seed, generator=generator, rows=rows, progress=show)
    if as_json:
        print_json(result, indent=None if rows else 2)
        return
    print_arms(result["arms"])
    _print_differences(result["differences"])


@evaluate.command("sets")
def sets(
    arms: Annotated[
        str, typer.Option("--arms", "--arm", help="As for `t2x eval world`.")
    ] = "raw,rewrite",
    n: Annotated[int, typer.Option("--n", min=30, help="Held-out prompts.")] = 1000,
    group: Annotated[int, typer.Option(min=2, help="Rewrites of each prompt.")] = 4,
    seed: Annotated[int, typer.Option(help="Seed of prompts, texts and pictures.")] = 7,
    generator: Annotated[
        str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")
    ] = "emoji-flow",
    embedder: Annotated[
        str, typer.Option(help="What compares texts: an embedded CLIP, minilm, a folder.")
    ] = "emoji-clip",
    rows: Annotated[bool, typer.Option(help="With --json: add what every prompt gave.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draw several rewrites of each held-out prompt: how different they are, and how many of their
    pictures are right.
    """
    names = split_names(arms, "arm", "--arms raw,grpo=runs/grpo/model")
    from t2x.world.sets import evaluate_sets

    options: dict[str, Any] = {"group": group, "generator": generator, "embedder": embedder}
    with progress() as show:
        result = evaluate_sets(names, n, seed, **options, rows=rows, progress=show)
    if as_json:
        print_json(result, indent=None if rows else 2)
        return
    cells = [
        (name, arm["overall"], arm["diversity"], arm["distinct"])
        for name, arm in result["arms"].items()
    ]
    print_table("", ("arm", "overall", "diversity", "different texts"), cells)


def print_arms(arms: dict[str, Any]) -> None:
    """Show scores by task, then drift and cost if all arms have them: arms as columns, as many in a
    table as the terminal has room for."""
    from rich.console import Console

    room = max((Console().width - _LABELS) // _COLUMN, 1)
    names = list(arms)
    for start in range(0, len(names), room):
        some = {name: arms[name] for name in names[start : start + room]}
        _print_rows("scores", {name: _scores(arm) for name, arm in some.items()})
        if all("drift" in arm for arm in arms.values()):
            _print_rows("drift and cost", {name: _costs(arm) for name, arm in some.items()})


def _print_rows(title: str, arms: dict[str, dict[str, float | None]]) -> None:
    """A row for each measure, a column for each arm."""
    measures = dict.fromkeys(measure for arm in arms.values() for measure in arm)
    rows = [(m, *(_short(arm.get(m)) for arm in arms.values())) for m in measures]
    print_table(title, ("", *arms), rows)


def _scores(arm: dict[str, Any]) -> dict[str, float | None]:
    low, high = arm["ci95"]
    return {
        "overall": arm["overall"],
        "  95 % from": low,
        "  to": high,
        **arm["tasks"],
        "s/picture": arm["seconds_per_picture"],
    }


def _costs(arm: dict[str, Any]) -> dict[str, float | None]:
    drift = {key: arm["drift"][key] for key in _DRIFT}
    cost = {key: arm["cost"][key] for key in _COSTS}
    found = {key.replace("_", " "): value for key, value in (drift | cost).items()}
    if "gap_closed" in arm:
        low, high = arm["gap_closed_ci95"]
        found |= {"gap closed": arm["gap_closed"], "  gap from": low, "  gap to": high}
    return found


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if math.isfinite(value) else "unknown"


def _print_differences(differences: dict[str, Any]) -> None:
    rows = [
        (
            name,
            _short(d["mean"]),
            f"{_short(d['low'])} to {_short(d['high'])}",
            d["holds"],
            _short(d["detectable"]),
        )
        for name, d in differences.items()
    ]
    print_table("differences", ("arms", "mean", "95 %", "above 0", "detectable"), rows)
