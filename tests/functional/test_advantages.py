"""Advantages and noise in closed form."""

from __future__ import annotations

import math

import torch

from t2x.functional.advantages import failure_score, group_advantages, seed_noise

NAN = math.nan


def test_advantages_of_two_groups() -> None:
    # Group 0: mean 2, deviation 1 (n - 1). Group 1: mean 5, deviation 4 / sqrt(2).
    rewards = torch.tensor([1.0, 2.0, 3.0, 3.0, 7.0])
    groups = torch.tensor([0, 0, 0, 1, 1])
    half = 1 / math.sqrt(2)
    expected = torch.tensor([-1.0, 0.0, 1.0, -half, half])
    torch.testing.assert_close(group_advantages(rewards, groups), expected)


def test_a_floor_holds_small_differences_down() -> None:
    rewards = torch.tensor([1.0, 1.2, 10.0, 14.0])
    groups = torch.tensor([0, 0, 1, 1])
    found = group_advantages(rewards, groups, floor=2.0)
    half = 1 / math.sqrt(2)  # of the second group, whose deviation 2.83 is above the floor
    torch.testing.assert_close(found, torch.tensor([-0.05, 0.05, -half, half]))


def test_equal_rewards_give_exactly_zero() -> None:
    third = torch.tensor([1 / 3] * 7)
    assert group_advantages(third, floor=0.0).tolist() == [0.0] * 7
    assert group_advantages(third, floor=1e-9).tolist() == [0.0] * 7


def test_what_was_not_measured_leaves_the_mean() -> None:
    found = group_advantages(torch.tensor([1.0, NAN, 3.0]), floor=1.0)
    half = 1 / math.sqrt(2)
    torch.testing.assert_close(found, torch.tensor([-half, NAN, half]), equal_nan=True)


def test_common_seeds_are_no_noise_between_texts() -> None:
    # Two texts on three seeds: what a seed does to both texts alike cancels.
    seeds = torch.tensor([0.0, 5.0, -5.0])
    scores = torch.stack([1.0 + seeds, 2.0 + seeds])[:, :, None]
    products, freedom = seed_noise(scores)
    assert products.item() == 0.0
    assert freedom.item() == 2.0
    # Alone, a text shows all that its seeds do: 50 by 2 degrees of freedom.
    products, freedom = seed_noise(scores, torch.tensor([0, 1]))
    assert products.item() == 100.0
    assert freedom.item() == 4.0
    products, freedom = seed_noise(scores, torch.tensor([0, 1]), lone=False)
    assert (products.item(), freedom.item()) == (0.0, 0.0)


def test_noise_is_measured_without_bias() -> None:
    generator = torch.Generator().manual_seed(0)
    texts = torch.randn(4000, 1, 2, generator=generator)
    groups = torch.arange(4000) // 4
    common = torch.randn(1000, 3, 2, generator=generator).repeat_interleave(4, 0)
    own = torch.randn(4000, 3, 2, generator=generator) * torch.tensor([0.5, 2.0])
    products, freedom = seed_noise(texts + 3 * common + own, groups)
    covariance = products / freedom  # 6000 degrees of freedom: 2 % of a variance is one deviation
    torch.testing.assert_close(
        covariance.diagonal(), torch.tensor([0.25, 4.0], dtype=torch.float64), rtol=0.08, atol=0
    )
    assert abs(covariance[0, 1].item()) < 0.06


def test_one_seed_and_missing_scores_tell_nothing() -> None:
    products, freedom = seed_noise(torch.ones(3, 1, 2))
    assert (products.sum().item(), freedom.item()) == (0.0, 0.0)
    scores = torch.tensor([[[1.0], [NAN]], [[1.0], [3.0]]])
    products, freedom = seed_noise(scores)
    assert (products.item(), freedom.item()) == (2.0, 1.0)


def test_failures_are_below_the_prompt_and_below_the_group() -> None:
    scores = torch.tensor([[0.9], [NAN], [0.2], [NAN]])
    original = torch.tensor([[0.5], [0.5], [0.5], [0.5]])
    groups = torch.tensor([0, 0, 1, 1])
    fixed = failure_score(scores, original, torch.tensor([0.1]), groups, margin=2.0)
    # Group 0: the prompt at 0.5 is the worst. Group 1: a rewrite at 0.2 is.
    torch.testing.assert_close(fixed[:, 0], torch.tensor([0.3, 0.3, 0.0, 0.0]))
    alone = failure_score(scores[1:2], original[1:2], torch.tensor([0.1]), groups[:1], margin=1.0)
    torch.testing.assert_close(alone[:, 0], torch.tensor([0.4]))


def test_failures_are_above_where_less_is_better() -> None:
    scores = torch.tensor([[1.0], [NAN]])
    original = torch.tensor([[2.0], [2.0]])
    groups = torch.zeros(2, dtype=torch.long)
    fixed = failure_score(scores, original, torch.tensor([-0.5]), groups, margin=1.0)
    assert fixed[1, 0].item() == 2.5


def test_nothing_measured_gives_no_score() -> None:
    nothing = torch.full((2, 1), NAN)
    fixed = failure_score(
        nothing, nothing, torch.ones(1), torch.zeros(2, dtype=torch.long), margin=1.0
    )
    assert fixed.isnan().all()
