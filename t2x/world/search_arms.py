"""Arms of the emoji world at equal cost: each may draw the same number of pictures per prompt, the
reward chooses one of them, and the judge sees that one alone.

An arm with one text (raw, rules, rewrite, dense) spends its pictures on seeds of that text: best of
B seeds. A search spends them on texts and seeds as it likes, the one of the user's own words
included. Texts and seeds that several arms draw are drawn once and charged to each. Beside the
final picture, the judge sees the first one of each arm's final text (``one_picture``): what a user
gets who takes the text and draws once.

The reward and the settings of the searches were chosen on validation prompts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from t2x.errors import T2XError
from t2x.prompts.protect import protect
from t2x.registry import load_rewriter
from t2x.search.loading import METHODS, REWARDS, make_method
from t2x.search.records import Cost, Track
from t2x.search.rewriter import SearchRewriter
from t2x.search.studio import Order, Studio
from t2x.search.writer import Ask, Writer
from t2x.types import Rewrite
from t2x.world.captions import dense_prompt
from t2x.world.evaluate import (
    ArmScores,
    add_gap_closed,
    arm_differences,
    arm_summary,
    as_generator,
    check_arms,
    picture_seed,
)
from t2x.world.judge import judge_pictures
from t2x.world.prompts import UserPrompt, held_out_prompts, validation_prompts

if TYPE_CHECKING:
    from t2x.rewriters.guarded import Guarded
    from t2x.search.history import History
    from t2x.search.records import Shot
    from t2x.types import Generator, RewardModel, Rewriter

__all__ = ["ARMS", "METHOD_OPTIONS", "SPLITS", "evaluate_at_equal_cost"]

ARMS = ("raw", "rules", "rewrite", *METHODS)
CHUNK = 48  # prompts that all arms work on before the next; also what a kill can cost
SPLITS: dict[str, Callable[[int, int], list[UserPrompt]]] = {
    "held-out": held_out_prompts,
    "validation": validation_prompts,
}
# Chosen on validation prompts, as is t2x.search.loading.REWARDS.
METHOD_OPTIONS: dict[str, dict[str, Any]] = {}
NUMBERS = {"seeds": 1, "confirm": 0}
# Pictures that the judge sees of each arm: the best of all, by the reward, and of the final text
# the best and the first.
WHICH = {"final": "", "best": "best_of_text", "first": "one_picture"}
Progress: TypeAlias = "Callable[[str, int, int], None]"
Row: TypeAlias = "dict[str, Any]"


@dataclass
class _Outcome:
    """What one arm gave for one prompt: the best picture of all, the best and the first of its
    text, the cost."""

    text: str
    final: Shot | None
    best: Shot | None
    first: Shot | None
    cost: Cost
    status: str


@dataclass
class _Bench:
    """Everything that the arms share."""

    studio: Studio
    writer: Writer
    budget: int
    seed: int
    numbers: Mapping[str, int]

    def noise(self, index: int) -> list[int]:
        """Picture seeds of a prompt; the first is the one of the arms with one picture."""
        return [picture_seed(self.seed, index, number) for number in range(self.budget)]


def evaluate_at_equal_cost(
    arms: Sequence[str] = ARMS,
    n: int = 1000,
    seed: int = 7,
    *,
    budget: int = 8,
    generator: str | Generator = "emoji-flow-turbo",
    rewriter: str | Rewriter = "emoji-rewriter",
    rewards: Sequence[RewardModel] | Mapping[str, float] = REWARDS,
    split: str = "held-out",
    out: str | Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score arms that draw ``budget`` pictures each on ``n`` prompts; plain data for JSON.

    ``arms`` maps each name to the scores of its final picture as ``evaluate_arms`` gives them, with
    ``one_picture`` (the same of the first picture of its text), ``best_of_text`` (of the best one
    of its text) and ``cost`` (means per prompt); ``differences`` compares final pictures,
    ``one_picture_differences`` and ``best_of_text_differences`` the others.

    Args:
        arms: raw, rules, rewrite, dense, names of rewriters and of searches (``METHODS``).
        n: prompts.
        seed: of prompts, texts and pictures.
        budget: pictures per prompt and arm.
        generator: what draws.
        rewriter: what the arm "rewrite" and the searches ask.
        rewards: what chooses: names with weights, or loaded rewards, which are summed.
        split: "held-out", or "validation" to choose settings on.
        out: JSONL with a row per prompt; a run that was stopped goes on where it was.
        progress: hears (what, done, total).

    Raises T2XError for arms that ``evaluate_arms`` refuses, an unknown split, and an ``out`` of
    other settings.
    """
    from t2x.registry import load_reward

    check_arms([name for name in arms if name not in METHODS] or ["raw"], n)
    if split not in SPLITS:
        raise T2XError(f"unknown split {split!r}; allowed: {', '.join(SPLITS)}")
    if len(set(arms)) != len(arms):
        raise T2XError(f"the arms are {', '.join(arms)}; give each once")
    model = as_generator(generator)
    weights = dict(rewards) if isinstance(rewards, Mapping) else {}
    studio = Studio(model, [load_reward(r) for r in rewards], weights, count_flops=True)
    writer = Writer(_guarded(rewriter, model), count_flops=True)
    numbers = {"budget": budget, **NUMBERS}
    bench = _Bench(studio, writer, budget, seed, numbers)
    prompts = SPLITS[split](n, seed)
    settings = {
        "input": split,
        "n": n,
        "seed": seed,
        "budget": budget,
        "arms": list(arms),
        "generator": model.model_id,
        "rewriter": writer.guarded.model_id,
        "rewards": studio.ensemble.weights,
        **NUMBERS,
        "methods": {name: METHOD_OPTIONS.get(name, {}) for name in arms if name in METHODS},
    }
    rows = _rows(bench, arms, prompts, settings, out, progress)
    return {**settings, **_table(prompts, arms, rows, seed)}


