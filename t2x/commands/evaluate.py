"""``t2x eval``: compare arms, trained runs among them, on held-out prompts."""

from __future__ import annotations

import math
from typing import Annotated, Any

import typer

from t2x.commands.console import (
    print_json,
    print_table,
    progress,
    split_names,
    split_weights,
)
from t2x.commands.evaluate_ask import ask
from t2x.errors import T2XError

__all__ = ["evaluate", "print_arms"]

_DRIFT = ("similarity", "violations", "exact", "words", "length_ratio")
# As t2x.world.guided.REWARDS, which would import torch.
_OPTIMISED = "questions=1,clip=1"
_COSTS = ("seconds", "tokens_written", "tokens_read")
_LABELS, _COLUMN = 18, 12  # characters of the measures, and of an arm, with what is between them

evaluate = typer.Typer(no_args_is_help=True, help="Compare rewriters and trained runs.")
evaluate.command("ask")(ask)


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


@evaluate.command("guidance")
def guidance(  # noqa: PLR0913 - a command has a parameter for each of its options
    arms: Annotated[
        str, typer.Option("--arms", "--arm", help="Arms with commas between; all without.")
    ] = "",
    n: Annotated[int, typer.Option("--n", min=1, help="Prompts.")] = 1000,
    budgets: Annotated[
        str, typer.Option(help="What each arm may spend, in plain pictures of the generator.")
    ] = "3,6,12",
    rewriter: Annotated[
        str,
        typer.Option(help="Arms also run on the texts of this arm of `t2x eval world`, or none."),
    ] = "rewrite",
    seed: Annotated[int, typer.Option(help="Seed of prompts and pictures.")] = 7,
    generator: Annotated[
        str, typer.Option("--model", help="What draws: a diffusers pipeline by name or folder.")
    ] = "emoji-flow-turbo",
    rewards: Annotated[
        str,
        typer.Option(help="What the arms optimise, NAME=WEIGHT with commas between."),
    ] = _OPTIMISED,
    held_out: Annotated[str, typer.Option(help="A reward that no arm sees.")] = "hps",
    settings: Annotated[
        str, typer.Option(help="YAML of --tune; t2x brings some for its own generators.")
    ] = "",
    tune: Annotated[
        bool,
        typer.Option("--tune", help="Choose settings on validation prompts; --out is the YAML."),
    ] = False,
    ablation: Annotated[
        bool, typer.Option("--ablation", help="RewardFlow with its parts left out one by one.")
    ] = False,
    diverse: Annotated[
        int, typer.Option(min=0, help="Prompts that are drawn from 4 seeds, for diversity.")
    ] = 50,
    dtype: Annotated[
        str,
        typer.Option(
            help="Number format of the generator and of what is optimised: float32, bfloat16, or "
            "auto, which is the second where the machine is fast at it."
        ),
    ] = "float32",
    store: Annotated[
        str, typer.Option(help="Folder of pictures and results; a stopped run goes on from it.")
    ] = "runs/guidance",
    out: Annotated[str, typer.Option(help="A plot of scores against FLOPs, .svg or .png.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare guidance, search and more steps at equal FLOPs on held-out prompts: the judge's
    score, a reward that nothing optimises, diversity and cost.
    """
    from t2x.store import Store
    from t2x.world.guided import GuidedSetup, ablated_arms, evaluate_guidance
    from t2x.world.guided_names import ARMS
    from t2x.world.guided_tuning import load_tuned, settings_for

    names = split_names(arms, "arm", "--arms unguided,best-of-n") if arms else list(ARMS)
    if ablation:
        names = ablated_arms(names if arms else ("rewardflow-e",))
    sources = ["raw"] if rewriter in ("", "none") else ["raw", rewriter]
    tuned = None if tune else load_tuned(settings or generator)
    if settings and not tune and tuned is None:
        raise T2XError(f"there is no file {settings!r}; give --settings the YAML of --tune")
    known = settings_for(tuned, names)
    setup = GuidedSetup(
        arms=names,
        n=n,
        budgets=_numbers(budgets),
        rewriters=sources,
        seed=seed,
        generator=generator,
        rewards=split_weights(rewards, "reward", f"--rewards {_OPTIMISED}"),
        held_out=held_out,
        settings=known,
        diverse=diverse,
        dtype=dtype,
    )
    cache = Store(store)
    if tune:
        _tune_guidance(setup, cache, out, as_json)
        return
    with progress() as show:
        result = evaluate_guidance(setup, store=cache, progress=show)
    if out:
        from t2x.world.guided_plot import draw_guidance

        draw_guidance(result, out)
    if as_json:
        print_json(result)
        return
    _print_guidance(result)


@evaluate.command("edits")
def edits(
    arms: Annotated[
        str, typer.Option("--arms", "--arm", help="Methods with commas between; all without.")
    ] = "",
    n: Annotated[int, typer.Option("--n", min=1, help="Edits.")] = 200,
    budget: Annotated[
        float, typer.Option(min=1, help="What each may spend, in plain pictures of the generator.")
    ] = 3.0,
    seed: Annotated[int, typer.Option(help="Seed of sources and edits.")] = 7,
    generator: Annotated[
        str, typer.Option("--model", help="What draws and edits: a pipeline by name or folder.")
    ] = "emoji-flow",
    rewards: Annotated[
        str, typer.Option(help="What guided methods optimise, NAME=WEIGHT with commas between.")
    ] = _OPTIMISED,
    ablation: Annotated[
        bool,
        typer.Option(
            "--ablation",
            help="RewardFlow without its tether, without a reward, ..., and with the policy.",
        ),
    ] = False,
    dtype: Annotated[
        str,
        typer.Option(
            help="Number format of the generator and of what is optimised: float32, bfloat16, or "
            "auto, which is the second where the machine is fast at it."
        ),
    ] = "float32",
    store: Annotated[
        str, typer.Option(help="Folder of pictures and results; a stopped run goes on from it.")
    ] = "runs/guidance",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Edit pictures of the emoji world by an instruction: is the target reached, is the background
    kept, at equal FLOPs.
    """
    from t2x.store import Store
    from t2x.world.edited import (
        EDIT_ABLATIONS,
        EDIT_ADDITIONS,
        EDIT_ARMS,
        EditSetup,
        evaluate_edits,
    )

    names = split_names(arms, "arm", "--arms sdedit,rewardflow") if arms else list(EDIT_ARMS)
    if ablation:
        names = [*names, *(f"rewardflow {part}" for part in (*EDIT_ABLATIONS, *EDIT_ADDITIONS))]
    weights = split_weights(rewards, "reward", f"--rewards {_OPTIMISED}")
    setup = EditSetup(names, n, budget, seed, generator, weights, dtype=dtype)
    with progress() as show:
        result = evaluate_edits(setup, store=Store(store), progress=show)
    if as_json:
        print_json(result)
        return
    columns = ("arm", "steps", "reached", "95 %", "PSNR", "GFLOP", "NFE", "s", "held out")
    rows = [
        (
            name,
            arm["size"],
            _short(arm["overall"]),
            " to ".join(map(_short, arm["ci95"])),
            _short(arm["psnr"]),
            _short(arm["flops"] / 1e9),
            *(_short(arm[key]) for key in ("nfe", "seconds", "heldout_reward")),
        )
        for name, arm in result["arms"].items()
        if arm["size"] is not None
    ]
    print_table("edits at equal FLOPs", columns, rows)
    for key in ("overall", "psnr"):
        _print_differences({f"{name}: {key}": d[key] for name, d in result["differences"].items()})


def _tune_guidance(setup: Any, store: Any, out: str, as_json: bool) -> None:
    """Choose settings at the middle budget and write them down."""
    from dataclasses import asdict

    from t2x.world.guided_tuning import save_tuned, tune_guidance

    budget = sorted(setup.budgets)[len(setup.budgets) // 2]
    with progress() as show:
        tuned = tune_guidance(setup, budget=budget, store=store, progress=show)
    if out:
        weights = ",".join(f"{name}={weight:g}" for name, weight in tuned.rewards.items())
        command = (
            f"t2x eval guidance --tune --model {tuned.generator} --arms {','.join(tuned.arms)} "
            f"--rewards {weights} --n {tuned.n} --seed {tuned.seed} --budgets {budget:g} "
            f"--dtype {setup.dtype}"
        )
        save_tuned(tuned, out, command=command)
    if as_json:
        print_json(asdict(tuned))
        return
    rows = [
        (name, str(row["settings"]), _short(row["heldout_reward"]), _short(row["reward"]))
        for name, tried in tuned.tried.items()
        for row in tried
    ]
    print_table("settings", ("arm", "settings", tuned.tuned_by, "optimised"), rows)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise T2XError(
            f"budgets are numbers with commas between, like 3,6; got {text!r}"
        ) from error


def _print_guidance(result: dict[str, Any]) -> None:
    columns = ("arm", "size", "overall", "95 %", "GFLOP", "NFE", "s", "optimised", "held out")
    rows = []
    for name, arm in result["arms"].items():
        if arm["size"] is None:
            rows.append((name, "over budget", *[""] * 9))
            continue
        low, high = arm["ci95"]
        rows.append(
            (
                name,
                arm["size"],
                _short(arm["overall"]),
                f"{_short(low)} to {_short(high)}",
                _short(arm["flops"] / 1e9),
                _short(arm["nfe"]),
                _short(arm["seconds"]),
                _short(arm["reward"]),
                _short(arm["heldout_reward"]),
                _short(arm["diversity"]),
                arm["over_optimised"],
            )
        )
    print_table("guidance at equal FLOPs", (*columns, "diversity", "over-optimised"), rows)
    _print_differences({name: gap["judge"] for name, gap in result["differences"].items()})


def print_arms(arms: dict[str, Any]) -> None:
    """Show scores by task, then drift and cost if all arms have them: arms as columns, as many in a
    table as the terminal has room for."""
    from rich.console import Console

    room = max((Console().width - _LABELS) // _COLUMN, 1)
    names = list(arms)
    for start in range(0, len(names), room):
        some = {name: arms[name] for name in names[start : start + room]}
        _print_rows("scores", {name: _scores(arm) for name, arm in some.items()})
        if all("drift" in arm for arm in arms.values()):
            _print_rows("drift and cost", {name: _costs(arm) for name, arm in some.items()})


def _print_rows(title: str, arms: dict[str, dict[str, float | None]]) -> None:
    """A row for each measure, a column for each arm."""
    measures = dict.fromkeys(measure for arm in arms.values() for measure in arm)
    rows = [(m, *(_short(arm.get(m)) for arm in arms.values())) for m in measures]
    print_table(title, ("", *arms), rows)


def _scores(arm: dict[str, Any]) -> dict[str, float | None]:
    low, high = arm["ci95"]
    return {
        "overall": arm["overall"],
        "  95 % from": low,
        "  to": high,
        **arm["tasks"],
        "s/picture": arm["seconds_per_picture"],
    }


def _costs(arm: dict[str, Any]) -> dict[str, float | None]:
    drift = {key: arm["drift"][key] for key in _DRIFT}
    cost = {key: arm["cost"][key] for key in _COSTS}
    found = {key.replace("_", " "): value for key, value in (drift | cost).items()}
    if "gap_closed" in arm:
        low, high = arm["gap_closed_ci95"]
        found |= {"gap closed": arm["gap_closed"], "  gap from": low, "  gap to": high}
    return found


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.3f}" if math.isfinite(value) else "unknown"


def _print_differences(differences: dict[str, Any]) -> None:
    rows = [
        (
            name,
            _short(d["mean"]),
            f"{_short(d['low'])} to {_short(d['high'])}",
            d["holds"],
            _short(d["detectable"]),
        )
        for name, d in differences.items()
    ]
    print_table("differences", ("arms", "mean", "95 %", "above 0", "detectable"), rows)
