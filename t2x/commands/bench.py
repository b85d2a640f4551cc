"""``t2x bench``: how fast the parts are on this computer, and how good the checks are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import print_json, print_table, progress, split_names
from t2x.errors import T2XError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["bench"]

_SMALLEST = ("speedup", "identical")

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
    reward: Annotated[str, typer.Option(help="Rewards, with commas; by default all.")] = "",
    full_size: Annotated[
        bool, typer.Option(help="Time networks of published size too, with random weights.")
    ] = True,
    architecture: Annotated[
        str, typer.Option(help="Tower that rewards share, by its name in open_clip.")
    ] = "ViT-L-14-quickgelu",
    pictures: Annotated[
        int, typer.Option(min=1, help="Pictures per batch of full size; embedded take 16 times it.")
    ] = 1,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds that count, after one more.")] = 3,
    time_limit: Annotated[float, typer.Option(min=0, help="Seconds for each reward.")] = 40,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    device: Annotated[str, typer.Option(help="Where what is of full size runs.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time rewards over one shared tower against each alone, and each reward by itself, on embedded
    weights and on networks of published size.

    `shared_over_single` is the time of CLIPScore, LAION v1, LAION v2 and VLM-RM together over that
    of CLIPScore alone: 1 would mean that the others cost nothing. It takes four to five minutes on
    a processor; what needs more memory or time than there is says so.
    """
    names = split_names(reward, "reward", "clip,hps") if reward else None
    settings = {"repeats": repeats, "clock": _clock(threads, device)}
    with progress() as show:
        settings["progress"] = show
        where = {**settings, "pictures": pictures, "device": device}
        result = _together(names, architecture, threads, where) if full_size else {}
        settings["limit"] = where["limit"] = time_limit
        result["embedded"] = _embedded(names, pictures, threads, settings)
        if full_size:
            result["full_size"] = _full_size(names, where)
    result |= {"dtype": "float32", "device": device, "threads": threads, "pictures": pictures}
    result |= {"repeats": repeats, "clock": "wall" if threads > 1 or device != "cpu" else "cpu"}
    if as_json:
        print_json(result)
    else:
        _print_tables(result)


def _clock(threads: int, device: str) -> Any:
    """Processor time for a single thread: then what else the machine does need not count."""
    import time

    return time.process_time if device == "cpu" and threads == 1 else time.perf_counter


def _together(
    names: Sequence[str] | None, architecture: str, threads: int, settings: dict[str, Any]
) -> dict[str, Any]:
    """What a shared tower saves, unless other rewards than those are asked for."""
    import torch

    from t2x.scoring.bench import SHARED, bench_shared
    from t2x.scoring.random_towers import open_clip_tower

    if names is not None and not set(SHARED) <= set(names):
        return {}
    torch.set_num_threads(threads)
    tower = open_clip_tower(architecture, device=settings["device"])
    found = bench_shared(tower, **settings)
    ratios = {key: found.pop(key) for key in ("shared_over_single", "alone_over_shared")}
    return {**ratios, "together": {"architecture": architecture, **found}}


def _embedded(
    names: Sequence[str] | None, pictures: int, threads: int, settings: dict[str, Any]
) -> dict[str, Any]:
    import torch

    from t2x.scoring.bench import bench_embedded

    torch.set_num_threads(threads)
    return bench_embedded(names, pictures=16 * pictures, **settings)


def _full_size(names: Sequence[str] | None, settings: dict[str, Any]) -> dict[str, Any]:
    from t2x.scoring.bench import bench_full_size

    return bench_full_size(names, **settings)


def _print_tables(result: dict[str, Any]) -> None:
    if together := result.get("together"):
        rows = [("all together", together["shared"]), *together["alone"].items()]
        cells = [(name, speed["seconds"], speed["pictures_per_second"]) for name, speed in rows]
        print_table(together["architecture"], ("reward", "seconds", "pictures/s"), cells)
    for key, title in (("full_size", "full size, random weights"), ("embedded", "embedded")):
        if speeds := result.get(key):
            print_table(title, ("reward", "network", "pictures/s"), _rows(speeds))
    ratios = [(k, result[k]) for k in ("shared_over_single", "alone_over_shared") if k in result]
    if ratios:
        print_table("", ("", "times"), ratios)


