"""Arms of the emoji world, compared on the same held-out prompts and seeds by the judge.

An arm turns user prompts into texts for the generator (``t2x.world.arms``). The overall score is
the mean of the six task scores, as in GenEval (Ghosh et al. 2023, arXiv 2310.11513). Beside it
stand drift (``t2x.world.drift``) and cost.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from t2x.evaluation.intervals import (
    bootstrap_mean,
    paired_difference,
    share_of_gap,
    stratified_mean,
)
from t2x.generators.negatives import usable_negatives
from t2x.generators.tokenizers import token_budget
from t2x.types import Rewrite
from t2x.world.arms import LoadedArm, Writer, check_arms, load_arm, named_arms, picture_seed
from t2x.world.captions import STYLES, caption
from t2x.world.drift import Drift, Similarity, measure_drift, text_similarity
from t2x.world.judge import judge_pictures
from t2x.world.prompts import (
    HELD_OUT_KINDS,
    PLAIN_KINDS,
    UserPrompt,
    held_out_prompts,
    validation_prompts,
)
from t2x.world.scene import TASKS

if TYPE_CHECKING:
    from t2x.prompts.budget import TokenBudget
    from t2x.types import Generator

__all__ = [
    "ArmScores",
    "add_gap_closed",
    "arm_differences",
    "arm_summary",
    "as_generator",
    "evaluate_arms",
    "picture_seed",
    "run_arms",
    "style_scores",
]

log = logging.getLogger(__name__)

Array: TypeAlias = "NDArray[np.floating[Any]]"
Progress: TypeAlias = "Callable[[str, int, int], None]"  # stage, done, total


@dataclass
class ArmScores:
    """What one arm did: N texts, whether each picture was right (1 or 0), seconds, statuses."""

    texts: list[str]
    correct: Array
    seconds_per_picture: float
    seconds_per_rewrite: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)


# ---- pictures -----------------------------------------------------------------------------------


def run_arms(
    writers: Mapping[str, Writer],
    prompts: Sequence[UserPrompt],
    generator: Generator,
    *,
    seed: int,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> dict[str, ArmScores]:
    """Write all texts, then draw and judge one picture per prompt and arm.

    Arms with the same text for a prompt share its picture, since the noise is the same too.
    """
    texts: dict[str, list[tuple[str, str]]] = {}
    rewriting: dict[str, float] = {}
    for number, (name, write) in enumerate(writers.items()):
        if progress is not None:
            progress(f"writing the texts of {name}", number, len(writers))
        start = time.perf_counter()
        texts[name] = [w if isinstance(w, tuple) else (w, "") for w in write(prompts)]
        rewriting[name] = (time.perf_counter() - start) / max(len(prompts), 1)
    wanted = dict.fromkeys((i, *text) for rows in texts.values() for i, text in enumerate(rows))
    judged, seconds = _judged(list(wanted), prompts, generator, seed, batch_size, progress)
    scores = {}
    for name, rows in texts.items():
        keys = [(i, *row) for i, row in enumerate(rows)]
        correct = np.array([judged[key] for key in keys])
        mean_seconds = float(np.mean([seconds[key] for key in keys])) if keys else float("nan")
        scores[name] = ArmScores([text for text, _ in rows], correct, mean_seconds, rewriting[name])
    return scores


Key: TypeAlias = "tuple[int, str, str]"


def _judged(
    keys: Sequence[Key],
    prompts: Sequence[UserPrompt],
    generator: Generator,
    seed: int,
    batch_size: int,
    progress: Progress | None,
) -> tuple[dict[Key, float], dict[Key, float]]:
    """For each (prompt index, text, negative): whether its picture is right, and the seconds."""
    correct: dict[Key, float] = {}
    seconds: dict[Key, float] = {}
    for begin in range(0, len(keys), batch_size):
        batch = keys[begin : begin + batch_size]
        start = time.perf_counter()
        media = generator.generate(
            [text for _, text, _ in batch],
            negative=usable_negatives(generator, [negative for *_, negative in batch]),
            seeds=[picture_seed(seed, i) for i, *_ in batch],
        )
        spent = (time.perf_counter() - start) / len(batch)
        verdicts = judge_pictures([prompts[i].scene for i, *_ in batch], media)
        for key, verdict in zip(batch, verdicts, strict=True):
            correct[key] = float(verdict.correct)
            seconds[key] = spent
        if progress is not None:
            progress("pictures", len(correct), len(keys))
    return correct, seconds


# ---- tables -------------------------------------------------------------------------------------


def evaluate_arms(
    arms: Sequence[str],
    n: int = 1000,
    seed: int = 7,
    *,
    generator: str | Generator = "emoji-flow",
    batch_size: int = 32,
    similarity: Similarity | None = None,
    rows: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score arms on ``n`` held-out prompts; plain data for JSON.

    ``arms`` maps each name to overall, ci95, tasks, seconds_per_picture (drawing only),
    seconds_per_rewrite, pools (scores over plain, seen and held_out kinds), kinds (score, n and
    held_out of each), statuses (how many rewrites ended how), drift (``Drift.summary``), cost
    (seconds of a prompt in all, tokens that were written for it and that the generator read) and,
    where raw and dense run too, gap_closed with gap_closed_ci95; ``differences`` compares every two
    arms on the same prompts, over all of them and over held_out_kinds.

    Args:
        arms: names, or NAME=SOURCE (``t2x.world.arms``).
        n: prompts.
        seed: of prompts, texts and pictures.
        generator: what draws.
        batch_size: pictures drawn together.
        similarity: how near texts are; None is ``t2x.world.drift.text_similarity``.
        rows: add ``rows``: for each arm what every prompt gave, with the tasks of the prompts.
        progress: hears (what, done, in all), of arms that write and of pictures.

    Raises T2XError for no arm, an unknown one, a name given twice or too few prompts.
    """
    sources = named_arms(arms)
    check_arms(sources, n)
    model = as_generator(generator)
    prompts = held_out_prompts(n, seed)
    loaded = {name: load_arm(source, model, seed) for name, source in sources.items()}
    writers = {name: arm.write for name, arm in loaded.items()}
    drawing: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "progress": progress}
    scores = run_arms(writers, prompts, model, **drawing)
    table: dict[str, Any] = {"generator": model.model_id, "n": n, "seed": seed, "arms": {}}
    near = similarity or text_similarity()
    budget = token_budget(model)
    drifts = {name: _drift(prompts, scores[name], arm, near) for name, arm in loaded.items()}
    for name, arm in loaded.items():
        scores[name].statuses = Counter(r.status for r in arm.rewrites)
        table["arms"][name] = {
            **arm_summary(prompts, scores[name], seed),
            "drift": drifts[name].summary(),
            "cost": _cost(scores[name], arm, budget),
        }
    table["differences"] = arm_differences(prompts, scores, seed)
    add_gap_closed(table["arms"], prompts, scores, seed)
    if rows:
        table["rows"] = {
            "tasks": [p.task for p in prompts],
            "arms": {name: _rows(scores[name], drift) for name, drift in drifts.items()},
        }
    return table


