"""``t2x bench``: how fast the parts are on this computer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from t2x.commands.console import print_json, print_table, progress, split_names
from t2x.errors import T2XError

__all__ = ["bench"]

_SMALLEST = ("speedup", "identical")

bench = typer.Typer(no_args_is_help=True, help="Measure how fast the parts are here.")


@bench.command()
def score(
    architecture: Annotated[
        str, typer.Option(help="Full-size tower, by its name in open_clip; random weights.")
    ] = "ViT-L-14-quickgelu",
    pictures: Annotated[int, typer.Option(min=1, help="Pictures per batch.")] = 4,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds that count, after one more.")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    device: Annotated[str, typer.Option(help="Where the full-size tower runs.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time rewards over one shared tower against each alone, and every embedded reward.

    `shared_over_single` is the time of all rewards of the full-size tower together over that of the
    first one alone: 1 would mean that the others cost nothing.
    """
    with progress() as show:
        result = _measure(architecture, pictures, repeats, threads, device, show)
    if as_json:
        print_json(result)
        return
    full = result["full_size"]
    rows = [("all together", full["shared"]), *full["alone"].items()]
    cells = [(name, speed["seconds"], speed["pictures_per_second"]) for name, speed in rows]
    print_table(architecture, ("reward", "seconds", "pictures/s"), cells)
    print_table("embedded", ("reward", "pictures/s"), _embedded_rows(result["embedded"]))
    summary = [(key, result[key]) for key in ("shared_over_single", "alone_over_shared")]
    print_table("", ("", "times"), summary)


def _measure(
    architecture: str, pictures: int, repeats: int, threads: int, device: str, show: Any
) -> dict[str, Any]:
    import time

    import torch

    from t2x.scoring.bench import bench_embedded, bench_shared, random_tower

    torch.set_num_threads(threads)
    alone = device == "cpu" and threads == 1  # then what else the machine does need not count
    clock = time.process_time if alone else time.perf_counter
    tower = random_tower(architecture, device=device)
    embedded = bench_embedded(pictures=pictures, repeats=repeats, clock=clock, progress=show)
    full = bench_shared(tower, pictures=pictures, repeats=repeats, clock=clock, progress=show)
    return {
        "shared_over_single": full.pop("shared_over_single"),
        "alone_over_shared": full.pop("alone_over_shared"),
        "architecture": architecture,
        "dtype": "float32",
        "device": device,
        "threads": threads,
        "clock": "processor" if alone else "wall",
        "pictures": pictures,
        "repeats": repeats,
        "full_size": full,
        "embedded": embedded,
    }


def _embedded_rows(speeds: dict[str, dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (name, speed.get("pictures_per_second", f"not measured: {speed.get('error')}"))
        for name, speed in speeds.items()
    ]


@bench.command()
def rewrite(
    models: Annotated[
        str, typer.Option(help="Language models, by their names in `t2x list`, commas between.")
    ] = "smollm2,emoji-rewriter",
    prompts: Annotated[int, typer.Option(min=2, help="Prompts that are rewritten together.")] = 256,
    alone: Annotated[
        int, typer.Option(min=1, help="Of these, prompts that also get a call of their own.")
    ] = 64,
    sizes: Annotated[
        str,
        typer.Option(help="Prompts of the jobs whose cost is compared; the last of --models."),
    ] = "1000,4000",
    batch_size: Annotated[int, typer.Option(min=1, help="Rows at a time.")] = 64,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
    device: Annotated[str, typer.Option(help="Where the models run.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time rewriting many prompts together against one generate call per prompt, in float32.

    `speedup` is prompts per second together over alone and `identical` the share of equal texts
    under greedy decoding, the smallest of all models; `flat` is the cost per prompt of the dearest
    job over that of the cheapest.
    """
    names = split_names(models, "model", "--models smollm2")
    given = split_names(sizes, "size", "--sizes 1000,4000")
    if wrong := [size for size in given if not size.isdecimal() or int(size) < 1]:
        raise T2XError(f"--sizes are whole numbers from 1, like 1000,4000; got {', '.join(wrong)}")
    counts = [int(size) for size in given]
    with progress() as show:
        result = _measure_rewriting(
            names, prompts, alone, counts, batch_size=batch_size, threads=threads, device=device,
            show=show,
        )  # fmt: skip
    if as_json:
        print_json(result)
        return
    rows = [_speed_row(name, found) for name, found in result["models"].items()]
    head = ("model", "alone, prompts/s", "together", "speedup", "identical", "MB")
    print_table("one generate call per prompt, and together", head, rows)
    jobs = [(n, c["seconds_per_prompt"], c["memory_mb"]) for n, c in result["cost"].items()]
    print_table(f"jobs of {names[-1]}", ("prompts", "seconds/prompt", "MB"), jobs)


def _measure_rewriting(
    names: list[str],
    prompts: int,
    alone: int,
    sizes: list[int],
    *,
    batch_size: int,
    threads: int,
    device: str,
    show: Any,
) -> dict[str, Any]:
    import time

    import torch

    from t2x.rewriters.bench import bench_cost, bench_together, mixed_prompts
    from t2x.rewriters.language_model import LanguageModelRewriter
    from t2x.rewriters.loading import load_guarded
    from t2x.world.prompts import training_prompts
    from t2x.world.weights import EMBEDDED, require_model

    torch.set_num_threads(threads)
    quiet = device == "cpu" and threads == 1  # then what else the machine does need not count
    clock = time.process_time if quiet else time.perf_counter
    found, rewriter = {}, None
    for name in names:
        small = name in EMBEDDED  # knows the prompts of its world alone, one at a time
        source = require_model(name) if small else name
        rewriter = LanguageModelRewriter.from_pretrained(
            source, temperature=0, device=device, dtype="float32", batch_size=batch_size
        )
        texts = [p.text for p in training_prompts(prompts)] if small else mixed_prompts(prompts)
        found[name] = bench_together(rewriter, texts, alone=alone, clock=clock, progress=show)
    result: dict[str, Any] = {key: min(f[key] for f in found.values()) for key in _SMALLEST}
    if rewriter is not None:
        result |= bench_cost(load_guarded(rewriter), sizes, clock=clock, progress=show)
    return result | {
        "near_ties": all(f["near_ties"] for f in found.values()),
        "device": device,
        "threads": threads,
        "clock": "processor" if quiet else "wall",
        "models": found,
    }


def _speed_row(name: str, found: dict[str, Any]) -> tuple[object, ...]:
    alone, together = found["alone"], found["together"]
    speeds = alone["prompts_per_second"], together["prompts_per_second"]
    return name, *speeds, found["speedup"], found["identical"], together["memory_mb"]