def _guarded(rewriter: str | Rewriter, model: Generator) -> Guarded:
    from t2x.rewriters.loading import load_guarded

    return load_guarded(rewriter, generator=model)


# ---- running ------------------------------------------------------------------------------------


def _rows(
    bench: _Bench,
    arms: Sequence[str],
    prompts: Sequence[UserPrompt],
    settings: Row,
    out: str | Path | None,
    progress: Progress | None,
) -> list[Row]:
    """A row per prompt: those of an earlier run, and the others chunk by chunk."""
    if out is None:
        return _run(bench, arms, prompts, 0, progress, lambda rows: None)
    from t2x.jobs.output import open_output

    path = Path(out)
    with open_output(path, settings) as output:
        done = output.last + 1
        _run(bench, arms, prompts, done, progress, lambda rows: output.write(rows, []))
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _run(
    bench: _Bench,
    arms: Sequence[str],
    prompts: Sequence[UserPrompt],
    begin: int,
    progress: Progress | None,
    save: Callable[[list[Row]], None],
) -> list[Row]:
    runners = {name: _runner(name, bench) for name in arms}
    every: list[Row] = []
    for start in range(begin, len(prompts), CHUNK):
        chunk = prompts[start : start + CHUNK]
        found: dict[str, list[_Outcome]] = {}
        for name, run in runners.items():
            if progress is not None:
                progress(f"{name}, prompts", start, len(prompts))
            found[name] = run(chunk, start)
        judged = _judged(chunk, found)
        rows = [
            {"index": start + i, "arms": {name: judged[name][i] for name in arms}}
            for i in range(len(chunk))
        ]
        save(rows)
        every += rows
        bench.studio.clear()
        bench.writer.clear()
    if progress is not None:
        progress("done", len(prompts), len(prompts))
    return every


_Runner: TypeAlias = "Callable[[Sequence[UserPrompt], int], list[_Outcome]]"


def _runner(name: str, bench: _Bench) -> _Runner:
    if name not in METHODS:
        return _one_text(name, bench)
    method = make_method(name, **METHOD_OPTIONS.get(name, {}))
    search = SearchRewriter.sharing(bench.studio, bench.writer, method, **bench.numbers)

    def run(chunk: Sequence[UserPrompt], start: int) -> list[_Outcome]:
        noise = [bench.noise(start + i) for i in range(len(chunk))]
        texts = [p.text for p in chunk]
        return [_searched(h) for h in search.search(texts, seed=bench.seed, picture_seeds=noise)]

    return run


def _searched(history: History) -> _Outcome:
    winner = history.winner
    status = "accepted" if winner.number else "unchanged"
    best = _best(list(winner.shots.values()))
    first = winner.first()
    return _Outcome(winner.rewrite.text, history.shot, best, first, history.cost, status)


def _best(shots: Sequence[Shot]) -> Shot | None:
    known = [s for s in shots if not math.isnan(s.score)]
    return max(known, key=lambda s: s.score) if known else None


def _one_text(name: str, bench: _Bench) -> _Runner:
    """An arm that spends its pictures on seeds of one text."""
    write = _text_writer(name, bench)

    def run(chunk: Sequence[UserPrompt], start: int) -> list[_Outcome]:
        noise = [bench.noise(start + i) for i in range(len(chunk))]
        tracks = [
            Track(p.text, protect(p.text).sources, tuple(row), bench.budget, bench.seed)
            for p, row in zip(chunk, noise, strict=True)
        ]
        rewrites = write(chunk, tracks, start)
        orders = [
            Order(p.text, r.text, r.negative, s)
            for p, r, row in zip(chunk, rewrites, noise, strict=True)
            for s in row
        ]
        shots = iter(bench.studio.draw(orders))
        return [
            _best_seed(rewrite, [next(shots) for _ in row], track.cost)
            for rewrite, row, track in zip(rewrites, noise, tracks, strict=True)
        ]

    return run


