"""Arms of the emoji world at equal cost: each may draw the same number of pictures per prompt, the
reward chooses one of them, and the judge sees that one alone.

An arm with one text (raw, rules, rewrite, dense) spends its pictures on seeds of that text: best of
B seeds. A search spends them on texts and seeds as it likes, the one of the user's own words
included. Texts and seeds that several arms draw are drawn once and charged to each.

Beside the final picture, the judge sees one more of each arm's final text (``one_picture``): what a
user gets who takes the text and draws once. Its seed is one that no arm has used, and it is no part
of the budget: a picture that helped to choose the text would look better than the text is.
"""

from __future__ import annotations

import json
import math
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from t2x.errors import T2XError
from t2x.plain import lines_of
from t2x.prompts.protect import protect
from t2x.registry import load_rewriter
from t2x.search.evaluator import Evaluator, Order
from t2x.search.loading import METHODS, REWARDS, make_method, method_of
from t2x.search.records import Cost, Track
from t2x.search.rewriter import SearchRewriter
from t2x.search.writer import Ask, Writer
from t2x.types import Rewrite
from t2x.world.arms import check_arms, picture_seed
from t2x.world.captions import dense_prompt
from t2x.world.evaluate import (
    ArmScores,
    add_gap_closed,
    arm_differences,
    arm_summary,
    as_generator,
)
from t2x.world.judge import judge_pictures
from t2x.world.prompts import SPLITS, UserPrompt
from t2x.world.weights import weight_digests

if TYPE_CHECKING:
    from t2x.rewriters.guarded import Guarded
    from t2x.search.history import History
    from t2x.search.records import Shot
    from t2x.types import Generator, RewardModel, Rewriter

__all__ = [
    "ARMS",
    "METHOD_OPTIONS",
    "EqualCost",
    "evaluate_at_equal_cost",
]

ARMS = ("raw", "rules", "rewrite", *METHODS)
# Options of a search by its name; those that are not here are the defaults of its class.
METHOD_OPTIONS: dict[str, dict[str, Any]] = {}
NUMBERS = {"seeds": 1, "confirm": 0}
Progress: TypeAlias = "Callable[[str, int, int], None]"
Row: TypeAlias = "dict[str, Any]"


@dataclass
class _Outcome:
    """What one arm gave for one prompt: its final text, the best picture of all, the cost; and one
    picture of the text that nothing has chosen, once it is drawn."""

    text: str
    negative: str
    final: Shot | None
    cost: Cost
    status: str
    one: Shot | None = None


@dataclass(frozen=True)
class EqualCost:
    """What is compared.

    Args:
        arms: raw, rules, rewrite, dense, names of rewriters and of searches (``METHODS``, with or
            without "search:" before them).
        n: prompts.
        seed: of prompts, texts and pictures.
        budget: pictures per prompt and arm.
        generator: what draws.
        rewriter: what the arm "rewrite" and the searches ask.
        rewards: what chooses: names with weights, or loaded rewards, which are summed.
        split: "held-out", or "validation" to choose settings on.
        chunk: prompts that all arms work on before the next; also what a kill can cost.
    """

    arms: Sequence[str] = ARMS
    n: int = 1000
    seed: int = 7
    budget: int = 8
    generator: str | Generator = "emoji-flow-turbo"
    rewriter: str | Rewriter = "emoji-rewriter"
    rewards: Sequence[RewardModel] | Mapping[str, float] = field(default_factory=REWARDS.copy)
    split: str = "held-out"
    chunk: int = 48

    def check(self) -> None:
        """Raise T2XError, before anything is loaded, for what can't be run."""
        single = [name for name in self.arms if not method_of(name)] or ["raw"]
        check_arms({name: name for name in single}, self.n)
        if self.split not in SPLITS:
            raise T2XError(f"unknown split {self.split!r}; allowed: {', '.join(SPLITS)}")
        if len({method_of(name) or name for name in self.arms}) != len(self.arms):
            raise T2XError(f"the arms are {', '.join(self.arms)}; give each once")
        if self.budget < 2:
            raise T2XError(f"budget is {self.budget}; give at least 2 pictures")

    def prompts(self) -> list[UserPrompt]:
        """The prompts, the same for all arms."""
        return SPLITS[self.split](self.n, self.seed)

    def settings(self) -> Row:
        """All that decides a row."""
        from t2x import __version__

        parts = {"generator": self.generator, "rewriter": self.rewriter}
        names = {k: v if isinstance(v, str) else v.model_id for k, v in parts.items()}
        rewards: Mapping[str, Any] | Sequence[RewardModel] = self.rewards
        if not isinstance(rewards, Mapping):  # of an ensemble, what is in it
            rewards = {r.name: getattr(r, "weights", 1.0) for r in rewards}
        methods = [method for name in self.arms if (method := method_of(name))]
        return {
            "input": self.split,
            "n": self.n,
            "seed": self.seed,
            "budget": self.budget,
            "chunk": self.chunk,
            "arms": list(self.arms),
            **names,
            "rewards": dict(rewards),
            **NUMBERS,
            "methods": {method: METHOD_OPTIONS.get(method, {}) for method in methods},
            "one_picture": "of a new seed",
            "weights": weight_digests({*names.values(), *self.arms} - set(ARMS)),
            "t2x": __version__,
        }


