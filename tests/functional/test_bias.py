"""Self-preference bias in closed form."""

from __future__ import annotations

import torch

from t2x.functional.bias import self_preference_bias


def test_closed_form() -> None:
    """Own better: agreed 2 of 3 (one by a tie and a half); other better: seen 1 of 4."""
    truth = torch.tensor([1.0, 1.0, 2.0, -1.0, -1.0, -2.0, -3.0, 0.0, torch.nan])
    judged = torch.tensor([1.0, 0.0, 0.0, -1.0, 1.0, 1.0, 1.0, 9.0, 1.0])
    expected = (1 + 0.5 + 0.5) / 3 - 1 / 4
    assert float(self_preference_bias(judged, truth)) == expected


def test_a_fair_judge_and_one_that_loves_itself() -> None:
    truth = torch.randn(200, generator=torch.Generator().manual_seed(0))
    assert float(self_preference_bias(truth, truth)) == 0
    assert float(self_preference_bias(torch.ones(200), truth)) == 1
    assert float(self_preference_bias(-torch.ones(200), truth)) == -1
    # Exchanging the two sides turns the sign round.
    judged = truth + 0.5
    assert self_preference_bias(-judged, -truth) == -self_preference_bias(judged, truth)


def test_nothing_to_compare_is_not_zero() -> None:
    assert self_preference_bias(torch.ones(3), torch.ones(3)).isnan()
    assert self_preference_bias(torch.ones(3), torch.full((3,), torch.nan)).isnan()
