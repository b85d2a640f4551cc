"""``t2x data``: files to train rewriters on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from t2x.commands.console import (
    job_progress,
    note,
    print_json,
    print_table,
    split_names,
    split_weights,
)
from t2x.errors import T2XError

if TYPE_CHECKING:
    from t2x.training.config import RewardConfig

__all__ = ["data"]

data = typer.Typer(
    no_args_is_help=True,
    help="Make files to train rewriters on, without the prompts of public benchmarks.",
)
REWARDS = "vqa=1,clip=1"

Out = Annotated[Path, typer.Argument(help="File to write, .jsonl or .parquet; its card is .json.")]
From = Annotated[
    str,
    typer.Option(
        "--from",
        help="Prompts: world, a file (.txt, .csv, .jsonl, .parquet) or a hub id owner/name. For "
        "sft and pairs also candidates: NAME.scored.jsonl, or a folder of `t2x search`.",
    ),
]
Number = Annotated[
    int | None, typer.Option("-n", min=1, help="Prompts at most; 1000 of the world, else all.")
]
Seed = Annotated[int, typer.Option(help="Same seed, same bytes.")]
Column = Annotated[
    str | None, typer.Option(help="Column that holds prompts; the first known one without.")
]
Split = Annotated[str, typer.Option(help="Split of a data set of the hub.")]
Kinds = Annotated[
    str | None, typer.Option("--kind", help="Phrasing kinds of the world, with commas between.")
]
Tasks = Annotated[
    str | None, typer.Option("--task", help="Tasks of the world, with commas between.")
]
MaxWords = Annotated[
    int | None, typer.Option(min=1, help="Longer prompts are left out, never cut.")
]
Exclude = Annotated[
    str | None, typer.Option(help="Leave out the prompts of this file, so that both share none.")
]
Num = Annotated[int, typer.Option("--num", min=1, help="Candidates for each prompt.")]
Model = Annotated[str, typer.Option("--model", help="What draws: a name, a folder, or a hub id.")]
Pictures = Annotated[
    int, typer.Option(min=1, help="Pictures of each text; 2 or more show what seeds alone do.")
]
Store = Annotated[Path | None, typer.Option(help="Folder that keeps pictures.")]
Noise = Annotated[
    float,
    typer.Option(
        min=0.0, help="Least difference of scores, in deviations that seeds alone give to one."
    ),
]
Margin = Annotated[float, typer.Option(min=0.0, help="Least difference of scores itself.")]
Combine = Annotated[
    Literal["sum", "standardised"], typer.Option(help="How several rewards become one.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Make everything anew, candidates included.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the card as JSON.")]


@data.command()
def prompts(  # noqa: PLR0913 - a command has a parameter for each of its options
    out: Out,
    source: From = "world",
    n: Number = None,
    seed: Seed = 0,
    column: Column = None,
    split: Split = "train",
    kinds: Kinds = None,
    tasks: Tasks = None,
    min_words: Annotated[int, typer.Option(min=1, help="Shorter prompts are left out.")] = 1,
    max_words: MaxWords = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of --policy's whole input.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="Whose tokens are counted.")] = None,
    exclude: Exclude = None,
    repeated: Annotated[bool, typer.Option(help="Keep prompts that come again.")] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Choose prompts to roll out from, for reinforcement learning."""
    from t2x.data.gathering import PromptSource
    from t2x.data.making import make_prompts
    from t2x.data.prompts import PromptRules

    rules = PromptRules(
        min_words=min_words, max_words=max_words, max_tokens=max_tokens, repeated=repeated
    )
    wanted = PromptSource(
        source, n, seed, column, split, _names(kinds), _names(tasks), rules, policy,
        exclude,
    )  # fmt: skip
    _show(make_prompts(wanted, out, overwrite=overwrite), out, as_json)


