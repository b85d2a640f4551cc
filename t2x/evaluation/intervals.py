"""Bootstrap intervals for scores of arms that ran on the same prompts and seeds.

Prompts are drawn again with replacement inside each stratum (task), the same ones for both arms of
a pair (paired bootstrap; Efron & Tibshirani 1993, chapters 8 and 13). A score that is missing is
NaN: it leaves the mean and is counted. A stratum of very few values says next to nothing about its
own spread (of one value, none): below ``MIN_STRATUM`` there are no bounds and nothing is decided.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "MIN_STRATUM",
    "Difference",
    "Interval",
    "bootstrap_mean",
    "paired_difference",
    "share_of_gap",
    "stratified_mean",
]

Array: TypeAlias = "NDArray[np.floating[Any]]"
SAMPLES = 4000
# Resamples of n values show (n - 1) / n of their variance: from 5 on the bounds are at most about a
# tenth too narrow.
MIN_STRATUM = 5
_CHUNK = 500  # resamples held in memory at a time
# Sum of the normal quantiles of 97.5 % (the interval) and 80 % (the usual power).
_POWER = 1.959964 + 0.841621


@dataclass(frozen=True)
class Interval:
    """A mean with its ``low`` and ``high`` 95 % bounds over ``n`` values; ``missing`` were NaN.

    The bounds are NaN if a stratum has too few values for them.
    """

    mean: float
    low: float
    high: float
    n: int
    missing: int = 0


@dataclass(frozen=True)
class Difference:
    """Mean paired difference ``a - b`` with 95 % bounds, over ``n`` pairs.

    ``holds``: does ``a`` exceed ``b`` by more than the margin: true if the whole interval lies
    above it, false if it lies below, else undecided. ``detectable``: the smallest effect that
    would have been seen four times in five. With too few values in a stratum the bounds and
    ``detectable`` are NaN, and ``holds`` is undecided.
    """

    mean: float
    low: float
    high: float
    holds: Literal["true", "false", "undecided"]
    detectable: float
    n: int
    missing: int = 0


def stratified_mean(values: ArrayLike, strata: Sequence[Hashable] | None = None) -> float:
    """Mean over strata of the means inside them; NaN values are left out, and so are empty strata.

    NaN if there is no value at all.
    """
    groups, _ = _groups(np.asarray(values, float), strata)
    return float(np.mean([group.mean() for group in groups])) if groups else float("nan")


def bootstrap_mean(
    values: ArrayLike,
    *,
    strata: Sequence[Hashable] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Interval:
    """95 % percentile interval of the stratified mean of (N,) values.

    Bounds are NaN with fewer than ``MIN_STRATUM`` values in a stratum. Raises ValueError if
    ``strata`` has another length.
    """
    array = np.asarray(values, float)
    groups, missing = _groups(array, strata)
    means = _resampled(groups, samples, seed)
    low, high = _bounds(means)
    return Interval(stratified_mean(array, strata), low, high, len(array) - missing, missing)


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    strata: Sequence[Hashable] | None = None,
    margin: float = 0.0,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Difference:
    """Difference ``a - b`` of two arms on the same N prompts; a pair with a NaN is left out.

    Raises ValueError if the arms or ``strata`` have different lengths.
    """
    first, second = np.asarray(a, float), np.asarray(b, float)
    if first.shape != second.shape:
        raise ValueError(
            f"the arms have {first.shape} and {second.shape} scores; give both the same prompts"
        )
    gaps = first - second
    groups, missing = _groups(gaps, strata)
    means = _resampled(groups, samples, seed)
    low, high = _bounds(means)
    holds: Literal["true", "false", "undecided"] = "undecided"
    if low > margin:
        holds = "true"
    elif high < margin:
        holds = "false"
    spread = float(means.std()) if len(means) else float("nan")
    return Difference(
        stratified_mean(gaps, strata),
        low,
        high,
        holds,
        _POWER * spread,
        len(gaps) - missing,
        missing,
    )


def share_of_gap(
    scores: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    strata: Sequence[Hashable] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Interval:
    """How much of the distance between two reference arms an arm closes, (scores - low) / (high -
    low) of the means over the same N prompts, with the 95 % percentile interval of the ratio.

    A prompt with a NaN in any arm is left out. The share is NaN if the distance is not above 0, and
    the bounds are if it is not in a fortieth of the resamples or more: then no interval holds it.
    Raises ValueError if lengths differ.
    """
    arms = np.stack([np.asarray(a, float) for a in (scores, low, high)])  # (3, N)
    known = ~np.isnan(arms).any(axis=0)
    names = [None] * arms.shape[1] if strata is None else list(strata)
    if len(names) != arms.shape[1]:
        raise ValueError(f"{len(names)} strata for {arms.shape[1]} values; give one for each")
    groups: dict[Hashable, list[int]] = {}
    for index in np.flatnonzero(known):
        groups.setdefault(names[index], []).append(int(index))
    count, missing = int(known.sum()), int((~known).sum())
    nan = float("nan")
    if not groups:
        return Interval(nan, nan, nan, 0, missing)
    means = np.mean([arms[:, members].mean(axis=1) for members in groups.values()], axis=0)
    share = float((means[0] - means[1]) / (means[2] - means[1])) if means[2] > means[1] else nan
    if min(map(len, groups.values())) < MIN_STRATUM or np.isnan(share):
        return Interval(share, nan, nan, count, missing)
    drawn = _resampled_arms(arms, [np.array(m) for m in groups.values()], samples, seed)
    gap = drawn[2] - drawn[1]
    if (gap <= 0).mean() >= 0.025:
        return Interval(share, nan, nan, count, missing)
    bounds = np.percentile(((drawn[0] - drawn[1])[gap > 0]) / gap[gap > 0], (2.5, 97.5))
    return Interval(share, float(bounds[0]), float(bounds[1]), count, missing)


def _resampled_arms(arms: Array, groups: list[NDArray[np.int_]], samples: int, seed: int) -> Array:
    """Stratified means of A arms in ``samples`` bootstrap samples of the same prompts: (A, S)."""
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - start)
        drawn = [arms[:, g[rng.integers(0, len(g), (count, len(g)))]].mean(axis=2) for g in groups]
        parts.append(np.mean(drawn, axis=0))
    return np.concatenate(parts, axis=1)


def _groups(array: Array, strata: Sequence[Hashable] | None) -> tuple[list[Array], int]:
    """Values of each stratum without the NaN, and how many those were."""
    if array.ndim != 1:
        raise ValueError(f"values have shape {array.shape}; allowed: (N,)")
    names = [None] * len(array) if strata is None else list(strata)
    if len(names) != len(array):
        raise ValueError(f"{len(names)} strata for {len(array)} values; give one for each")
    members: dict[Hashable, list[float]] = {}
    for name, value in zip(names, array, strict=True):
        if not np.isnan(value):
            members.setdefault(name, []).append(float(value))
    return [np.array(m) for m in members.values()], int(np.isnan(array).sum())


def _resampled(groups: list[Array], samples: int, seed: int) -> Array:
    """Stratified means of ``samples`` bootstrap samples; none if a group is too small, or there is
    none."""
    if min(map(len, groups), default=0) < MIN_STRATUM:
        return np.empty(0)
    rng = np.random.default_rng(seed)
    parts = []
    for start in range(0, samples, _CHUNK):
        count = min(_CHUNK, samples - start)
        drawn = [g[rng.integers(0, len(g), (count, len(g)))].mean(axis=1) for g in groups]
        parts.append(np.mean(drawn, axis=0))
    return np.concatenate(parts)


def _bounds(means: Array) -> tuple[float, float]:
    if not len(means):
        return float("nan"), float("nan")
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)
