"""Bootstrap intervals: coverage, pairing, strata, missing values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from t2x.evaluation.intervals import (
    MIN_STRATUM,
    bootstrap_mean,
    paired_difference,
    share_of_gap,
    stratified_mean,
)


def test_interval_is_the_normal_one_for_many_values() -> None:
    values = np.random.default_rng(0).normal(2, 1, 2000)
    interval = bootstrap_mean(values)
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert interval.mean == pytest.approx(values.mean())
    # The bootstrap's own error on a bound is about 1.5 % of the interval with 4,000 resamples.
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(200):
        interval = bootstrap_mean(rng.random(80) < 0.7, samples=500, seed=seed)
        covered += interval.low <= 0.7 <= interval.high
    assert 0.89 <= covered / 200 <= 0.99


def test_pairing_sees_what_separate_intervals_do_not() -> None:
    rng = np.random.default_rng(2)
    hard = rng.normal(0, 1, 300)
    better = hard + 0.05 + rng.normal(0, 0.1, 300)
    difference = paired_difference(better, hard)
    assert difference.holds == "true"
    assert difference.detectable < 0.03
    apart = bootstrap_mean(better), bootstrap_mean(hard)
    assert apart[0].low < apart[1].high


def test_holds_is_undecided_without_an_effect_and_false_against_one() -> None:
    rng = np.random.default_rng(3)
    noise = rng.normal(0, 1, 100)
    assert paired_difference(noise, noise).holds == "undecided"
    assert paired_difference(noise, noise + 1).holds == "false"
    assert paired_difference(noise + 0.5, noise, margin=0.6).holds == "false"


def test_strata_weigh_the_same_whatever_their_size() -> None:
    values = [1.0] * 90 + [0.0] * 10
    strata = ["a"] * 90 + ["b"] * 10
    assert stratified_mean(values, strata) == pytest.approx(0.5)
    interval = bootstrap_mean(values, strata=strata)
    assert (interval.low, interval.high) == (0.5, 0.5)


def test_missing_values_are_counted_and_left_out() -> None:
    interval = bootstrap_mean([1.0, float("nan"), 1.0])
    assert (interval.mean, interval.n, interval.missing) == (1.0, 2, 1)
    difference = paired_difference([1.0, float("nan"), 0.0], [0.0, 0.0, float("nan")])
    assert (difference.mean, difference.n, difference.missing) == (1.0, 1, 2)
    assert math.isnan(bootstrap_mean([]).low)


def test_strata_of_too_few_values_have_no_bounds_and_decide_nothing() -> None:
    """One value a stratum has no spread: its bootstrap would be an interval of width 0."""
    for each in (1, MIN_STRATUM - 1):
        values = np.repeat(np.arange(6.0) + 1, each)
        strata = np.repeat(np.arange(6), each).tolist()
        interval = bootstrap_mean(values, strata=strata)
        assert interval.mean == pytest.approx(3.5) and math.isnan(interval.low + interval.high)
        difference = paired_difference(values, 0 * values, strata=strata)
        assert difference.holds == "undecided" and difference.mean == pytest.approx(3.5)
        assert math.isnan(difference.detectable) and math.isnan(difference.low + difference.high)
    # A single small stratum is enough; one that is missing altogether leaves the mean instead.
    sizes = [0.0] * 20 + [1.0] * (MIN_STRATUM - 1)
    strata = ["a"] * 20 + ["b"] * (MIN_STRATUM - 1)
    assert math.isnan(bootstrap_mean(sizes, strata=strata).low)
    gone = [0.0] * 20 + [math.nan] * (MIN_STRATUM - 1)
    assert bootstrap_mean(gone, strata=strata).low == 0
    enough = np.arange(float(MIN_STRATUM))
    assert bootstrap_mean(enough).low < bootstrap_mean(enough).high


def test_share_of_the_gap_is_the_ratio_of_means_and_its_interval_covers_the_truth() -> None:
    rng = np.random.default_rng(6)
    covered = 0
    for seed in range(150):
        hard = rng.random(120)
        low, arm, high = (hard + 0.2 * rng.random(120) < level for level in (0.3, 0.7, 0.9))
        share = share_of_gap(arm, low, high, samples=300, seed=seed)
        gap = high.mean() - low.mean()
        assert share.mean == pytest.approx((arm.mean() - low.mean()) / gap)
        covered += share.low <= 2 / 3 <= share.high
    assert 0.9 <= covered / 150 <= 0.99


def test_share_of_the_gap_of_the_references_and_beyond() -> None:
    low, high = np.zeros(40), np.tile([1.0, 0.0], 20)
    assert share_of_gap(low, low, high).mean == 0 and share_of_gap(high, low, high).mean == 1
    assert share_of_gap(np.ones(40), low, high).mean == pytest.approx(2)
    strata = [0] * 30 + [1] * 10
    found = share_of_gap([1.0] * 30 + [0.0] * 10, low, high, strata=strata)
    assert found.mean == pytest.approx(1) and found.low < 1 < found.high  # 0.5 of 0.5


def test_without_a_gap_there_is_no_share() -> None:
    ones = np.ones(20)
    assert math.isnan(share_of_gap(ones, ones, ones).mean)
    noise = np.random.default_rng(7).normal(0, 1, (2, 20))
    high = noise[1] + 0.01 - noise[1].mean() + noise[0].mean()
    found = share_of_gap(ones, noise[0], high)
    assert math.isfinite(found.mean) and math.isnan(found.low)  # half of the resamples have none
    found = share_of_gap([math.nan, 1.0], [0.0, 0.0], [1.0, 1.0])
    assert (found.mean, found.n, found.missing) == (1.0, 1, 1) and math.isnan(found.low)
    with pytest.raises(ValueError, match="strata"):
        share_of_gap([1.0], [0.0], [1.0], strata=[0, 1])


def test_same_seed_same_interval() -> None:
    values = np.random.default_rng(4).random(50)
    assert bootstrap_mean(values, seed=5) == bootstrap_mean(values, seed=5)
    assert bootstrap_mean(values, seed=5) != bootstrap_mean(values, seed=6)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="same prompts"):
        paired_difference([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="strata"):
        bootstrap_mean([1.0, 2.0], strata=["a"])