@data.command()
def sft(  # noqa: PLR0913 - a command has a parameter for each of its options
    out: Out,
    source: From = "world",
    n: Number = None,
    seed: Seed = 0,
    column: Column = None,
    split: Split = "train",
    max_words: MaxWords = None,
    exclude: Exclude = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Rewriter that answers: a name, openai:MODEL, search:evolution, ...; the world's "
            "own teacher without."
        ),
    ] = None,
    num: Num = 1,
    rewards: Annotated[
        str | None,
        typer.Option(
            "--reward", "-r", help=f"Keep answers whose pictures are better: {REWARDS}, say."
        ),
    ] = None,
    model: Model = "emoji-flow-turbo",
    pictures: Pictures = 2,
    combine: Combine = "sum",
    store: Store = None,
    noise: Noise = 2.0,
    margin: Margin = 0.0,
    best: Annotated[int, typer.Option(min=1, help="Answers for each prompt at most.")] = 1,
    unchanged: Annotated[
        bool, typer.Option(help="Where no answer is better, the prompt itself is the answer.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write prompts with answers to learn, from a teacher, checked and chosen by their pictures."""
    from t2x.data.answers import AnswerRules
    from t2x.data.gathering import PromptSource, Sampling
    from t2x.data.making import Scale, make_sft
    from t2x.data.prompts import PromptRules

    fit = PromptRules(max_words=max_words)
    wanted = PromptSource(source, n, seed, column, split, rules=fit, exclude=exclude)
    weights = _weights(rewards)
    sampling = None
    if teacher is not None:
        reward = _reward(weights, model, pictures, store) if weights else None
        sampling = Sampling(teacher, num, seed, reward=reward)
    elif weights and not wanted.is_scored:
        raise T2XError("--reward chooses among a teacher's answers; name one with --teacher")
    scale = Scale(weights, combine)
    rules = AnswerRules(best=best, noise=noise, margin=margin, unchanged=unchanged)
    with job_progress("prompts") as show:
        card = make_sft(
            wanted, sampling, rules, out, scale=scale, overwrite=overwrite, progress=show
        )
    _show(card, out, as_json)


@data.command()
def pairs(  # noqa: PLR0913 - a command has a parameter for each of its options
    out: Out,
    source: From = "world",
    n: Number = None,
    seed: Seed = 0,
    column: Column = None,
    split: Split = "train",
    max_words: MaxWords = None,
    exclude: Exclude = None,
    policy: Annotated[
        str, typer.Option(help="Language model whose answers are compared, or search:METHOD.")
    ] = "emoji-rewriter",
    num: Num = 4,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Of all candidates; one is greedy without.")
    ] = None,
    rewards: Annotated[
        str | None,
        typer.Option(
            "--reward", "-r", help=f"What scores pictures, with weights; {REWARDS} without."
        ),
    ] = None,
    model: Model = "emoji-flow-turbo",
    pictures: Pictures = 2,
    combine: Combine = "sum",
    store: Store = None,
    noise: Noise = 2.0,
    margin: Margin = 0.0,
    dominance: Annotated[
        bool, typer.Option(help="The winner is worse in no single reward (VPO).")
    ] = False,
    winners: Annotated[
        int, typer.Option(min=1, help="Best candidates of a prompt that win a pair each.")
    ] = 2,
    length_ratio: Annotated[
        float, typer.Option(min=0.0, help="Longer to shorter answer at most; 0 is any.")
    ] = 1.5,
    balanced: Annotated[
        bool, typer.Option(help="As many winners longer than their losers as shorter.")
    ] = False,
    original: Annotated[
        Literal["both", "winner", "loser", "never"],
        typer.Option(help="What the prompt left as it is may be."),
    ] = "both",
    failures: Annotated[
        bool, typer.Option(help="Answers that break a check or can't be read may lose.")
    ] = True,
    gates: Annotated[
        str | None, typer.Option("--gate", help="Least score of a winner, as clip=0.2.")
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write prompts with a better and a worse answer, told apart by their pictures.

    Candidates and scores stay in NAME.scored.jsonl: a run that was stopped goes on from there, and
    with --from NAME.scored.jsonl others are chosen without drawing anything.
    """
    from t2x.data.gathering import PromptSource, Sampling
    from t2x.data.making import Scale, make_pairs
    from t2x.data.pairs import PairRules
    from t2x.data.prompts import PromptRules

    fit = PromptRules(max_words=max_words)
    wanted = PromptSource(source, n, seed, column, split, rules=fit, exclude=exclude)
    weights = _weights(rewards)
    reward = _reward(weights or _weights(REWARDS) or {}, model, pictures, store)
    sampling = Sampling(policy, num, seed, temperature, reward)
    given = None if wanted.is_scored else sampling
    rules = PairRules(
        noise=noise, margin=margin, dominance=dominance, winners=winners,
        length_ratio=length_ratio or None, balanced=balanced, original=original,
        failures=failures, gates=split_weights(gates, "gate", "clip=0.2") if gates else {},
    )  # fmt: skip
    with job_progress("prompts") as show:
        card = make_pairs(
            wanted, given, rules, out, scale=Scale(weights, combine), overwrite=overwrite,
            progress=show,
        )  # fmt: skip
    _show(card, out, as_json)


@data.command()
def check(
    source: Annotated[str, typer.Argument(help="A file, or a hub id owner/name.")],
    column: Column = None,
    split: Split = "train",
    strict: Annotated[
        bool, typer.Option("--strict", help="Leave with exit code 1 if anything is found.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say which prompts of public benchmarks a file holds: GenEval, T2I-CompBench, PartiPrompts,
    DPG-Bench, GenAI-Bench, VBench."""
    from t2x.data.checking import check_source

    report = check_source(source, column=column, split=split)
    if as_json:
        print_json(report)
    else:
        rows = [
            (part, name, kinds["exact"], kinds["near"])
            for part, by_name in report["found"].items()
            for name, kinds in by_name.items()
        ]
        title = f"{source}: {report['prompts']} prompts, {report['answers']} answers"
        print_table(title, ("in", "benchmark", "exact", "near"), rows)
    if strict and report["matched"]:
        raise T2XError(f"{report['matched']} texts of {source!r} are from public benchmarks")


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(split_names(text, "name", "plain,photo")) if text else ()


def _weights(rewards: str | None) -> dict[str, float] | None:
    return None if rewards is None else split_weights(rewards, "reward", REWARDS)


def _reward(
    weights: dict[str, float], model: str, pictures: int, store: Path | None
) -> RewardConfig:
    from t2x.training.config import RewardConfig

    return RewardConfig(weights, generator=model, pictures=pictures, store=store)


def _show(card: dict[str, Any], out: Path, as_json: bool) -> None:
    if as_json:
        print_json(card)
        return
    rows = [("rows", card["rows"]), *(card["dropped"].items())]
    rows += [(name, value) for name, value in card.get("pairs", {}).items()]
    print_table(str(out), ("what", "number"), [(name, _said(value)) for name, value in rows])
    note(f"written: {out} and {out.with_suffix('.json')}")


def _said(value: object) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return value
