"""AUC against its definition."""

from __future__ import annotations

import math

import torch

from t2x.world.reward_auc import auc, within_auc


def test_auc_counts_pairs_and_ties_half() -> None:
    # Accepted score 3 and 1, others 2 and 1: wins (3,2), (3,1), a tie (1,1), a loss (1,2).
    scores = torch.tensor([3.0, 1.0, 2.0, 1.0])
    labels = torch.tensor([True, True, False, False])
    assert auc(scores, labels) == 2.5 / 4


def test_auc_by_brute_force_and_its_symmetry() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = (torch.rand(60, generator=generator) * 10).round()
    labels = torch.rand(60, generator=generator) < 0.3
    difference = scores[labels][:, None] - scores[~labels][None]
    expected = ((difference > 0).float() + 0.5 * (difference == 0).float()).mean().item()
    assert math.isclose(auc(scores, labels), expected, rel_tol=1e-6)
    assert math.isclose(auc(-scores, labels), 1 - expected, rel_tol=1e-6)


def test_missing_scores_are_left_out_and_one_label_gives_nan() -> None:
    scores = torch.tensor([1.0, 0.0, math.nan])
    assert auc(scores, torch.tensor([True, False, False])) == 1
    assert math.isnan(auc(scores, torch.tensor([True, True, True])))


def test_within_groups_only_pairs_of_one_prompt_count() -> None:
    # Each group is ordered rightly, although group 1 lies above group 0 throughout.
    scores = torch.tensor([1.0, 0.0, 11.0, 10.0])
    labels = torch.tensor([True, False, True, False])
    assert within_auc(scores, labels, [0, 0, 1, 1]) == 1
    assert auc(scores, labels) == 0.75
    assert math.isnan(within_auc(scores, labels, [0, 1, 2, 3]))