@dataclass
class _Bench:
    """What the arms share: one set of pictures, one set of texts."""

    setup: EqualCost
    evaluator: Evaluator
    writer: Writer
    prompts: list[UserPrompt]
    others: list[Writer] = field(default_factory=list)  # of arms with rewriters of their own

    @classmethod
    def load(cls, setup: EqualCost) -> _Bench:
        from t2x.registry import load_reward

        model = as_generator(setup.generator)
        weights = dict(setup.rewards) if isinstance(setup.rewards, Mapping) else {}
        rewards = [load_reward(reward) for reward in setup.rewards]
        evaluator = Evaluator(model, rewards, weights, count_flops=True)
        writer = Writer(_guarded(setup.rewriter, model), count_flops=True)
        return cls(setup, evaluator, writer, setup.prompts())

    def noise(self, index: int) -> list[int]:
        """Picture seeds of a prompt; the first is the one of ``evaluate_arms``."""
        budget = self.setup.budget
        return [picture_seed(self.setup.seed, index, number) for number in range(budget)]

    def draw_once(
        self, chunk: Sequence[UserPrompt], outcomes: Sequence[_Outcome], start: int
    ) -> None:
        """Draw the final texts once more, from a seed that no arm has used, at no arm's cost."""
        seed, unused = self.setup.seed, self.setup.budget
        orders = [
            Order(p.text, o.text, o.negative, picture_seed(seed, start + i, unused))
            for i, (p, o) in enumerate(zip(chunk, outcomes, strict=True))
        ]
        for outcome, shot in zip(outcomes, self.evaluator.draw(orders), strict=True):
            outcome.one = shot

    def another_writer(self, rewriter: str) -> Writer:
        """A rewriter beside the one of the searches."""
        guarded = _guarded(rewriter, self.evaluator.generator)
        self.others.append(Writer(guarded, count_flops=True))
        return self.others[-1]

    @cached_property
    def runners(self) -> dict[str, _Runner]:
        """The arms by name."""
        return {name: _runner(name, self) for name in self.setup.arms}

    def rows(self, start: int) -> list[Row]:
        """Run all arms on the chunk of prompts that begins at ``start``, and judge."""
        chunk = self.prompts[start : start + self.setup.chunk]
        found = {name: run(chunk, start) for name, run in self.runners.items()}
        for rows in found.values():
            self.draw_once(chunk, rows, start)
        judged = _judged(chunk, found)
        self.evaluator.clear()
        for writer in (self.writer, *self.others):
            writer.clear()
        return [
            {"index": start + i, "arms": {name: judged[name][i] for name in found}}
            for i in range(len(chunk))
        ]


