"""From the runs of a claim to whether it holds.

An effect is the difference of two arms in the direction that speaks for the claim, over prompts and
training seeds (``t2x.evaluation.training_seeds``). A claim of several comparisons holds if all do
(intersection-union test: at 95 % each, the whole errs no more often); its effect is that of the
weakest. Conditions must be shown as well, not merely unrefuted. Without all the runs, the prompts
or the equal cost that the protocol asks for, nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from t2x.claims.curves import target_score, when_reached
from t2x.claims.protocol import METRICS, Claim, Comparison
from t2x.claims.records import Records, Run
from t2x.evaluation.intervals import Difference, stratified_mean
from t2x.evaluation.training_seeds import seeded_difference, value_difference

__all__ = ["Verdict", "arm_values", "compare", "judge_claim"]

Holds: TypeAlias = Literal["true", "false", "undecided"]
_COLUMNS = {
    "score": "correct",
    "similarity": "similarity",
    "violations": "violated",
    "words": "words",
    "diversity": "diversity",
}
_NOTHING = Difference(math.nan, math.nan, math.nan, "undecided", math.nan, 0)


@dataclass(frozen=True)
class Verdict:
    """What the runs say: ``results`` are the comparisons, then the conditions; ``reasons`` say why
    nothing could be decided."""

    claim: Claim
    holds: Holds
    weakest: Difference
    results: tuple[tuple[Comparison, Difference], ...]
    reasons: tuple[str, ...]
    records: Records | None

    def summary(self) -> dict[str, Any]:
        """For JSON: ``holds`` is true, false or "undecided"; ``effect`` is above 0 where it speaks
        for the claim."""
        weakest = self.weakest
        effect, low, high = (_digits(v) for v in (weakest.mean, weakest.low, weakest.high))
        runs = self.records.runs if self.records else []
        return {
            "claim": self.claim.claim,
            "effect": effect,
            "ci95": [low, high],
            "holds": _truth(self.holds),
            "minimum_detectable": _digits(weakest.detectable),
            "name": self.claim.name,
            "paper": self.claim.paper,
            "screening": self.claim.screening,
            "metric": METRICS[self.claim.comparisons[0].metric],
            "seeds": sorted({run.seed for run in runs}),
            "n": weakest.n,
            "comparisons": [_row(*pair) for pair in self.results[: len(self.claim.comparisons)]],
            "conditions": [_row(*pair) for pair in self.results[len(self.claim.comparisons) :]],
            "reasons": list(self.reasons),
            "cost": self._costs(),
            "missing": self.records.missing if self.records else [],
            "failures": len(self.records.failures) if self.records else 0,
        }

    def _costs(self) -> dict[str, Any]:
        if self.records is None:
            return {}
        runs = {arm: list(self.records.of(arm).values()) for arm in self.claim.arms}
        return {arm: _cost(self.claim, own) for arm, own in runs.items()}


def judge_claim(claim: Claim, records: Records | None) -> Verdict:
    """Compute the verdict; undecided, with the reason, where nothing was run."""
    if records is None:
        return Verdict(claim, "undecided", _NOTHING, (), ("not run yet",), None)
    pairs = (*claim.comparisons, *claim.conditions)
    results = tuple((pair, compare(claim, records, pair)) for pair in pairs)
    reasons = _reasons(claim, records, results)
    answers = [found.holds for _, found in results]
    holds: Holds = "undecided"
    if not reasons:
        holds = "true" if set(answers) == {"true"} else "undecided"
        holds = "false" if "false" in answers else holds
    weakest = min(
        (found for _, found in results[: len(claim.comparisons)]),
        key=lambda d: d.low if not math.isnan(d.low) else -math.inf,
    )
    return Verdict(claim, holds, weakest, results, reasons, records)


def compare(claim: Claim, records: Records, pair: Comparison) -> Difference:
    """The effect of one comparison over the seeds that both arms have; of ``pictures``, as the
    share that is saved."""
    first, second = records.of(pair.first), records.of(pair.second)
    seeds = [seed for seed in claim.seeds if seed in first and seed in second]
    if not seeds:
        return _NOTHING
    a, b = [first[s] for s in seeds], [second[s] for s in seeds]
    if pair.metric == "pictures":
        return _saved(claim, a, b, pair.margin)
    column = _COLUMNS[pair.metric]
    sign = 1.0 if pair.better == "higher" else -1.0
    rows = [np.array([_column(run, column) for run in runs]) * sign for runs in (a, b)]
    strata = records.tasks if pair.metric == "score" else None
    return seeded_difference(*rows, strata=strata, margin=pair.margin)


def arm_values(claim: Claim, records: Records, pair: Comparison, arm: str) -> dict[int, float]:
    """What an arm came to in the metric of a comparison, by training seed; of ``pictures``, how
    many it drew on the way."""
    runs = records.of(arm)
    if pair.metric == "pictures":
        target = target_score([r.curve for r in records.of(pair.second).values()], claim.curve)
        return {seed: when_reached(run.curve, claim.curve, target) for seed, run in runs.items()}
    strata = records.tasks if pair.metric == "score" else None
    column = _COLUMNS[pair.metric]
    return {seed: stratified_mean(_column(run, column), strata) for seed, run in runs.items()}


def _column(run: Run, name: str) -> list[float]:
    """What every prompt gave. An answer that can't be read keeps no constraint: without it, the
    fewer answers an arm gives, the better it would keep them."""
    empty = [math.nan] * len(next(iter(run.rows.values())))
    lost = 1.0 if name == "violated" and name in run.rows else math.nan
    return [lost if value is None else float(value) for value in run.rows.get(name, empty)]


def _saved(claim: Claim, a: Sequence[Run], b: Sequence[Run], margin: float) -> Difference:
    """From the logarithm of the ratio, in which saving half and drawing twice are the same way
    off, back to the share of pictures that ``a`` saves."""
    target = target_score([run.curve for run in b], claim.curve)
    logs = [[_log(when_reached(run.curve, claim.curve, target)) for run in runs] for runs in (a, b)]
    found = value_difference(logs[1], logs[0], margin=-math.log1p(-margin))
    parts = (found.mean, found.low, found.high, found.detectable)
    mean, low, high, detectable = (-math.expm1(-value) for value in parts)
    return replace(found, mean=mean, low=low, high=high, detectable=detectable)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else math.nan


def _reasons(
    claim: Claim, records: Records, results: Sequence[tuple[Comparison, Difference]]
) -> tuple[str, ...]:
    """Why nothing may be decided."""
    found = []
    if records.digest != claim.digest:
        found.append("the protocol was changed after the runs")
    if records.missing:
        gone = ", ".join(f"{m['arm']} seed {m['seed']}" for m in records.missing)
        found.append(f"runs are missing: {gone}")
    if len(records.tasks) < claim.evaluation.minimum:
        found.append(f"{len(records.tasks)} of {claim.evaluation.minimum} prompts")
    for pair, result in results:
        if pair.metric != "pictures":
            found += _too_few(claim, pair, result)
        elif result.missing:
            gone = f"{result.missing} trainings did not reach the score of {pair.second}"
            found.append(f"{gone}, or began there")
    return (*found, *_unequal(claim, records))


def _too_few(claim: Claim, pair: Comparison, result: Difference) -> list[str]:
    """Where prompts enough were asked, but too few of them measured: the rest may be the hard
    ones."""
    minimum = claim.evaluation.minimum
    if result.n >= minimum or result.n + result.missing < minimum:
        return []
    arms = f"{pair.first} and {pair.second}"
    return [f"{pair.metric} of {arms} is known of {result.n} prompts; {minimum} are needed"]


def _unequal(claim: Claim, records: Records) -> list[str]:
    """Where the arms of a comparison did not cost the same."""
    rule, found = claim.equal_cost, []
    if rule is None:
        return []
    for pair in claim.comparisons:
        costs = [_cost(claim, list(records.of(arm).values())) for arm in (pair.first, pair.second)]
        a, b = (cost["value"] for cost in costs)
        if a is None or b is None:
            found.append(f"{rule.key} of {pair.first} or {pair.second} was not measured")
        elif abs(a - b) > rule.tolerance * max(a, b):
            found.append(f"{rule.key} differ: {a:.3g} of {pair.first}, {b:.3g} of {pair.second}")
    return list(dict.fromkeys(found))


def _cost(claim: Claim, runs: Sequence[Run]) -> dict[str, Any]:
    """Mean cost of an arm's training over its seeds: seconds, and what must be equal."""
    if not runs:
        return {"seconds": None, "value": None}
    seconds = sum(step["seconds"] for run in runs for step in run.steps) / len(runs)
    found: dict[str, Any] = {"seconds": round(seconds, 1), "value": None}
    if claim.equal_cost is not None:
        key = claim.equal_cost.key
        found["key"] = key
        if key == "seconds":
            return found | {"value": found["seconds"]}
        sums = [[s["metrics"][key] for s in run.steps if key in s["metrics"]] for run in runs]
        if all(sums):
            found["value"] = sum(map(sum, sums)) / len(runs)
    return found


def _row(pair: Comparison, found: Difference) -> dict[str, Any]:
    return {
        "first": pair.first,
        "second": pair.second,
        "metric": pair.metric,
        "better": pair.better,
        "margin": pair.margin,
        "effect": _digits(found.mean),
        "ci95": [_digits(found.low), _digits(found.high)],
        "holds": _truth(found.holds),
        "minimum_detectable": _digits(found.detectable),
        "n": found.n,
        "missing": found.missing,
    }


def _truth(holds: str) -> bool | str:
    return {"true": True, "false": False}.get(holds, holds)


def _digits(value: float) -> float | None:
    """Five decimals, which no bootstrap knows better; None for what is not known."""
    return round(value, 5) if math.isfinite(value) else None
