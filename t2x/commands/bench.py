"""``t2x bench``: how fast the parts are on this computer, and how good the checks are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from t2x.commands.console import print_json, print_table, progress

__all__ = ["bench"]

bench = typer.Typer(no_args_is_help=True, help="Measure how fast and how good the parts are here.")


@bench.command()
def checks(
    pairs: Annotated[
        Path | None,
        typer.Option(
            help="JSON lines with kind, original, rewrite, kept; by default those of a checkout."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the checks of a rewrite on labelled pairs: precision and recall of "it is lost".

    Each pair is read by the check of its own kind. The intervals are Wilson's at 95 %.
    """
    from t2x.prompts.measure import default_pairs, measure, read_pairs

    result = measure(read_pairs(default_pairs() if pairs is None else pairs))
    if as_json:
        print_json(result)
        return
    rows = {
        **result["kinds"],
        "adversarial": result["adversarial"]["yes"],
        "not adversarial": result["adversarial"]["no"],
        **{f"language {name}": row for name, row in result["languages"].items()},
        "overall": result["overall"],
    }
    columns = ("pairs", "n", "lost", "precision, 95 %", "recall, 95 %", "F1")
    print_table("checks", columns, [_quality(name, row) for name, row in rows.items()])


def _quality(name: str, row: dict[str, Any]) -> tuple[object, ...]:
    def share(key: str) -> str:
        low, high = row[f"{key}_ci95"]
        return f"{row[key]:.3f} {low:.2f}-{high:.2f}"

    return name, row["n"], row["lost"], share("precision"), share("recall"), f"{row['f1']:.3f}"


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
