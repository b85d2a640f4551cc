"""``t2x demo``: one prompt with and without a rewrite, side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from t2x.commands.console import (
    check_prompts,
    note,
    print_json,
    print_table,
    progress,
    split_names,
)
from t2x.commands.memory_options import (
    MemoryLimit,
    Offload,
    Quantize,
    VaeTiling,
    placement_options,
)
from t2x.evaluation.demo import FILES, REWARDS
from t2x.plain import plain

__all__ = ["demo"]


def demo(  # noqa: PLR0913 - a command has a parameter for each of its options
    prompt: Annotated[
        str | None, typer.Argument(help="What you want to see; without it a good one is taken.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the outcome.")] = Path("out"),
    seed: Annotated[int, typer.Option(help="Seed of the rewrite and of the first picture.")] = 0,
    num: Annotated[
        int, typer.Option("--num", "-n", min=1, max=64, help="Pictures on each side.")
    ] = 4,
    rewriter: Annotated[
        str, typer.Option("--rewriter", help="A name from `t2x list`, a folder, or a hub id.")
    ] = "emoji-rewriter",
    model: Annotated[
        str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")
    ] = "emoji-flow",
    rewards: Annotated[
        str, typer.Option("--reward", "-r", help="Names from `t2x list`, with commas between.")
    ] = ",".join(REWARDS),
    offload: Offload = None,
    quantize: Quantize = None,
    vae_tiling: VaeTiling = False,
    memory_limit: MemoryLimit = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Rewrite a prompt, generate with and without it, score both, and show them side by side.

    Writes compare.png, report.html and result.json.
    """
    if prompt is not None:
        check_prompts([prompt])
    names = split_names(rewards, "reward", "--reward clip,vqa")
    from t2x.evaluation.demo import run_demo

    with progress() as show:
        result = run_demo(
            prompt,
            out=out,
            seed=seed,
            num=num,
            rewriter=rewriter,
            generator=model,
            rewards=names,
            progress=show,
            memory_limit=memory_limit,
            options=placement_options(offload, quantize, vae_tiling),
        )
    if as_json:
        print_json(result.record())
        return
    prompts = [("original", result.prompt), ("rewritten", result.rewrite.text)]
    print_table("", ("", "prompt"), prompts)
    print_table(
        "",
        ("reward", "original", "rewritten", "difference"),
        [(r.name, r.mean("original"), r.mean("rewritten"), r.difference) for r in result.rewards],
    )
    sys.stdout.write(f"{plain(result.summary())}\n")
    note(f"written: {', '.join(str(out / name) for name in FILES)}")
