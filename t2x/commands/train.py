"""``t2x train``: train a rewriter by one of the recipes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from t2x.commands.console import note, print_json, print_table
from t2x.registry import RECIPES

__all__ = ["train"]


def train(
    recipe: Annotated[str, typer.Argument(help=f"One of {', '.join(RECIPES)}.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Settings that differ, as trainer.max_steps=20 or run.seed=1."),
    ] = None,
    config: Annotated[
        str,
        typer.Option(help="A YAML file, or one that t2x brings: world/grpo, gpu24/grpo."),
    ] = "",
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Say what memory and time it would take on GPUs, and stop."),
    ] = False,
    gpu: Annotated[str, typer.Option(help="For --plan: rtx4090, a100 or h100.")] = "a100",
    gpus: Annotated[int, typer.Option(min=1, help="For --plan: GPUs, a process on each.")] = 1,
    zero: Annotated[int, typer.Option(help="For --plan: stage of DeepSpeed ZeRO, 0 or 3.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a rewriter. A run that was stopped goes on from its last checkpoint; run.resume=false
    starts it anew.

    Settings are those of the file, then the overrides; the run's folder keeps them as config.yaml,
    beside checkpoints, log.jsonl, metrics.json and the trained model.
    """
    from t2x.config import ConfigError, find_config, load_config
    from t2x.registry import load_recipe

    schema, main = load_recipe(recipe)
    path = find_config(config) if config else None
    try:
        settings = load_config(schema, path, overrides or [])
    except ConfigError as error:
        if path is None and str(error).startswith("missing key"):
            raise ConfigError(f"{error}, or --config world/{recipe}") from error
        raise
    if plan:
        _show_plan(recipe, settings, as_json, card=gpu, processes=gpus, zero=zero)
        return
    out = Path(settings.run.out)
    metrics = main(settings)
    if os.environ.get("RANK", "0") != "0":  # of the processes that accelerate launches
        return
    if as_json:
        print_json({"recipe": recipe, "out": out, "metrics": metrics})
        return
    print_table(f"{recipe} in {out}", ("metric", "value"), metrics.items())
    note(f"the trained model is in {out / 'model'}")


def _show_plan(recipe: str, settings: Any, as_json: bool, **hardware: Any) -> None:
    from t2x.training.plan import Hardware, make_plan

    found = make_plan(recipe, settings, Hardware(**hardware))
    if as_json:
        seconds, unknown = dict(found.seconds), found.unknown
        memory = {name: dict(row) for name, row in found.memory.items()}
        print_json({"fits": found.fits, "bytes": memory, "seconds": seconds, "unknown": unknown})
        return
    sys.stdout.write("\n".join(found.lines()) + "\n")
