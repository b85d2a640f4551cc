"""Arms of the emoji world, compared on the same held-out prompts and seeds by the judge.

An arm turns user prompts into texts for the generator: ``raw`` leaves them, ``rules`` parses them,
``dense`` writes the true scene in the best single style, ``rewrite`` asks the embedded rewriter;
any other name is loaded as a rewriter. The overall score is the mean of the six task scores, as in
GenEval (Ghosh et al. 2023, arXiv 2310.11513).
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from t2x.errors import T2XError, UnknownNameError
from t2x.evaluation.intervals import bootstrap_mean, paired_difference, stratified_mean
from t2x.generators.negatives import usable_negatives
from t2x.world.captions import STYLES, caption, dense_prompt
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
    from t2x.types import Generator, Rewriter

__all__ = [
    "ArmScores",
    "add_gap_closed",
    "arm_differences",
    "arm_summary",
    "as_generator",
    "check_arms",
    "evaluate_arms",
    "picture_seed",
    "run_arms",
    "style_scores",
]

log = logging.getLogger(__name__)

Array: TypeAlias = "NDArray[np.floating[Any]]"
Progress: TypeAlias = "Callable[[str, int, int], None]"  # stage, done, total
# What an arm writes for each prompt: a text, or one with its negative prompt.
Writer: TypeAlias = "Callable[[Sequence[UserPrompt]], Sequence[str | tuple[str, str]]]"


@dataclass
class ArmScores:
    """What one arm did: N texts, whether each picture was right (1 or 0), seconds, statuses."""

    texts: list[str]
    correct: Array
    seconds_per_picture: float
    seconds_per_rewrite: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)


def picture_seed(seed: int, index: int, number: int = 0) -> int:
    """The noise of picture ``number`` of sample ``index``, the same in every arm: 63 bits."""
    name = f"picture {seed} {index}" + (f" {number}" if number else "")
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


# ---- texts --------------------------------------------------------------------------------------


def _load_arm(name: str, generator: Generator, seed: int) -> tuple[Writer, Counter[str]]:
    """The writer of an arm, and the statuses that it will count."""
    statuses: Counter[str] = Counter()
    if name == "raw":
        return (lambda prompts: [p.text for p in prompts]), statuses
    if name == "dense":
        return (
            lambda prompts: [
                dense_prompt(p.scene, picture_seed(seed, i)) for i, p in enumerate(prompts)
            ]
        ), statuses
    rewriter = _load_rewriter(name, generator)

    def write(prompts: Sequence[UserPrompt]) -> list[tuple[str, str]]:
        rewrites = [row[0] for row in rewriter.rewrite([p.text for p in prompts], seed=seed)]
        statuses.update(r.status for r in rewrites)
        return [(r.text, r.negative) for r in rewrites]

    return write, statuses


def _load_rewriter(name: str, generator: Generator) -> Rewriter:
    """The rules bare, as one would write them; every model inside the wrapper that checks it."""
    from t2x.registry import load_rewriter
    from t2x.rewriters.loading import load_guarded

    if name == "rules":
        return load_rewriter(name)
    return load_guarded("emoji-rewriter" if name == "rewrite" else name, generator=generator)


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
    for name, write in writers.items():
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
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score arms on ``n`` held-out prompts; plain data for JSON.

    ``arms`` maps each name to overall, ci95, tasks, seconds_per_picture (drawing only),
    seconds_per_rewrite, pools (scores over plain, seen and held_out kinds), kinds (score, n and
    held_out of each), statuses (how many rewrites ended how) and, where raw and dense run too,
    gap_closed; ``differences`` compares every two arms on the same prompts, over all of them and
    over held_out_kinds.
    Raises T2XError for no arm, an unknown one, a name given twice or too few prompts.
    """
    check_arms(arms, n)
    model = as_generator(generator)
    prompts = held_out_prompts(n, seed)
    loaded = {name: _load_arm(name, model, seed) for name in arms}
    scores = run_arms(
        {name: writer for name, (writer, _) in loaded.items()},
        prompts,
        model,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    for name, (_, statuses) in loaded.items():
        scores[name].statuses = statuses
    table: dict[str, Any] = {
        "generator": model.model_id,
        "n": n,
        "seed": seed,
        "arms": {name: arm_summary(prompts, arm, seed) for name, arm in scores.items()},
        "differences": arm_differences(prompts, scores, seed),
    }
    add_gap_closed(table["arms"])
    return table


def check_arms(arms: Sequence[str], n: int) -> None:
    """Raise T2XError for arms that can't be run with one picture each, or too few prompts."""
    from t2x.search.loading import method_of

    if searching := [arm for arm in arms if method_of(arm)]:
        raise T2XError(
            f"{searching[0]} draws several pictures of each prompt; give every arm the same number "
            "with --budget (t2x.world.search_arms)"
        )
    if not arms or len(set(arms)) != len(arms):
        raise T2XError(
            f"the arms are {', '.join(arms) or 'none'}; give one or more, each once, out of "
            "raw, rules, dense, rewrite and the names of rewriters"
        )
    from t2x.registry import known_names

    # Before the generator is loaded: a folder or hub id may be anything, a bare name is known.
    names = ("raw", "dense", "rewrite", *known_names("rewriters"))
    for arm in arms:
        if arm not in names and not set(arm) & set("/:\\") and not Path(arm).is_dir():
            raise UnknownNameError(
                f"unknown arm {arm!r}; allowed: {', '.join(names)}, or a rewriter's folder, hub id "
                "owner/model or 'package.module:Attr'"
            )
    if n < len(TASKS):
        raise T2XError(
            f"{n} prompts do not reach all {len(TASKS)} tasks; give at least {len(TASKS)}"
        )


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


def add_gap_closed(arms: dict[str, Any]) -> None:
    """The share of the distance from ``raw`` to ``dense`` that an arm closes."""
    if not {"raw", "dense"} <= set(arms):
        return
    raw, dense = arms["raw"]["overall"], arms["dense"]["overall"]
    for arm in arms.values():
        gap = dense - raw
        arm["gap_closed"] = (arm["overall"] - raw) / gap if gap > 0 else float("nan")


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