def _best_seed(rewrite: Rewrite, shots: Sequence[Shot], cost: Cost) -> _Outcome:
    for shot in shots:
        cost.charge(shot)
    best = _best(shots)
    return _Outcome(rewrite.text, best, best, shots[0], cost, rewrite.status)


_TextWriter: TypeAlias = "Callable[[Sequence[UserPrompt], Sequence[Track], int], list[Rewrite]]"


def _text_writer(name: str, bench: _Bench) -> _TextWriter:
    """As in ``evaluate_arms``: the rules bare, every model inside the guard."""
    if name == "rules":
        rules = load_rewriter(name)
        return lambda chunk, tracks, start: [
            row[0] for row in rules.rewrite([p.text for p in chunk], seed=bench.seed)
        ]
    if name in ("raw", "dense"):
        return lambda chunk, tracks, start: [
            Rewrite(p.text, _reference(name, p, bench.seed, start + i), status="unchanged")
            for i, p in enumerate(chunk)
        ]
    writer = bench.writer if name == "rewrite" else Writer(_guarded(name, bench.studio.generator))

    def ask(chunk: Sequence[UserPrompt], tracks: Sequence[Track], start: int) -> list[Rewrite]:
        answers = writer.ask([Ask(t, t.sources) for t in tracks])
        return [writer.judge(t, row[0]) for t, row in zip(tracks, answers, strict=True)]

    return ask


def _reference(name: str, prompt: UserPrompt, seed: int, index: int) -> str:
    if name == "raw":
        return prompt.text
    return dense_prompt(prompt.scene, picture_seed(seed, index))


def _judged(
    chunk: Sequence[UserPrompt], found: Mapping[str, Sequence[_Outcome]]
) -> dict[str, list[Row]]:
    """What the judge says of final and first pictures. A picture that is missing is no success: an
    arm without one has drawn nothing that could be right."""
    from t2x.search.studio import media_of

    wanted = {
        id(shot): (prompt, shot)
        for rows in found.values()
        for prompt, row in zip(chunk, rows, strict=True)
        for shot in (row.final, row.best, row.first)
        if shot is not None
    }
    shots = [shot for _, shot in wanted.values()]
    verdicts = judge_pictures([p.scene for p, _ in wanted.values()], media_of(shots))
    right = {key: float(v.correct) for key, v in zip(wanted, verdicts, strict=True)}
    return {
        name: [
            {
                "text": row.text,
                "final": right.get(id(row.final), 0.0),
                "best": right.get(id(row.best), 0.0),
                "first": right.get(id(row.first), 0.0),
                "status": row.status,
                "cost": asdict(row.cost),
            }
            for row in rows
        ]
        for name, rows in found.items()
    }


# ---- tables -------------------------------------------------------------------------------------


def _table(
    prompts: Sequence[UserPrompt], arms: Sequence[str], rows: Sequence[Row], seed: int
) -> dict[str, Any]:
    table: dict[str, Any] = {"arms": {}}
    scores: dict[str, dict[str, ArmScores]] = {}
    for which in WHICH:
        scores[which] = {name: _scores([r["arms"][name] for r in rows], which) for name in arms}
        summaries = {name: arm_summary(prompts, arm, seed) for name, arm in scores[which].items()}
        add_gap_closed(summaries)
        for name, summary in summaries.items():
            if which == "final":
                table["arms"][name] = summary
            else:
                table["arms"][name][WHICH[which]] = summary
    for name in arms:
        table["arms"][name]["cost"] = _mean_cost([r["arms"][name]["cost"] for r in rows])
    for which, said in WHICH.items():
        table[f"{said}_differences".lstrip("_")] = arm_differences(prompts, scores[which], seed)
    return table


def _scores(rows: Sequence[Row], which: str) -> ArmScores:
    pictures = sum(row["cost"]["pictures"] for row in rows)
    drawing = sum(row["cost"]["seconds"].get("drawing", 0.0) for row in rows)
    writing = sum(row["cost"]["seconds"].get("writing", 0.0) for row in rows)
    return ArmScores(
        [row["text"] for row in rows],
        np.array([row[which] for row in rows]),
        drawing / max(pictures, 1),
        writing / max(len(rows), 1),
        Counter(row["status"] for row in rows if row["status"]),
    )


def _mean_cost(costs: Sequence[Row]) -> dict[str, Any]:
    """Means per prompt; FLOPs of what was counted."""
    number = max(len(costs), 1)
    phases = sorted({phase for cost in costs for phase in cost["seconds"]})
    seconds = {p: sum(c["seconds"].get(p, 0.0) for c in costs) / number for p in phases}
    flops = [c["flops"] for c in costs if c["flops"] is not None and c["flops"] == c["flops"]]
    return {
        **{
            name: sum(cost[name] for cost in costs) / number
            for name in ("pictures", "reward_calls", "lm_calls")
        },
        "seconds": sum(seconds.values()),
        "seconds_by_phase": seconds,
        "flops": sum(flops) / len(flops) if flops else float("nan"),
    }
