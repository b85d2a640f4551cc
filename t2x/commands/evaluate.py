"""``t2x eval``: compare arms, trained runs among them, on held-out prompts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from t2x.commands.console import print_json, print_table, progress, split_names

__all__ = ["evaluate", "print_arms"]

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
    """Show scores by task, then drift and cost of the arms that have them."""
    tasks = list(next(iter(arms.values()))["tasks"])
    scored = [
        (
            name,
            arm["overall"],
            " to ".join(f"{bound:.3f}" for bound in arm["ci95"]),
            *(arm["tasks"][task] for task in tasks),
            arm["seconds_per_picture"],
        )
        for name, arm in arms.items()
    ]
    print_table("", ("arm", "overall", "95 %", *tasks, "s/picture"), scored)
    if not all("drift" in arm for arm in arms.values()):
        return
    keys = ("similarity", "violations", "exact", "words", "length_ratio")
    costs = ("seconds", "tokens_written", "tokens_read")
    rows = [
        (
            name,
            *(arm["drift"][key] for key in keys),
            *(arm["cost"][key] for key in costs),
            _gap(arm),
        )
        for name, arm in arms.items()
    ]
    names = [key.replace("_", " ") for key in (*keys, *costs)]
    print_table("drift and cost", ("arm", *names, "gap closed"), rows)


def _gap(arm: dict[str, Any]) -> str:
    if "gap_closed" not in arm:
        return ""
    low, high = arm["gap_closed_ci95"]
    return f"{arm['gap_closed']:.3f} ({low:.3f} to {high:.3f})"


def _print_differences(differences: dict[str, Any]) -> None:
    rows = [
        (name, d["mean"], f"{d['low']:.3f} to {d['high']:.3f}", d["holds"], d["detectable"])
        for name, d in differences.items()
    ]
    print_table("differences", ("arms", "mean", "95 %", "above 0", "detectable"), rows)
