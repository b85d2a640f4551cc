"""``t2x score``: how well pictures fit prompts, by one reward or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from t2x.commands.console import check_prompts, print_json, print_table, split_names
from t2x.errors import T2XError

__all__ = ["score"]


def score(
    pictures: Annotated[list[Path], typer.Argument(help="PNG, JPEG or WebP files.")],
    prompts: Annotated[
        list[str],
        typer.Option("--prompt", "-p", help="The user's own prompt: one for all, or one each."),
    ],
    rewards: Annotated[
        str, typer.Option("--reward", "-r", help="Names from `t2x list`, with commas between.")
    ] = "clip,hps,aesthetic,vqa",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score pictures against prompts; higher is better, and what cannot be measured says so."""
    check_prompts(prompts)
    if len(prompts) not in (1, len(pictures)):
        raise T2XError(
            f"got {len(prompts)} prompts for {len(pictures)} pictures; give one, or one for each"
        )
    texts = prompts * len(pictures) if len(prompts) == 1 else prompts
    names = split_names(rewards, "reward", "--reward clip,vqa")
    columns = _score(names, texts, pictures)
    rows = [
        {
            "picture": str(path),
            "prompt": text,
            "scores": {name: values[i] for name, values in columns.items()},
        }
        for i, (path, text) in enumerate(zip(pictures, texts, strict=True))
    ]
    if as_json:
        print_json(rows)
    else:
        print_table(
            "",
            ("picture", "prompt", *names),
            [
                (path, text, *(columns[name][i] for name in names))
                for i, (path, text) in enumerate(zip(pictures, texts, strict=True))
            ],
        )


def _score(names: list[str], texts: list[str], pictures: list[Path]) -> dict[str, list[float]]:
    from t2x.media import load_picture
    from t2x.registry import load_reward
    from t2x.scoring.ensemble import RewardEnsemble

    media = [load_picture(path) for path in pictures]
    ensemble = RewardEnsemble([load_reward(name) for name in names])  # shares the encoders
    columns = ensemble.components(texts, media).values()
    return {name: column.tolist() for name, column in zip(names, columns, strict=True)}
