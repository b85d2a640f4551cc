"""``t2x world``: train, measure and look at the embedded emoji world."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Annotated, Any

import typer

from t2x.commands.console import (
    note,
    print_json,
    print_table,
    progress,
    split_names,
    split_weights,
)
from t2x.commands.evaluate import print_arms
from t2x.commands.search import EXAMPLE
from t2x.errors import T2XError

__all__ = ["world"]

world = typer.Typer(no_args_is_help=True, help="Train, measure and look at the emoji world.")


@world.command()
def train(
    name: Annotated[str, typer.Argument(help="A name from `t2x list commands`.")],
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after this time; the recipe's own without.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after this many steps.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights and data.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for model and checkpoints; runs/NAME without.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Go on from a checkpoint in --out.")] = True,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads.")] = None,
    start: Annotated[
        Path | None, typer.Option(help="Model to train further, for recipes that fine-tune one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train one embedded model on this computer, and print the metrics that its card states."""
    from t2x.registry import load_trainer

    folder = Path("runs") / name if out is None else out
    trainer = load_trainer(name)
    options: dict[str, Any] = {"minutes": minutes, "steps": steps, "seed": seed, "resume": resume}
    options |= {"threads": threads, "out": folder}
    if start is not None:
        if "start" not in signature(trainer).parameters:
            raise T2XError(f"{name} is trained from nothing; leave --start {start} out")
        options["start"] = start
    metrics = trainer(**options)
    if as_json:
        print_json({"name": name, "out": folder, "metrics": metrics})
    else:
        print_table(f"{name} in {folder}", ("metric", "value"), metrics.items())


@world.command("eval")
def evaluate(
    arms: Annotated[
        str,
        typer.Option("--arm", help="Arms to compare, with commas between; with --budget searches."),
    ] = "raw,rules,dense,rewrite",
    n: Annotated[
        int, typer.Option("--n", min=30, help="Held-out prompts, five a task at least.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of prompts and pictures.")] = 7,
    generator: Annotated[
        str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")
    ] = "emoji-flow",
    budget: Annotated[
        int | None,
        typer.Option(min=2, help="Pictures for each prompt and arm, of which a reward takes one."),
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(
            "--reward", "-r", help=f"With --budget: what takes it, with weights; {EXAMPLE} without."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="With --budget: JSONL, a row a prompt; a stopped run goes on from it."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="With --budget: held-out, as without, or validation to choose settings on."
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --budget: processes of one thread each, 1 without."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Generate from held-out prompts in several arms, and let the judge score the pictures.

    With --budget every arm draws as many pictures of each prompt, and the judge sees the one that
    the reward takes; arms may then be searches: best-of-n, evolution, reflective, cooperative,
    critique-refine.
    """
    names = split_names(arms, "arm", "--arm raw,dense")
    if budget is None:
        given = {"--reward": rewards, "--out": out, "--split": split, "--workers": workers}
        if idle := [option for option, value in given.items() if value is not None]:
            raise T2XError(
                f"{', '.join(idle)}: for arms at equal cost; give --budget as well, or leave it out"
            )
    with progress() as show:
        if budget is None:
            from t2x.world.evaluate import evaluate_arms

            result = evaluate_arms(names, n, seed, generator=generator, progress=show)
        else:
            from t2x.world.search_arms import EqualCost, evaluate_at_equal_cost

            weights = split_weights(EXAMPLE if rewards is None else rewards, "reward", EXAMPLE)
            setup = EqualCost(
                names,
                n,
                seed,
                budget,
                generator=generator,
                rewards=weights,
                split=split or "held-out",
            )
            result = evaluate_at_equal_cost(setup, out=out, workers=workers or 1, progress=show)
    if as_json:
        print_json(result)
        return
    print_arms(result["arms"])
    if budget is not None:
        _print_costs(result["arms"])


@world.command("rewards")
def measure_rewards(
    rewards: Annotated[
        str, typer.Option("--reward", help="Rewards of `t2x rewards`, with commas between.")
    ] = "vqa,yes-no,promptecho,align,clip,hps,aesthetic,quality",
    n: Annotated[int, typer.Option("--n", min=30, help="Held-out prompts.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of prompts and pictures.")] = 11,
    generator: Annotated[
        str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")
    ] = "emoji-flow",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure rewards against the judge: AUC on generated pictures, by what is wrong with them."""
    names = split_names(rewards, "reward", "--reward vqa,clip")
    from t2x.registry import load_generator, load_reward
    from t2x.world.reward_auc import reward_aucs
    from t2x.world.reward_faults import KINDS, blind_to, fault_table

    options: dict[str, Any] = {"n": n, "seed": seed, "generator": load_generator(generator)}
    loaded = [load_reward(name) for name in names]
    with progress() as show:
        drawn = reward_aucs(loaded, **options, progress=show)
        planted = fault_table(loaded, **options, progress=show)
    if as_json:
        print_json({"drawn": drawn, "planted": planted})
        return
    rows = [
        (
            name,
            drawn["rewards"][name]["pooled"],
            *(kinds[kind]["auc"] for kind in KINDS),
            ", ".join(blind_to(kinds)),
        )
        for name, kinds in planted["rewards"].items()
    ]
    columns = (f"{kind} ({planted['pairs'][kind]})" for kind in KINDS)
    print_table("AUC against the judge", ("reward", "as drawn", *columns, "blind to"), rows)


def _print_costs(arms: dict[str, Any]) -> None:
    """What each arm spent on a prompt, and what one more picture of its text is worth."""
    names = ("pictures", "reward_calls", "lm_calls", "seconds", "flops")
    rows = [
        (name, *(f"{arm['cost'][key]:.3g}" for key in names), arm["one_picture"]["overall"])
        for name, arm in arms.items()
    ]
    print_table("", ("arm", *(n.replace("_", " ") for n in names), "one picture"), rows)


@world.command()
def render(
    out: Annotated[Path, typer.Option(help="The PNG file to write.")] = Path("out/scenes.png"),
    n: Annotated[int, typer.Option("--n", min=1, max=400, help="Scenes in the sheet.")] = 16,
    seed: Annotated[int, typer.Option(help="Seed of scenes and layout.")] = 0,
    task: Annotated[str | None, typer.Option(help="Only scenes of this task.")] = None,
    scale: Annotated[int, typer.Option(min=1, max=16, help="Enlarge by this factor.")] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Draw random scenes of the emoji world in one sheet, with a caption for each."""
    from t2x.world.sheet import draw_sheet

    captions = draw_sheet(out, n=n, seed=seed, task=task, scale=scale)
    if as_json:
        print_json({"out": out, "scenes": captions})
        return
    print_table(
        "",
        ("", "task", "caption"),
        [(i, row["task"], row["caption"]) for i, row in enumerate(captions)],
    )
    note(f"written to {out}")