def evaluate_at_equal_cost(
    setup: EqualCost,
    *,
    out: str | Path | None = None,
    workers: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score arms that draw the same number of pictures; plain data for JSON.

    ``arms`` maps each name to the scores of its final picture as ``evaluate_arms`` gives them, with
    ``one_picture`` (the same of a picture of its text from a seed that no arm has used) and
    ``cost`` (means per prompt, without that picture); ``differences`` compares final pictures,
    ``one_picture_differences`` those of the new seed.

    Args:
        setup: what is compared.
        out: JSONL with a row per prompt; a run that was stopped goes on where it was.
        workers: processes of one thread each, with models of their own; the rows are the same.
        progress: hears (what, prompts done, prompts in all).

    Raises T2XError for arms that ``evaluate_arms`` refuses, an unknown split, an ``out`` of other
    settings, and several workers for loaded objects.
    """
    setup.check()
    if out is None:
        rows = [row for part in _chunks(setup, 0, workers, progress) for row in part]
    else:
        from t2x.jobs.output import open_output

        path = Path(out)
        with open_output(path, setup.settings()) as output:
            for part in _chunks(setup, output.last + 1, workers, progress):
                output.write(part, [])
        rows = [json.loads(line) for line in lines_of(path.read_text("utf-8"))]
    return {**setup.settings(), **_table(setup, rows)}


def _guarded(rewriter: str | Rewriter, model: Generator) -> Guarded:
    from t2x.rewriters.loading import load_guard

    return load_guard(rewriter, generator=model)


# ---- running ------------------------------------------------------------------------------------


def _chunks(
    setup: EqualCost, begin: int, workers: int, progress: Progress | None
) -> Iterator[list[Row]]:
    """Rows chunk by chunk, in order, from the chunk that holds ``begin``: chunks are cut by the
    number of the prompt, so that a resumed run draws the same batches."""
    starts = range(begin // setup.chunk * setup.chunk, setup.n, setup.chunk)
    if progress is not None:
        progress("loading", begin, setup.n)
    if workers > 1 and starts:
        made = _in_processes(setup, starts, workers)
    else:
        bench = _Bench.load(setup) if starts else None
        made = (bench.rows(start) for start in starts if bench is not None)
    for start, rows in zip(starts, made, strict=True):
        yield rows
        if progress is not None:
            progress("prompts, all arms", start + len(rows), setup.n)


def _in_processes(setup: EqualCost, starts: Sequence[int], workers: int) -> Iterator[list[Row]]:
    if not isinstance(setup.rewards, Mapping) or not all(
        isinstance(part, str) for part in (setup.generator, setup.rewriter)
    ):
        raise T2XError(
            "several workers load models of their own; give generator, rewriter and rewards by name"
        )
    _Bench.load(setup)  # what can't be loaded is said here, and not by a worker that dies of it
    context = multiprocessing.get_context("spawn")  # torch can't be forked once it has computed
    with ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin_worker, initargs=(setup,)
    ) as pool:
        try:
            yield from pool.map(_work, starts)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_worker: list[_Bench] = []  # of this process, where it is a worker


def _begin_worker(setup: EqualCost) -> None:
    from t2x.devices import set_threads

    set_threads(1)
    _worker.append(_Bench.load(setup))


def _work(start: int) -> list[Row]:
    return _worker[0].rows(start)


_Runner: TypeAlias = "Callable[[Sequence[UserPrompt], int], list[_Outcome]]"


def _runner(name: str, bench: _Bench) -> _Runner:
    kind = method_of(name)
    if kind is None:
        return _one_text(name, bench)
    method = make_method(kind, **METHOD_OPTIONS.get(kind, {}))
    seed, numbers = bench.setup.seed, {"budget": bench.setup.budget, **NUMBERS}
    search = SearchRewriter.sharing(bench.evaluator, bench.writer, method, **numbers)

    def run(chunk: Sequence[UserPrompt], start: int) -> list[_Outcome]:
        noise = [bench.noise(start + i) for i in range(len(chunk))]
        texts = [p.text for p in chunk]
        return [_searched(h) for h in search.search(texts, seed=seed, picture_seeds=noise)]

    return run


def _searched(history: History) -> _Outcome:
    winner = history.winner
    status = "accepted" if winner.number else "unchanged"
    rewrite = winner.rewrite
    return _Outcome(rewrite.text, rewrite.negative, history.shot, history.cost, status)


def _best(shots: Sequence[Shot]) -> Shot | None:
    known = [s for s in shots if not math.isnan(s.score)]
    return max(known, key=lambda s: s.score) if known else None


def _one_text(name: str, bench: _Bench) -> _Runner:
    """An arm that spends its pictures on seeds of one text."""
    write = _text_writer(name, bench)

    def run(chunk: Sequence[UserPrompt], start: int) -> list[_Outcome]:
        noise = [bench.noise(start + i) for i in range(len(chunk))]
        tracks = [
            Track(p.text, protect(p.text).sources, tuple(row), bench.setup.budget, bench.setup.seed)
            for p, row in zip(chunk, noise, strict=True)
        ]
        rewrites = write(chunk, tracks, start)
        orders = [
            Order(p.text, r.text, r.negative, s)
            for p, r, row in zip(chunk, rewrites, noise, strict=True)
            for s in row
        ]
        shots = iter(bench.evaluator.draw(orders))
        return [
            _best_seed(rewrite, [next(shots) for _ in row], track.cost)
            for rewrite, row, track in zip(rewrites, noise, tracks, strict=True)
        ]

    return run


def _best_seed(rewrite: Rewrite, shots: Sequence[Shot], cost: Cost) -> _Outcome:
    for shot in shots:
        cost.charge(shot)
    return _Outcome(rewrite.text, rewrite.negative, _best(shots), cost, rewrite.status)


_TextWriter: TypeAlias = "Callable[[Sequence[UserPrompt], Sequence[Track], int], list[Rewrite]]"


def _text_writer(name: str, bench: _Bench) -> _TextWriter:
    """As in ``evaluate_arms``: the rules bare, every model inside the guard."""
    if name == "rules":
        rules = load_rewriter(name)
        return lambda chunk, tracks, start: [
            row[0] for row in rules.rewrite([p.text for p in chunk], seed=bench.setup.seed)
        ]
    if name in ("raw", "dense"):
        return lambda chunk, tracks, start: [
            Rewrite(p.text, _reference(name, p, bench.setup.seed, start + i), status="unchanged")
            for i, p in enumerate(chunk)
        ]
    writer = bench.writer if name == "rewrite" else bench.another_writer(name)

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
    """What the judge says of final and single pictures. A picture that is missing is no success:
    an arm without one has drawn nothing that could be right."""
    from t2x.search.evaluator import media_of

    wanted = {
        id(shot): (prompt, shot)
        for rows in found.values()
        for prompt, row in zip(chunk, rows, strict=True)
        for shot in (row.final, row.one)
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
                "one": right.get(id(row.one), 0.0),
                "status": row.status,
                "cost": asdict(row.cost),
            }
            for row in rows
        ]
        for name, rows in found.items()
    }


# ---- tables -------------------------------------------------------------------------------------


def _table(setup: EqualCost, rows: Sequence[Row]) -> dict[str, Any]:
    prompts, seed = setup.prompts(), setup.seed
    own = {name: [row["arms"][name] for row in rows] for name in setup.arms}
    final = {name: _scores(part, "final") for name, part in own.items()}
    one = {name: _scores(part, "one") for name, part in own.items()}
    arms = {name: arm_summary(prompts, scores, seed) for name, scores in final.items()}
    single = {name: arm_summary(prompts, scores, seed) for name, scores in one.items()}
    add_gap_closed(arms, prompts, final, seed)
    add_gap_closed(single, prompts, one, seed)
    for name, arm in arms.items():
        arm["one_picture"] = single[name]
        arm["cost"] = _mean_cost([row["cost"] for row in own[name]])
    return {
        "arms": arms,
        "differences": arm_differences(prompts, final, seed),
        "one_picture_differences": arm_differences(prompts, one, seed),
    }


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
