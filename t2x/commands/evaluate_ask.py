"""``t2x eval ask``: does asking pay, and does information gain choose better questions?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from t2x.commands.console import print_json, print_table, progress, split_names

__all__ = ["ask"]


def ask(
    arms: Annotated[
        str,
        typer.Option(
            "--arms",
            "--arm",
            help="Which question comes next, with commas between: gain (information gain times "
            "measured influence), gain-alone, random, fixed, nothing (none is asked); all without.",
        ),
    ] = "",
    n: Annotated[int, typer.Option("--n", min=1, help="Hidden scenes, held out.")] = 200,
    questions: Annotated[int, typer.Option(min=1, help="The most that is asked.")] = 6,
    noise: Annotated[
        float, typer.Option(min=0, max=1, help="How often the user picks a wrong answer.")
    ] = 0.02,
    seed: Annotated[int, typer.Option(help="Seed of scenes, prompts, slips and pictures.")] = 7,
    generator: Annotated[
        str, typer.Option("--model", help="What draws: emoji-flow-turbo or emoji-flow.")
    ] = "emoji-flow-turbo",
    store: Annotated[
        str, typer.Option(help="Folder of results; a stopped run goes on from it.")
    ] = "runs/asking",
    out: Annotated[str, typer.Option(help="A plot of score and gain, .svg or .png.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let simulated users with a hidden scene answer questions, and let the judge score the picture
    after each answer: the same users and seeds for every way to choose questions.
    """
    from t2x.store import Store
    from t2x.world.asked import ARMS, AskingSetup, evaluate_asking

    setup = AskingSetup(
        n=n,
        arms=split_names(arms, "arm", "--arms gain,random") if arms else list(ARMS),
        questions=questions,
        seed=seed,
        noise=noise,
        generator=generator,
    )
    setup.check()
    with progress() as show:
        result = evaluate_asking(setup, store=Store(store), progress=show)
    if out:
        from t2x.world.asked_plot import draw_asking

        draw_asking(result, out)
    if as_json:
        print_json(result)
        return
    _print(result)


def _print(result: dict[str, Any]) -> None:
    steps = range(result["questions"] + 1)
    rows = [
        (name, *(f"{value:.3f}" for value in arm["score"]), f"{arm['mean']:.3f}")
        for name, arm in result["arms"].items()
    ]
    print_table("right after so many questions", ("arm", *map(str, steps), "mean of 1 on"), rows)
    changes = [
        (name, f"{d['mean']:.3f}", f"{d['low']:.3f} to {d['high']:.3f}", d["holds"])
        for name, d in result["differences"].items()
    ]
    print_table("differences of the mean", ("arms", "mean", "95 %", "above 0"), changes)
    influences = [(name, f"{value:.2f}") for name, value in result["influences"].items()]
    print_table("change by a feature, over that by a seed", ("feature", "times"), influences)
