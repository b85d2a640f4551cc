"""``t2x search``: try prompts out, and keep the one whose pictures the reward likes best."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import (
    check_prompts,
    note,
    print_json,
    print_table,
    progress,
    split_weights,
)
from t2x.files import made_folder
from t2x.registry import REWRITERS, SEARCH_REWARDS

if TYPE_CHECKING:
    from t2x.search.history import History

EXAMPLE = ",".join(f"{name}={weight:g}" for name, weight in SEARCH_REWARDS.items())
METHODS = [name.removeprefix("search:") for name in REWRITERS if name.startswith("search:")]

__all__ = ["EXAMPLE", "search"]


def search(
    prompts: Annotated[list[str], typer.Argument(help="What you want to see.")],
    method: Annotated[
        str,
        typer.Option(
            "--method",
            "-m",
            help=f"One of {', '.join(METHODS)}; evolution:ga (de, promptbreeder, spell, "
            "prompt-a-video) takes the operators of one paper.",
        ),
    ] = "best-of-n",
    budget: Annotated[
        int, typer.Option(min=2, help="Pictures per prompt, one of your own words included.")
    ] = 8,
    out: Annotated[
        Path, typer.Option(help="Folder for the outcome; one inside it for each of several.")
    ] = Path("out"),
    model: Annotated[
        str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")
    ] = "emoji-flow-turbo",
    rewriter: Annotated[
        str, typer.Option("--rewriter", help="What proposes: a name, a folder, or a hub id.")
    ] = "emoji-rewriter",
    rewards: Annotated[
        str, typer.Option("--reward", "-r", help="What chooses: rewards with their weights.")
    ] = EXAMPLE,
    seed: Annotated[
        int, typer.Option(help="Seed of texts and of the first picture; the next has seed + 1.")
    ] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Pictures of each text: more make the choice less noisy.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Search for the prompt whose pictures score best, with a budget of pictures.

    Your own words are always among the candidates, and stay if nothing scores higher. Writes
    history.html, which shows how the texts converged, history.json and best.png.
    """
    check_prompts(prompts)
    from t2x.search.loading import check_parts, load_search, make_method

    weights = split_weights(rewards, "reward", EXAMPLE)
    check_parts(rewriter, model, weights)
    way = make_method(method)
    folder = made_folder(out)
    with progress() as show:
        searcher = load_search(
            way,
            rewriter=rewriter,
            generator=model,
            rewards=weights,
            budget=budget,
            seeds=seeds,
            count_flops=True,
            progress=show,
        )
        records = [
            _finish(history, folder / f"{i:04d}" if len(prompts) > 1 else folder)
            for i, history in enumerate(searcher.search(prompts, seed=seed))
        ]
    if as_json:
        print_json(records if len(records) > 1 else records[0])
        return
    rows = [
        (r["prompt"], r["text"], r["score_no_rewrite"], r["score"], r["cost"]["pictures"])
        for r in records
    ]
    print_table("", ("prompt", "text", "own words", "score", "pictures"), rows)
    sys.stdout.write(f"operators: {searcher.settings()['operators']}\n")


def _finish(history: History, folder: Path) -> dict[str, Any]:
    """Write one prompt's outcome as soon as it is there."""
    from t2x.evaluation.search_page import write_history

    written = write_history(history, made_folder(folder))
    note(f"written: {', '.join(map(str, written))}")
    return history.record()