def _drift(
    prompts: Sequence[UserPrompt], scores: ArmScores, arm: LoadedArm, similarity: Similarity
) -> Drift:
    """Drift of what an arm proposed; of one that asks no rewriter, of its texts."""
    proposals = arm.proposals or [
        Rewrite(p.text, text) for p, text in zip(prompts, scores.texts, strict=True)
    ]
    return measure_drift(prompts, proposals, similarity)


def _cost(scores: ArmScores, arm: LoadedArm, budget: TokenBudget | None) -> dict[str, float]:
    """Means per prompt; NaN for what can't be counted."""
    read = float("nan")
    if budget is not None:
        read = float(np.mean([max(c.used for c in budget.count(text)) for text in scores.texts]))
    return {
        "seconds": scores.seconds_per_rewrite + scores.seconds_per_picture,
        "tokens_written": arm.tokens_written,
        "tokens_read": read,
    }


def _rows(scores: ArmScores, drift: Drift) -> dict[str, list[Any]]:
    """What every prompt gave."""
    return {
        "correct": scores.correct.astype(int).tolist(),
        "similarity": np.round(drift.similarity, 4).tolist(),
        "violated": drift.violated.tolist(),
        "exact": drift.exact.tolist(),
        "words": drift.words.tolist(),
    }


