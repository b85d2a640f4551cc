"""Our rewards on one arm's pictures, against the user's own prompts: a line of JSON per picture and
reward, which a run that was stopped goes on with. They are not the benchmark's score.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.benchmarks.drawing import ArmPlan, Gallery
from t2x.evaluation.scores import BATCH as MOST
from t2x.evaluation.scores import VALUES, Item, Row, ensemble_of, score_batch
from t2x.generators.identity import SCORING_LIBRARIES, versions
from t2x.jobs.output import open_output, side_files
from t2x.store import make_key

if TYPE_CHECKING:
    from t2x.types import Modality, RewardModel

__all__ = ["score_arm"]


def score_arm(
    plan: ArmPlan,
    gallery: Gallery,
    rewards: Mapping[str, RewardModel],
    folder: Path,
    *,
    modality: Modality,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[float]]:
    """Score every picture of an arm by every reward, in the order of ``plan.flat``; NaN for what
    could not be measured.

    Scores of a reward are in ``folder/ARM-REWARD.jsonl``; if it was made by another reward, or of
    other pictures, it is made anew. Rewards of pictures score videos by the mean over frames.
    """
    prompts = [item.prompt for item in plan.items for _ in plan.drawings[item.key]]
    drawings = plan.flat
    texts = [[d.text, d.negative, d.seed] for d in drawings]
    what = make_key("scores", prompts=prompts, drawings=texts, by=dict(gallery.fingerprint))
    with ExitStack() as stack:
        outputs = {
            name: stack.enter_context(_output(folder, plan.name, name, reward, what))
            for name, reward in rewards.items()
        }
        first = min((output.last for output in outputs.values()), default=len(drawings)) + 1
        size = _batch_size(gallery, drawings) if first < len(drawings) else MOST
        for start in range(first // size * size, len(drawings), size):
            part = range(start, min(start + size, len(drawings)))
            due = {n: r for n, r in rewards.items() if outputs[n].last < part[-1]}
            media = [gallery.get(drawings[i]).unsqueeze(0) for i in part]
            rows = [Row(Item("", prompts[i])) for i in part]
            _score(due, modality, rows, media)
            for name in due:
                outputs[name].write(_records(name, part, rows), [])
            if progress is not None:
                progress(part[-1] + 1, len(drawings))
    return {name: _read(_path(folder, plan.name, name)) for name in rewards}


def _batch_size(gallery: Gallery, drawings: Sequence[Any]) -> int:
    """So many that their pixels stay in bounds, if all are as large as the first."""
    return max(1, min(MOST, VALUES // gallery.get(drawings[0]).numel()))


def _score(
    rewards: Mapping[str, RewardModel], modality: Modality, rows: Sequence[Row], media: list[Any]
) -> None:
    """All rewards at once, since they share encoders; each alone where one of them fails."""
    names, ensemble = ensemble_of(dict(rewards), modality)
    if ensemble is None:
        return
    score_batch(ensemble, names, rows, media)
    if len(rewards) == 1 or not any(row.error for row in rows):
        return
    for row in rows:
        row.error = ""
    for name, reward in rewards.items():
        alone = [Row(row.item) for row in rows]
        _score({name: reward}, modality, alone, media)
        for row, one in zip(rows, alone, strict=True):
            row.scores.update(one.scores)
            row.error = row.error or one.error


def _records(name: str, part: range, rows: Sequence[Row]) -> list[dict[str, Any]]:
    records = []
    for index, row in zip(part, rows, strict=True):
        score = row.scores.get(name, math.nan)
        why = {"error": row.error or "not measured"} if math.isnan(score) else {}
        records.append({"index": index, "score": score, **why})
    return records


def _path(folder: Path, arm: str, reward: str) -> Path:
    return folder / f"{arm}-{re.sub(r'[^A-Za-z0-9_.-]', '_', reward)}.jsonl"


def _output(folder: Path, arm: str, name: str, reward: RewardModel, what: str) -> Any:
    from t2x.generators.guided import reward_identity

    path = _path(folder, arm, name)
    settings = {"input": what, **reward_identity(reward), "versions": versions(SCORING_LIBRARIES)}
    try:
        before = json.loads(side_files(path)[1].read_text("utf-8"))
    except (OSError, ValueError):
        before = None
    return open_output(path, settings, overwrite=before is not None and before != settings)


def _read(path: Path) -> list[float]:
    rows = map(json.loads, path.read_text("utf-8").rstrip("\n").split("\n"))
    return [math.nan if row["score"] is None else float(row["score"]) for row in rows]
