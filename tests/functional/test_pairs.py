"""The noise of a difference: closed form and simulated."""

from __future__ import annotations

import math

import torch

from t2x.functional.advantages import seed_noise
from t2x.functional.pairs import difference_noise


def test_one_reward_in_closed_form():
    # Variance 9 of one picture; of a difference of two means over 2 seeds: 2 * 9 / 2 = 9.
    products, freedom = torch.tensor([[18.0]]), torch.tensor(2.0)
    assert difference_noise(products, freedom, torch.ones(1), seeds=2) == 3.0


def test_weights_and_covariance_count():
    # w' C w = 4 * 1 + 9 * 2 + 2 * 2 * 3 * 0.5 = 28; times 2, by 7 seeds: 8.
    covariance = torch.tensor([[1.0, 0.5], [0.5, 2.0]])
    noise = difference_noise(covariance, torch.tensor(1.0), torch.tensor([2.0, 3.0]), seeds=7)
    assert math.isclose(float(noise), math.sqrt(8), rel_tol=1e-6)


def test_one_picture_each_shows_no_noise():
    scores = torch.rand(6, 1, 2)
    noise = difference_noise(*seed_noise(scores), torch.ones(2), seeds=1)
    assert noise.isnan()


def test_it_is_the_spread_of_differences_of_equal_texts():
    """Two texts that do not differ: of 4,000 prompts the differences deviate as it says, though a
    seed moves both alike."""
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(4000, 1, 3, generator=generator) * 5
    own = torch.randn(4000, 2, 3, generator=generator)
    scores = shared + own
    groups = torch.arange(4000).repeat_interleave(2)
    noise = difference_noise(
        *seed_noise(scores.reshape(8000, 3, 1), groups), torch.ones(1), seeds=3
    )
    differences = scores.mean(2)[:, 0] - scores.mean(2)[:, 1]
    assert math.isclose(float(noise), float(differences.std()), rel_tol=0.03)
    assert math.isclose(float(noise), math.sqrt(2 / 3), rel_tol=0.03)