def _rows(speeds: dict[str, dict[str, Any]]) -> list[tuple[object, ...]]:
    return [
        (
            name,
            ", ".join(filter(None, (speed.get("tower"), speed.get("note")))),
            speed.get("reason", speed["pictures_per_second"]),
        )
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
    from t2x.rewriters.loading import load_guard
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
        result |= bench_cost(load_guard(rewriter), sizes, clock=clock, progress=show)
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


@bench.command()
def selection(
    methods: Annotated[
        str, typer.Option(help="Methods of prompt selection, with commas; by default all.")
    ] = "",
    prompts: Annotated[int, typer.Option(min=8, help="Prompts to choose from.")] = 512,
    score: Annotated[
        float, typer.Option(min=0, max=1, help="Mean success rate that is to be reached.")
    ] = 0.8,
    seeds: Annotated[int, typer.Option(min=1, help="Runs that are averaged.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count the pictures that each method of prompt selection needs to the same score, in a
    simulated world of prompts with known difficulty: no model is trained, and what a method saves
    in a real run is not said.
    """
    from t2x.selection import METHODS
    from t2x.selection.simulate import compare

    names = split_names(methods, "method", "mopps,pcl") if methods else METHODS
    found = compare(names, prompts=prompts, score=score, seeds=range(seeds))
    if as_json:
        print_json({"prompts": prompts, "score": score, "seeds": seeds, "methods": found})
        return
    columns = ("method", "pictures", "to uniform", "informative groups")
    print_table(
        "prompt selection, simulated", columns, [(n, *row.values()) for n, row in found.items()]
    )


@bench.command()
def guide(
    reward: Annotated[
        str, typer.Option(help="Rewards with gradients, with commas between.")
    ] = "clip,aesthetic",
    pictures: Annotated[
        int, typer.Option(min=1, help="Pictures at once on the embedded generator; 1 at full size.")
    ] = 4,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds that count, after one more.")] = 3,
    mid_size: Annotated[
        bool, typer.Option(help="Time a random network of 90 M parameters at 512x512 too, once.")
    ] = True,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 1,
    device: Annotated[str, typer.Option(help="Where the models run.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time guidance against unguided drawing, in modes E and J, split into denoiser, decoder and
    rewards, forward and backward.

    `overhead_E` and `overhead_J` are the time of a guided run over the sum of its parts, the
    largest of both networks. Also what decoding at half size and guiding every second step save,
    with the rewards of the finished pictures. It takes a quarter of an hour on a processor.
    """
    names = split_names(reward, "reward", "clip,aesthetic")
    clock = _clock(threads, device)
    with progress() as show:
        settings = {"clock": clock, "progress": show}
        found = _measure_guidance(names, pictures, repeats, mid_size, threads, device, settings)
    result: dict[str, Any] = {
        key: max(entry[key] for entry in found.values()) for key in ("overhead_E", "overhead_J")
    }
    result |= {"rewards": names, "device": device, "threads": threads}
    result |= {"clock": "wall" if threads > 1 or device != "cpu" else "cpu", "networks": found}
    if as_json:
        print_json(result)
        return
    for network, entry in found.items():
        rows = [
            (name, arm["seconds"], arm["over_unguided"], arm["megabytes"], _means(arm))
            for name, arm in entry["arms"].items()
        ]
        head = ("", "seconds/picture", "times", "MB", "rewards of the pictures")
        print_table(network, head, rows)
        parts = [(name, part["forward"], part["backward"]) for name, part in entry["parts"].items()]
        print_table("", ("part", "forward, s", "backward, s"), parts)
    print_table("", ("", "times"), [(k, result[k]) for k in ("overhead_E", "overhead_J")])


def _means(arm: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in arm.get("scores", {}).items())


def _measure_guidance(
    names: list[str],
    pictures: int,
    repeats: int,
    mid_size: bool,
    threads: int,
    device: str,
    settings: dict[str, Any],
) -> dict[str, Any]:
    import torch

    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.guidance.bench import bench_guidance, mid_size_pipeline
    from t2x.registry import load_reward
    from t2x.world.prompts import training_prompts
    from t2x.world.weights import require_model

    torch.set_num_threads(threads)
    rewards = [load_reward(name, device=device) for name in names]
    generator = DiffusionGenerator.from_pretrained(require_model("emoji-flow"), device=device)
    prompts = [prompt.text for prompt in training_prompts(pictures)]
    found = {
        "emoji-flow": bench_guidance(
            generator.pipeline,
            rewards,
            prompts,
            call=generator.settings(),
            repeats=repeats,
            **settings,
        )
    }
    if mid_size:
        call = {"num_inference_steps": 4, "guidance_scale": 3.0, "height": 512, "width": 512}
        pipe = mid_size_pipeline().to(device)
        pipe.set_progress_bar_config(disable=True)
        found["90 M, 512x512"] = bench_guidance(
            pipe, rewards, prompts[:1], call=call, repeats=1, scored=False, **settings
        )
    return found


@bench.command("app")
def studio(
    generator: Annotated[str, typer.Option(help="What draws.")] = "emoji-flow",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time the studio from the command `t2x app` to the first picture on its page, in a Chromium of
    this machine (T2X_BROWSER, or the one on the path), or of its API where there is none.

    `keystroke_ms` is from a key to the frame that shows it, while pictures are made.
    """
    from t2x.registry import load_app

    found = load_app("studio-bench")("--generator", generator)
    if as_json:
        print_json(found)
        return
    keys = found.pop("keystroke_ms") or {}
    rows = [*found.items(), *((f"keystroke_ms, {name}", value) for name, value in keys.items())]
    print_table("the studio", ("", "value"), rows)