def as_generator(generator: str | Generator) -> Generator:
    """Load what is given by name."""
    from t2x.registry import load_generator

    return load_generator(generator) if isinstance(generator, str) else generator


def _pool(kind: str) -> str:
    if kind in HELD_OUT_KINDS:
        return "held_out"
    return "plain" if kind in PLAIN_KINDS else "seen"


def arm_summary(prompts: Sequence[UserPrompt], arm: ArmScores, seed: int) -> dict[str, Any]:
    """One arm's row of the table."""
    tasks = [p.scene.task for p in prompts]
    interval = bootstrap_mean(arm.correct, strata=tasks, seed=seed)
    kinds = sorted({p.kind for p in prompts})
    return {
        "overall": interval.mean,
        "ci95": [interval.low, interval.high],
        "tasks": {task: _mean(arm.correct, [t == task for t in tasks]) for task in TASKS},
        "seconds_per_picture": arm.seconds_per_picture,
        "seconds_per_rewrite": arm.seconds_per_rewrite,
        "pools": {
            pool: _mean(arm.correct, [_pool(p.kind) == pool for p in prompts])
            for pool in ("plain", "seen", "held_out")
        },
        "kinds": {
            kind: {
                "score": _mean(arm.correct, [p.kind == kind for p in prompts]),
                "n": sum(p.kind == kind for p in prompts),
                "held_out": kind in HELD_OUT_KINDS,
            }
            for kind in kinds
        },
        "statuses": dict(arm.statuses),
    }


def _mean(values: Array, mask: Sequence[bool]) -> float:
    return stratified_mean(values[np.array(mask, bool)])


def arm_differences(
    prompts: Sequence[UserPrompt], scores: Mapping[str, ArmScores], seed: int
) -> dict[str, Any]:
    """Paired differences of every two arms, the later minus the earlier one."""
    tasks = [p.scene.task for p in prompts]
    held_out = np.array([p.kind in HELD_OUT_KINDS for p in prompts])
    rows = {}
    for (first, a), (second, b) in combinations(scores.items(), 2):
        whole = paired_difference(b.correct, a.correct, strata=tasks, seed=seed)
        part = paired_difference(b.correct[held_out], a.correct[held_out], seed=seed)
        rows[f"{second} - {first}"] = {**asdict(whole), "held_out_kinds": asdict(part)}
    return rows


def add_gap_closed(
    arms: dict[str, Any], prompts: Sequence[UserPrompt], scores: Mapping[str, ArmScores], seed: int
) -> None:
    """The share of the distance from ``raw`` to ``dense`` that each arm closes, with its interval
    over prompts."""
    if not {"raw", "dense"} <= set(arms):
        return
    tasks = [p.scene.task for p in prompts]
    raw, dense = scores["raw"].correct, scores["dense"].correct
    for name, arm in arms.items():
        share = share_of_gap(scores[name].correct, raw, dense, strata=tasks, seed=seed)
        arm["gap_closed"], arm["gap_closed_ci95"] = share.mean, [share.low, share.high]


def style_scores(
    n: int = 300,
    seed: int = 0,
    *,
    styles: Sequence[str] = tuple(STYLES),
    generator: str | Generator = "emoji-flow",
    batch_size: int = 32,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score the true content in each caption style on ``n`` *validation* prompts, best first.

    This is what chooses the style of the ``dense`` arm; each style has overall, ci95 and tasks.
    """
    model = as_generator(generator)
    prompts = validation_prompts(n, seed)

    def writer(style: str) -> Writer:
        return lambda rows: [
            caption(p.scene, style, picture_seed(seed, i)) for i, p in enumerate(rows)
        ]

    scores = run_arms(
        {style: writer(style) for style in styles},
        prompts,
        model,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    rows = {style: arm_summary(prompts, arm, seed) for style, arm in scores.items()}
    kept = ("overall", "ci95", "tasks")
    ranked = sorted(rows, key=lambda style: -rows[style]["overall"])
    return {style: {key: rows[style][key] for key in kept} for style in ranked}
