"""Differences of two ways to train, over test prompts *and* seeds of training.

Prompts and training seeds are crossed: every one of K trained models answers the same N prompts.
Both are resampled (two-way or "pigeonhole" bootstrap; Owen 2007, Annals of Applied Statistics 1(2),
386-411). Of K = 3 seeds a plain bootstrap shows two thirds of their variance and knows nothing of
their tails, so that its 95 % are nearer 75 %. Hence two corrections: what a resample of seeds adds
is stretched by sqrt(K / (K - 1)), and the interval is the standard error times a quantile of
Student's t, whose degrees of freedom weigh those of the seeds, K - 1, and of the prompts
(Satterthwaite 1946, Biometrics Bulletin 2, 110-114). ``tests/evaluation/test_training_seeds.py``
measures the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from t2x.evaluation.intervals import MIN_STRATUM, Difference, paired_difference, stratified_mean

__all__ = ["decide", "seeded_difference", "student_quantile", "value_difference"]

Array: TypeAlias = "NDArray[np.floating[Any]]"
SAMPLES = 2000
_STEPS = 200
_POWER = 0.8  # an effect of the size called detectable is seen four times in five


def seeded_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    strata: Sequence[Hashable] | None = None,
    margin: float = 0.0,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Difference:
    """Difference ``a - b`` of two arms, (K, N) each: K training seeds, N prompts, the same ones in
    both arms; its interval covers other prompts and other seeds of training.

    A seed of one arm is paired with the same seed of the other (data and noise are the same). A
    prompt that is NaN for any model is left out and counted. With one seed the interval is that of
    ``paired_difference``: it covers other prompts, and says nothing of other seeds of training.
    With too few prompts in a stratum, or no prompt, nothing is decided.
    """
    first, second = np.atleast_2d(np.asarray(a, float)), np.atleast_2d(np.asarray(b, float))
    if first.shape != second.shape or first.ndim != 2:
        raise ValueError(
            f"the arms have {first.shape} and {second.shape} scores; give both the same training "
            "seeds and prompts, (K, N)"
        )
    gaps = first - second
    names = [None] * gaps.shape[1] if strata is None else list(strata)
    if len(names) != gaps.shape[1]:
        raise ValueError(f"{len(names)} strata for {gaps.shape[1]} prompts; give one for each")
    known = ~np.isnan(gaps).any(axis=0)
    if len(gaps) == 1:
        options: dict[str, Any] = {"strata": names, "margin": margin, "seed": seed}
        return paired_difference(first[0], second[0], samples=samples, **options)
    kept, missing = gaps[:, known], int((~known).sum())
    strata = [name for name, is_known in zip(names, known, strict=True) if is_known]
    groups = [
        kept[:, [i for i, name in enumerate(strata) if name == own]]
        for own in dict.fromkeys(strata)
    ]
    mean = float(np.mean([stratified_mean(row, strata) for row in kept])) if groups else math.nan
    nothing = Difference(mean, math.nan, math.nan, "undecided", math.nan, kept.shape[1], missing)
    if min((g.shape[1] for g in groups), default=0) < MIN_STRATUM:
        return nothing
    error, freedom = _standard_error(groups, samples, seed)
    return _interval(nothing, error, freedom, margin)


def value_difference(a: ArrayLike, b: ArrayLike, *, margin: float = 0.0) -> Difference:
    """Difference ``a - b`` of one number for each of K training seeds, (K,) each, paired by seed:
    Student's t with K - 1 degrees of freedom. A pair with a NaN is left out; with fewer than two
    pairs nothing is decided.
    """
    gaps = np.asarray(a, float) - np.asarray(b, float)
    kept = gaps[~np.isnan(gaps)]
    mean = float(kept.mean()) if len(kept) else math.nan
    missing = len(gaps) - len(kept)
    nothing = Difference(mean, math.nan, math.nan, "undecided", math.nan, len(kept), missing)
    if len(kept) < 2:
        return nothing
    error = float(kept.std(ddof=1)) / math.sqrt(len(kept))
    return _interval(nothing, error, len(kept) - 1, margin)


def decide(low: float, high: float, margin: float) -> Literal["true", "false", "undecided"]:
    """Whether an effect exceeds ``margin``: true if its whole interval does, false if none of it
    does, else undecided; NaN decides nothing."""
    if low > margin:
        return "true"
    return "false" if high < margin else "undecided"


def student_quantile(share: float, freedom: float) -> float:
    """Quantile of Student's t: the value that a ``share`` in (0, 1) of the distribution lies below;
    ``freedom`` > 0 degrees, infinity for the normal distribution.

    With t = sqrt(freedom) tan(angle) the density is cos(angle)^(freedom - 1), which is integrated;
    Newton's steps from 0 rise to the quantile and never beyond, since the integral is concave.
    """
    if not 0 < share < 1 or not freedom > 0:
        raise ValueError(f"got share {share}, freedom {freedom}; they are in (0, 1) and above 0")
    if share < 0.5:
        return -student_quantile(1 - share, freedom)
    freedom = min(freedom, 1e6)  # beyond, it is normal to six digits
    whole = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    nodes, weights = _nodes()
    t = 0.0
    for _ in range(_STEPS):
        # In eight parts: of one wide interval, the nodes would miss the peak of many degrees.
        edges = np.arctan(np.linspace(0, t, 9) / math.sqrt(freedom))
        half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
        parts = half * weights * np.cos(middle + half * nodes) ** (freedom - 1)
        below = 0.5 + float(parts.sum()) / whole
        density = math.cos(float(edges[-1])) ** (freedom + 1) / (whole * math.sqrt(freedom))
        step = (share - below) / density
        t += step
        if abs(step) < 1e-10 * max(t, 1e-3):
            break
    return t


@lru_cache(maxsize=1)
def _nodes() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(64)


def _interval(found: Difference, error: float, freedom: float, margin: float) -> Difference:
    """Bounds, decision and detectable effect of a mean with its standard error."""
    wide = student_quantile(0.975, freedom)
    low, high = found.mean - wide * error, found.mean + wide * error
    detectable = (wide + student_quantile(_POWER, freedom)) * error
    holds = decide(low, high, margin)
    return replace(found, low=low, high=high, holds=holds, detectable=detectable)


def _standard_error(groups: Sequence[Array], samples: int, seed: int) -> tuple[float, float]:
    """Standard error of the mean over seeds, strata and prompts, and its degrees of freedom.

    ``groups`` are strata of differences, (K, n) each.
    """
    rng = np.random.default_rng(seed)
    count = len(groups[0])
    # Stratified mean of each model over resampled prompts: (samples, K).
    models = np.mean([_resampled(g, samples, rng) for g in groups], axis=0)
    drawn = rng.integers(0, count, (samples, count))
    centre = models.mean(axis=1)
    picked = np.take_along_axis(models, drawn, axis=1).mean(axis=1) - centre
    effects = centre + math.sqrt(count / (count - 1)) * picked
    own = np.mean([g.mean(axis=1) for g in groups], axis=0)  # (K,)
    by_seeds = float(own.var(ddof=1)) / count
    by_prompts = float(centre.var())
    total = max(float(effects.var()), by_seeds, by_prompts)
    if total == 0:
        return 0.0, math.inf
    prompts = sum(g.shape[1] - 1 for g in groups)
    weights = by_seeds**2 / (count - 1) + by_prompts**2 / prompts
    freedom = (by_seeds + by_prompts) ** 2 / weights
    return math.sqrt(total), freedom


def _resampled(group: Array, samples: int, rng: np.random.Generator) -> Array:
    """Means of each model over prompts drawn again with replacement: (K, n) -> (samples, K)."""
    size = group.shape[1]
    often = rng.multinomial(size, np.full(size, 1 / size), size=samples)  # (samples, n)
    means: Array = often @ group.T / size
    return means
