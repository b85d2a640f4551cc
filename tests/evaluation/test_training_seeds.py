"""Differences over prompts and training seeds: coverage, a null effect, power, closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from t2x.evaluation.intervals import MIN_STRATUM, paired_difference
from t2x.evaluation.training_seeds import seeded_difference, student_quantile, value_difference

ROUNDS = 200


def gaps(
    rng: np.random.Generator, *, models: float, prompts: float, rest: float, effect: float = 0.0
) -> np.ndarray:
    """Differences of three training seeds on 120 prompts, with the deviations of each part."""
    return (
        effect
        + models * rng.normal(size=(3, 1))
        + prompts * rng.normal(size=(1, 120))
        + rest * rng.normal(size=(3, 120))
    )


@pytest.mark.parametrize(
    ("models", "prompts", "rest"),
    [(0.0, 0.3, 0.3), (0.03, 0.2, 0.3), (0.1, 0.05, 0.1)],
    ids=["all seeds alike", "as trainings are", "seeds decide"],
)
def test_interval_covers_the_truth_and_a_null_effect_rarely_holds(models, prompts, rest) -> None:
    """200 rounds have an error of 1.5 points at 95 %."""
    rng = np.random.default_rng(0)
    parts = {"models": models, "prompts": prompts, "rest": rest}
    covered, claimed = 0, 0
    for index in range(ROUNDS):
        sample = gaps(rng, **parts)
        found = seeded_difference(sample, 0 * sample, samples=400, seed=index)
        covered += found.low <= 0 <= found.high
        claimed += found.holds == "true"
    assert 0.92 <= covered / ROUNDS <= 0.995
    assert claimed / ROUNDS <= 0.045


def test_a_bootstrap_of_three_seeds_without_the_corrections_covers_too_little() -> None:
    """The control: why t and the stretch are there."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(ROUNDS):
        sample = gaps(rng, models=0.1, prompts=0.05, rest=0.1)
        means = sample.mean(axis=1)[rng.integers(0, 3, (400, 3))].mean(axis=1)
        low, high = np.percentile(means, (2.5, 97.5))
        covered += low <= 0 <= high
    assert covered / ROUNDS < 0.85


def test_what_is_called_detectable_is_seen_about_four_times_in_five() -> None:
    rng = np.random.default_rng(2)
    parts = {"models": 0.02, "prompts": 0.3, "rest": 0.1}
    null = [
        seeded_difference(sample, 0 * sample, samples=400)
        for sample in (gaps(rng, **parts) for _ in range(60))
    ]
    effect = float(np.median([d.detectable for d in null]))
    seen = sum(
        seeded_difference(sample, 0 * sample, samples=400).holds == "true"
        for sample in (gaps(rng, effect=effect, **parts) for _ in range(ROUNDS))
    )
    assert 0.68 <= seen / ROUNDS <= 0.95


def test_more_seeds_narrow_the_interval() -> None:
    rng = np.random.default_rng(3)
    sample = 0.05 * rng.normal(size=(12, 1)) + 0.3 * rng.normal(size=(12, 200))
    few, many = (seeded_difference(s, 0 * s) for s in (sample[:3], sample))
    assert many.high - many.low < few.high - few.low


def test_one_seed_is_the_paired_difference_of_prompts() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.random((2, 60)) < 0.6
    strata = [i % 6 for i in range(60)]
    options = {"strata": strata, "samples": 500, "seed": 3}
    assert seeded_difference(a[None], b[None], **options) == paired_difference(a, b, **options)


def test_equal_arms_differ_by_exactly_nothing() -> None:
    scores = np.random.default_rng(5).random((3, 50))
    found = seeded_difference(scores, scores)
    assert (found.mean, found.low, found.high, found.detectable) == (0, 0, 0, 0)
    assert found.holds == "undecided"


def test_strata_weigh_the_same_and_small_ones_decide_nothing() -> None:
    a = np.tile([1.0] * 90 + [0.0] * 10, (3, 1))
    strata = ["many"] * 90 + ["few"] * 10
    assert seeded_difference(a, 0 * a, strata=strata).mean == pytest.approx(0.5)
    strata = ["many"] * 100
    strata[: MIN_STRATUM - 1] = ["few"] * (MIN_STRATUM - 1)
    found = seeded_difference(a, 0 * a, strata=strata)
    assert found.holds == "undecided" and math.isnan(found.low + found.detectable)


def test_a_prompt_that_is_missing_for_one_model_is_left_out_for_all() -> None:
    a = np.ones((3, 20))
    a[1, 4] = math.nan
    found = seeded_difference(a, 0 * a)
    assert (found.n, found.missing, found.mean) == (19, 1, 1.0)
    assert seeded_difference(np.full((3, 9), math.nan), np.ones((3, 9))).holds == "undecided"


def test_a_number_for_each_seed_is_the_t_test() -> None:
    """Of 1, 2, 3: mean 2, error 1 / sqrt(3), and 4.3027 of them for two degrees of freedom."""
    found = value_difference([1.0, 2.0, 3.0, math.nan], [0.0, 0.0, 0.0, 1.0])
    half = 4.302652729696142 / math.sqrt(3)
    assert (found.mean, found.n, found.missing) == (2.0, 3, 1)
    assert found.low == pytest.approx(2 - half) and found.high == pytest.approx(2 + half)
    assert found.holds == "undecided"
    assert value_difference([5.0], [1.0]).holds == "undecided"
    assert value_difference([5.0, 5.1], [1.0, 1.1], margin=3.9).holds == "true"


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [
        (0.975, 1, math.tan(0.475 * math.pi)),  # Cauchy
        (0.8, 2, 0.6 * math.sqrt(2 / (1 - 0.36))),  # closed form of two degrees
        (0.025, 2, -4.302652729696142),
        (0.975, 10, 2.2281388519649385),
        (0.975, math.inf, 1.959963984540054),
    ],
)
def test_quantiles_of_student(share: float, freedom: float, value: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(value, rel=3e-6)


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="same training seeds"):
        seeded_difference(np.ones((3, 5)), np.ones((2, 5)))
    with pytest.raises(ValueError, match="share 1"):
        student_quantile(1.0, 3)
