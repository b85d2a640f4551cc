"""Equations of prompt selection: closed forms, missing values, limits."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.selection import (
    beta_posterior,
    history_utility,
    informative_probability,
    lifted_temperature,
    prompt_entropy,
    ridge_weights,
    success_rate,
    true_variance,
)

NAN = math.nan


def rows(*values: list[float]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_success_is_to_be_ahead_of_the_no_rewrite_arm() -> None:
    rewards = rows([0.1, 0.5, 0.6, 0.9], [0.5, 0.5, 0.5, 0.5])
    baseline = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert success_rate(rewards, baseline).tolist() == [0.5, 0.0]  # as good is not better
    assert success_rate(rewards, baseline, margin=0.2).tolist() == [0.25, 0.0]
    assert success_rate(rewards, baseline, margin=-0.2).tolist() == [0.75, 1.0]


def test_missing_rewards_leave_the_share_and_are_not_failures() -> None:
    rewards = rows([0.9, NAN, 0.1, NAN], [NAN, NAN, NAN, NAN], [0.9, 0.9, 0.9, 0.9])
    rate = success_rate(rewards, torch.tensor([0.5, 0.5, NAN], dtype=torch.float64))
    assert rate[0] == 0.5 and rate[1:].isnan().all()


def test_true_variance_is_the_unbiased_one_less_that_of_seeds() -> None:
    rewards = rows([1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0], [1.0, NAN, 3.0, NAN])
    zero = torch.zeros(3, dtype=torch.float64)
    assert true_variance(rewards, zero).tolist() == pytest.approx([5 / 3, 0.0, 2.0])
    assert true_variance(rewards, zero + 1).tolist() == pytest.approx([2 / 3, 0.0, 1.0])
    assert true_variance(rewards, zero + 9).tolist() == [0.0, 0.0, 0.0]
    assert true_variance(rows([1.0, NAN]), zero[:1]).isnan().all()


def test_seed_noise_alone_has_no_true_variance_on_average() -> None:
    """Rewards that are noise: E[s^2] - noise^2 = 0, so that half of all groups are clamped to 0;
    with an effect of deviation 1 beside it, 1 is left."""
    generator = torch.Generator().manual_seed(0)
    noise = 0.3 * torch.randn(20_000, 8, generator=generator, dtype=torch.float64)
    effect = torch.randn(20_000, 8, generator=generator, dtype=torch.float64)
    scale = torch.full((20_000,), 0.3, dtype=torch.float64)
    assert true_variance(noise, scale).mean() < 0.03
    assert true_variance(noise + effect, scale).mean() == pytest.approx(1, abs=0.02)


def test_informative_probability() -> None:
    rate = torch.tensor([0.0, 0.5, 1.0, 0.25])
    expected = [0.0, 0.5, 0.0, 2 * 0.25 * 0.75]
    assert informative_probability(rate, 2).tolist() == pytest.approx(expected)
    assert informative_probability(torch.tensor(0.5), 8).item() == pytest.approx(1 - 2**-7)


def test_the_posterior_without_decay_is_conjugate_and_with_full_decay_forgets() -> None:
    one = torch.ones(1)
    alpha, beta = beta_posterior(one, one, 3 * one, 5 * one)
    assert (alpha.item(), beta.item()) == (4, 6)  # mean 0.4
    alpha, beta = beta_posterior(alpha, beta, 8 * one, 0 * one, decay=0.5)
    assert (alpha.item(), beta.item()) == (2 + 0.5 + 8, 3 + 0.5)
    alpha, beta = beta_posterior(alpha, beta, 1 * one, 2 * one, decay=0.0, prior=(2.0, 3.0))
    assert (alpha.item(), beta.item()) == (3, 5)


def test_ridge_weights_are_those_of_least_squares_as_the_ridge_vanishes() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    truth = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    y = x @ truth
    assert ridge_weights(x.T @ x, x.T @ y, ridge=1e-12).tolist() == pytest.approx(truth.tolist())
    one = torch.ones(1, 1)
    assert ridge_weights(one, torch.tensor([1.0]), ridge=1.0).item() == 0.5  # 1 / (1 + 1)


def test_history_utility_is_the_variance_of_a_coin_and_unknown_is_best() -> None:
    utility = history_utility(torch.tensor([0.0, 0.5, 1.0, 0.1, NAN]))
    assert utility.tolist() == pytest.approx([0, 1, 0, 0.36, 1])


def test_prompt_entropy_of_uniform_and_certain_tokens() -> None:
    logits = torch.zeros(2, 3, 4)
    logits[0, 0] = torch.tensor([0.0, -math.inf, -math.inf, -math.inf])
    logits[1, 2] = 1e4  # padding: does not count, whatever it holds
    mask = torch.tensor([[1, 1, 0], [1, 1, 0]])
    expected = [math.log(4) / 2, math.log(4)]
    assert prompt_entropy(logits, mask).tolist() == pytest.approx(expected)


def test_temperature_rises_with_the_streak_up_to_the_ceiling() -> None:
    streak = torch.tensor([0.0, 1.0, 3.0, 50.0])
    lifted = lifted_temperature(streak, base=1.0, step=0.1, ceiling=1.5)
    assert lifted.tolist() == pytest.approx([1.0, 1.1, 1.3, 1.5])
    hot = lifted_temperature(streak, base=2.0, step=0.1, ceiling=1.5)
    assert hot.tolist() == [2.0, 2.0, 2.0, 2.0]  # never below the run's own
