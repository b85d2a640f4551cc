"""Means of rewards and paired differences, by the benchmark's own categories."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from t2x.benchmarks.drawing import ArmPlan
from t2x.benchmarks.layout import Benchmark, Item
from t2x.evaluation.intervals import bootstrap_mean, paired_difference

__all__ = ["score_lines", "summarised"]


def summarised(
    plans: Sequence[ArmPlan], scores: Mapping[str, Mapping[str, Sequence[float]]]
) -> dict[str, Any]:
    """Means of each arm and reward, and of both arms their differences, from the scores of all
    pictures by arm and reward. A prompt counts once, with the mean of its pictures.
    """
    values = {
        plan.name: {name: _by_prompt(plan, own) for name, own in scores[plan.name].items()}
        for plan in plans
    }
    items = plans[0].items
    result: dict[str, Any] = {
        "arms": {
            arm: {name: _means(items, own) for name, own in rewards.items()}
            for arm, rewards in values.items()
        },
        "differences": {},
    }
    if len(plans) == 2:
        raw, other = (values[plan.name] for plan in plans)
        result["differences"] = {name: _differences(items, other[name], raw[name]) for name in raw}
    return result


def score_lines(
    benchmark: Benchmark,
    plans: Sequence[ArmPlan],
    scores: Mapping[str, Mapping[str, Sequence[float]]],
) -> Iterator[dict[str, Any]]:
    """What there is to say of each picture: file, the user's prompt, what was drawn, scores."""
    for plan in plans:
        at = 0
        for item in plan.items:
            drawings = plan.drawings[item.key]
            for drawing, file in zip(drawings, benchmark.files(item, len(drawings)), strict=True):
                own = {name: values[at] for name, values in scores[plan.name].items()}
                yield {
                    "arm": plan.name,
                    "picture": f"{plan.name}/{file}",
                    "key": item.key,
                    "prompt": item.prompt,
                    "categories": item.categories,
                    "text": drawing.text,
                    "negative": drawing.negative,
                    "seed": drawing.seed,
                    "scores": own,
                }
                at += 1


def _by_prompt(plan: ArmPlan, scores: Sequence[float]) -> list[float]:
    """Mean over the pictures of each prompt that could be measured; NaN where none could."""
    values, result = iter(scores), []
    for item in plan.items:
        own = [next(values) for _ in plan.drawings[item.key]]
        good = [value for value in own if not math.isnan(value)]
        result.append(sum(good) / len(good) if good else math.nan)
    return result


def _categories(items: Sequence[Item]) -> list[str]:
    """Names of all categories, in the order in which they come."""
    return list(dict.fromkeys(name for item in items for name in item.categories))


def _means(items: Sequence[Item], values: Sequence[float]) -> dict[str, Any]:
    """Mean over prompts with its 95 % interval: of all, and of each category."""
    return _by_category(items, lambda at: asdict(bootstrap_mean([values[i] for i in at])))


def _differences(items: Sequence[Item], a: Sequence[float], b: Sequence[float]) -> dict[str, Any]:
    """Paired difference ``a - b`` over prompts with its 95 % interval, likewise."""
    return _by_category(
        items, lambda at: asdict(paired_difference([a[i] for i in at], [b[i] for i in at]))
    )


def _by_category(items: Sequence[Item], measure: Any) -> dict[str, Any]:
    members: Mapping[str, list[int]] = {
        name: [i for i, item in enumerate(items) if name in item.categories]
        for name in _categories(items)
    }
    return {
        "overall": measure(list(range(len(items)))),
        "categories": {name: measure(at) for name, at in members.items()},
    }
