"""Several rewrites of each prompt: how different they are, and how many of their pictures are
right.

Diversity is log det(L + I) over the embeddings of what is drawn, as in DPP-GRPO (arXiv 2511.20647),
so that a rewrite that the guard gave back counts as the user's own words; fidelity is the judge's
score over all the pictures. Diversity alone is easy: fidelity has to stand beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from t2x.errors import T2XError
from t2x.evaluation.intervals import bootstrap_mean
from t2x.functional.diversity import log_det
from t2x.rewriters.similarity import load_embedder
from t2x.world.arms import check_arms, load_arm, named_arms
from t2x.world.drift import EMBEDDER
from t2x.world.evaluate import Progress, arm_summary, as_generator, run_arms
from t2x.world.prompts import held_out_prompts

if TYPE_CHECKING:
    from t2x.types import Generator

__all__ = ["evaluate_sets"]


def evaluate_sets(
    arms: Sequence[str],
    n: int = 1000,
    seed: int = 7,
    *,
    group: int = 4,
    generator: str | Generator = "emoji-flow",
    embedder: str = EMBEDDER,
    batch_size: int = 32,
    rows: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score sets of ``group`` rewrites for each of ``n`` held-out prompts; plain data for JSON.

    ``arms`` maps each name to overall, ci95, tasks, kinds and pools over all pictures, diversity in
    [log(1 + group), group log 2] with diversity_ci95, and distinct, the mean number of different
    texts. ``rows`` adds what every prompt gave. Members of a set are drawn from seeds of their own,
    which are the same in every arm. Raises T2XError as ``evaluate_arms`` does, and for a group
    below 2.
    """
    sources = named_arms(arms)
    check_arms(sources, n)
    if group < 2:
        raise T2XError(f"a set of {group} rewrites has no diversity; give at least 2")
    model, embed = as_generator(generator), load_embedder(embedder)
    prompts = held_out_prompts(n, seed)
    members = [p for p in prompts for _ in range(group)]
    texts: dict[str, list[list[tuple[str, str]]]] = {}
    statuses: dict[str, Counter[str]] = {}
    for name, source in sources.items():
        arm = load_arm(source, model, seed)
        texts[name] = arm.texts(prompts, group)
        statuses[name] = Counter(r.status for r in arm.rewrites)
    writers = {
        name: lambda _, own=own: [text for row in own for text in row]
        for name, own in texts.items()
    }
    drawing: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "progress": progress}
    scores = run_arms(writers, members, model, **drawing)
    table: dict[str, Any] = {"generator": model.model_id, "n": n, "seed": seed, "group": group}
    table |= {"embedder": embedder, "arms": {}}
    found = {}
    for name, own in texts.items():
        scores[name].statuses = statuses[name]
        diversity = _diversity([[text for text, _ in row] for row in own], embed)
        interval = bootstrap_mean(diversity, seed=seed)
        table["arms"][name] = {
            **arm_summary(members, scores[name], seed),
            "diversity": interval.mean,
            "diversity_ci95": [interval.low, interval.high],
            "distinct": float(np.mean([len({text for text, _ in row}) for row in own])),
        }
        right = scores[name].correct.reshape(n, group).mean(axis=1)
        found[name] = {"correct": right.tolist(), "diversity": np.round(diversity, 4).tolist()}
    if rows:
        table["rows"] = {"tasks": [p.task for p in prompts], "arms": found}
    return table


def _diversity(sets: Sequence[Sequence[str]], embed: Any) -> Any:
    """log det(L + I) of each of B sets of G texts: (B,)."""
    import torch

    flat = embed([text for row in sets for text in row]).double()
    return log_det(torch.as_tensor(flat).reshape(len(sets), len(sets[0]), -1)).cpu().numpy()
