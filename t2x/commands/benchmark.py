"""``t2x benchmark``: pictures for the official evaluators of public benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from t2x.commands.console import (
    note,
    parse_size,
    print_json,
    print_table,
    progress,
    split_names,
)
from t2x.commands.memory_options import Offload, Quantize, VaeTiling, placement_options
from t2x.errors import T2XError

__all__ = ["benchmark"]


def benchmark(  # noqa: PLR0913 - a command has a parameter for each of its options
    name: Annotated[
        str, typer.Argument(help="geneval, t2i-compbench, dpg, parti, genai-bench or vbench.")
    ],
    prompts: Annotated[
        Path | None, typer.Option(help="The benchmark's own file or folder of prompts.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; a stopped run goes on in it.")
    ] = None,
    generator: Annotated[
        str,
        typer.Option("--generator", "--model", help="A name from `t2x list`, a folder, a hub id."),
    ] = "emoji-flow",
    rewriter: Annotated[str, typer.Option(help="What rewrites the arm 'rewrite'.")] = (
        "emoji-rewriter"
    ),
    arms: Annotated[str, typer.Option("--arms", "--arm", help="raw, rewrite.")] = "raw,rewrite",
    samples: Annotated[
        int | None,
        typer.Option(
            "--images-per-prompt", min=1, help="Pictures or videos of each; the official number."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Of pictures and rewrites; the same in both arms.")
    ] = 42,
    rewards: Annotated[
        str,
        typer.Option(
            "--rewards", "--reward", "-r", help="Names from `t2x rewards`, or none to draw alone."
        ),
    ] = "clip,hps,aesthetic,vqa",
    limit: Annotated[
        int | None, typer.Option(min=1, help="So many prompts, evenly spaced, to try things out.")
    ] = None,
    size: Annotated[str | None, typer.Option(help="HEIGHTxWIDTH in pixels.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Sampling steps.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.")] = None,
    frames: Annotated[int | None, typer.Option(min=1, help="Frames of a video.")] = None,
    offload: Offload = None,
    quantize: Quantize = None,
    vae_tiling: VaeTiling = False,
    fps: Annotated[
        int | None,
        typer.Option(min=1, help="Frames a second in video files; the model's own, else 8."),
    ] = None,
    facts: Annotated[
        bool, typer.Option("--facts", help="Say what is known of the benchmark, and no more.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin the folder anew; what it holds goes.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draw a public benchmark's prompts, as they are and rewritten, into its official layout, and
    score both against the original prompts; the last lines say which official evaluator to run.

    The rewards are t2x's own: they are not the benchmark's score.
    """
    if facts:
        _print_facts(name, as_json)
        return
    if prompts is None or out is None:
        raise T2XError(
            f"give --prompts with the official file of {name} and --out with a folder to write; "
            f"`t2x benchmark {name} --facts` says what the file is"
        )
    from t2x.benchmarks.running import BenchmarkSetup, run_benchmark

    setup = BenchmarkSetup(
        benchmark=name,
        prompts=prompts,
        out=out,
        generator=generator,
        rewriter=rewriter,
        arms=split_names(arms, "arm", "--arms raw,rewrite"),
        rewards=() if rewards == "none" else split_names(rewards, "reward", "--rewards clip,vqa"),
        samples=samples,
        seed=seed,
        limit=limit,
        sampling=_sampling(size, steps, guidance, frames)
        | placement_options(offload, quantize, vae_tiling),
        fps=fps,
    )
    with progress() as show:
        result = run_benchmark(setup, overwrite=overwrite, progress=show)
    if as_json:
        print_json(result)
    else:
        _print(result)
    for line in _last_words(result):
        note(line)


def _sampling(
    size: str | None, steps: int | None, guidance: float | None, frames: int | None
) -> dict[str, Any]:
    """Options of ``load_generator`` that were given."""
    call: dict[str, Any] = {} if frames is None else {"num_frames": frames}
    if size is not None:
        call["height"], call["width"] = parse_size(size)
    given: dict[str, Any] = {"num_inference_steps": steps, "guidance_scale": guidance}
    given["sampling"] = call or None
    return {key: value for key, value in given.items() if value is not None}


def _print_facts(name: str, as_json: bool) -> None:
    from dataclasses import asdict

    from t2x.benchmarks.catalogue import benchmark_named

    known = asdict(benchmark_named(name).facts)
    if as_json:
        print_json(known)
        return
    rows = [
        (key.replace("_", " "), ", ".join(value) if isinstance(value, tuple) else value)
        for key, value in known.items()
        if value not in ("", None)
    ]
    print_table("", ("", name), rows)


def _print(result: dict[str, Any]) -> None:
    arms = list(result["arms"])
    rows = []
    for reward, overall in result["arms"][arms[0]].items():
        change = result["differences"].get(reward)
        for category in ("", *overall["categories"]):
            cells = [_cell(result["arms"][arm][reward], category) for arm in arms]
            rows.append((reward, category or "all", *cells, *_change(change, category)))
    if rows:
        more = ("rewrite - raw",) if result["differences"] else ()
        print_table(result["title"], ("reward", "category", *arms, *more), rows)


def _part(values: dict[str, Any], category: str) -> dict[str, Any]:
    found: dict[str, Any] = values["categories"][category] if category else values["overall"]
    return found


def _cell(values: dict[str, Any], category: str) -> str:
    return _interval(_part(values, category))


def _change(values: dict[str, Any] | None, category: str) -> tuple[str, ...]:
    return () if values is None else (_interval(_part(values, category), sign="+"),)


def _interval(value: dict[str, Any], sign: str = "") -> str:
    mean, low, high = (value[name] for name in ("mean", "low", "high"))
    if mean != mean:
        return "not measured"
    spread = "" if low != low else f" [{low:{sign}.3f}, {high:{sign}.3f}]"
    return f"{mean:{sign}.4f}{spread}"


def _last_words(result: dict[str, Any]) -> list[str]:
    """What to know of the numbers, and what to run next."""
    after = result["next"]
    lines = [f"note: {text}" for text in result["notes"]]
    lines.append(f"next: run the official evaluator, {after['repository']} at {after['commit']}:")
    return lines + [f"  {line}" for commands in after["commands"].values() for line in commands]
