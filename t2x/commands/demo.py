"""``t2x demo``: one prompt with and without a rewrite, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from t2x.commands.console import check_prompts, plain, print_json, print_table

__all__ = ["demo"]


def demo(
    prompt: Annotated[
        str | None, typer.Argument(help="What you want to see; without it a good one is taken.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the outcome.")] = Path("out"),
    seed: Annotated[int, typer.Option(help="Seed of rewrite and pictures.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rewrite a prompt, generate with and without it, score both, and show them side by side.

    Writes compare.png, report.html and result.json.
    """
    if prompt is not None:
        check_prompts([prompt])
    from t2x.evaluation.demo import run_demo

    result = plain(run_demo(prompt, out=out, seed=seed))
    if as_json:
        print_json(result)
        return
    rows = [(key, value) for key, value in result.items() if not isinstance(value, dict | list)]
    print_table("", ("", ""), rows)
    print_table("", ("file",), [(out / "compare.png",), (out / "report.html",)])
