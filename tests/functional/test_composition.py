"""Composition of rewards: closed forms, identities, and the cases that break it elsewhere."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.composition import (
    batch_standardise,
    cmo,
    correlation_weights,
    dominance,
    dominance_pairs,
    gdpo,
    group_standardise,
    non_dominated,
    weighted_sum,
)

NAN = float("nan")
ONES = torch.ones(2)


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def test_weighted_sum_and_what_it_does_not_look_at() -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, NAN]])
    assert weighted_sum(scores, torch.tensor([2.0, -1.0])).tolist()[0] == 0
    assert weighted_sum(scores, torch.tensor([2.0, -1.0]))[1].isnan()
    assert weighted_sum(scores, torch.tensor([2.0, 0.0])).tolist() == [2, 6]


def test_group_standardise_closed_form() -> None:
    # 1, 2, 3: mean 2, deviation 1. 10, 30: mean 20, deviation sqrt(200).
    scores = torch.tensor([[1.0], [10.0], [2.0], [30.0], [3.0]])
    z = group_standardise(scores, torch.tensor([5, -1, 5, -1, 5]))[:, 0]
    half = 10 / math.sqrt(200)
    assert z.tolist() == pytest.approx([-1, -half, 0, half, 1])


def test_group_standardise_sums_to_nought_and_ignores_scale_and_offset() -> None:
    scores, groups = rand(12, 3), torch.arange(12) % 4
    z = group_standardise(scores, groups)
    for g in range(4):
        assert torch.allclose(z[groups == g].sum(0), torch.zeros(3), atol=1e-5)
        assert torch.allclose(z[groups == g].std(0), torch.ones(3), atol=1e-5)
    for factor in (1e-6, 1e3):
        assert torch.allclose(group_standardise(scores * factor, groups), z, atol=1e-4)
    assert torch.allclose(group_standardise(scores + 5, groups), z, atol=1e-4)


def test_shuffling_the_rows_permutes_the_result() -> None:
    scores, groups = rand(10, 2), torch.arange(10) % 3
    scores[4, 1] = NAN
    order = torch.randperm(10, generator=torch.Generator().manual_seed(1))
    for rule in (gdpo, cmo):
        got = rule(scores[order], ONES, groups[order])
        assert torch.allclose(got, rule(scores, ONES, groups)[order], atol=1e-6, equal_nan=True)
    front = non_dominated(scores, groups)
    assert torch.equal(non_dominated(scores[order], groups[order]), front[order])


def test_missing_values_leave_the_baseline() -> None:
    with_gap = torch.tensor([[1.0], [NAN], [2.0], [3.0]])
    z = group_standardise(with_gap)[:, 0]
    assert z[1].isnan()
    assert torch.allclose(z[[0, 2, 3]], group_standardise(with_gap[[0, 2, 3]])[:, 0])
    as_nought = group_standardise(with_gap.nan_to_num())[:, 0]  # what is done elsewhere
    assert not torch.allclose(z[[0, 2, 3]], as_nought[[0, 2, 3]], atol=0.1)


@pytest.mark.parametrize("value", [0.3, -1e4, 0.0, 1 / 3])
def test_duplicates_get_nought_and_no_noise(value: float) -> None:
    same = torch.full((7, 2), value)
    assert group_standardise(same).abs().max() == 0
    assert gdpo(same, ONES).abs().max() == 0
    assert cmo(same, ONES).abs().max() == 0
    nearly = same.double() * (1 + 1e-8 * torch.tensor([0, 1, 0, 1, 0, 1, 0])[:, None])
    assert group_standardise(nearly).abs().max() == 0


@pytest.mark.parametrize("rule", [gdpo, cmo])
def test_one_sample_and_one_reward(rule) -> None:
    assert rule(torch.tensor([[3.0, 4.0]]), ONES).tolist() == [0]
    assert rule(torch.tensor([[3.0], [5.0]]), torch.ones(1)).tolist() == pytest.approx(
        [-(0.5**0.5), 0.5**0.5]
    )
    assert rule(torch.zeros(0, 2), ONES).shape == (0,)
    assert rule(torch.full((3, 2), NAN), ONES).isnan().all()
    only = rule(torch.tensor([[1.0, NAN], [2.0, 5.0], [4.0, 6.0]]), ONES)
    assert only.isnan().tolist() == [True, False, False]


def test_a_floor_keeps_seed_noise_from_deciding() -> None:
    noise = torch.tensor([[0.500], [0.501]])
    assert group_standardise(noise)[1, 0].item() == pytest.approx(0.5**0.5, rel=1e-3)
    assert group_standardise(noise, floor=0.1)[1, 0].item() == pytest.approx(0.005, rel=1e-3)


def test_gdpo_closed_form() -> None:
    """Two rewards with z of (-1, 0, 1) and (1, -1, 0) at weights 2 and 1: sums -1, -1, 2, of mean 0
    and deviation sqrt(3)."""
    scores = torch.tensor([[1.0, 300.0], [2.0, 100.0], [3.0, 200.0]])
    got = gdpo(scores, torch.tensor([2.0, 1.0]))
    assert got.tolist() == pytest.approx([x / math.sqrt(3) for x in (-1, -1, 2)])


def test_gdpo_tells_apart_what_a_normalised_sum_makes_equal() -> None:
    """The paper's example: in one group a sample leads by one reward, in the other by both."""
    scores = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    groups = torch.tensor([0, 0, 1, 1])
    summed = group_standardise(scores.sum(1, keepdim=True), groups)[:, 0]
    assert summed[1].item() == pytest.approx(summed[3].item())
    decoupled = gdpo(scores, ONES, groups)
    assert decoupled[3] > decoupled[1] + 0.1


def test_gdpo_does_not_depend_on_a_reward_s_scale_but_a_sum_does() -> None:
    scores, groups = rand(8, 2), torch.arange(8) // 4
    scaled = scores * torch.tensor([10.0, 1.0])
    assert torch.allclose(gdpo(scaled, ONES, groups), gdpo(scores, ONES, groups), atol=1e-5)
    plain = batch_standardise(scores.sum(1))
    assert not torch.allclose(batch_standardise(scaled.sum(1)), plain, atol=0.05)


def test_correlation_weights_closed_form() -> None:
    """Rewards 0 and 1 agree (1), 2 is uncorrelated with both: b = (1/2, 1/2, 0)."""
    scores = torch.tensor(
        [[1.0, 2.0, 1.0], [1.0, 2.0, -1.0], [-1.0, -2.0, 1.0], [-1.0, -2.0, -1.0]]
    )
    expected = torch.softmax(torch.tensor([0.5, 0.5, 1.0]) / 0.5, 0)
    got = correlation_weights(scores, temperature=0.5)
    assert torch.allclose(got, expected, atol=1e-6) and got.sum().item() == pytest.approx(1)


def test_correlation_weights_of_constant_missing_single_and_few() -> None:
    varied = torch.tensor([[1.0, 7.0], [2.0, 7.0], [4.0, 7.0]])
    expected = torch.softmax(torch.tensor([1.0, 0.0]), 0)  # b: 0 with a constant, 1 for it
    assert torch.allclose(correlation_weights(varied), expected, atol=1e-6)
    gap = torch.cat([varied, torch.tensor([[NAN, 9.0], [9.0, NAN]])])
    assert torch.allclose(correlation_weights(gap), expected, atol=1e-6)
    assert correlation_weights(rand(5, 1)).tolist() == [1]
    for few in (varied[:1], varied[:0]):
        assert correlation_weights(few).tolist() == [0.5, 0.5]


def test_cmo_weighs_inside_each_group() -> None:
    scores = torch.cat([rand(6, 3, seed=1), rand(5, 3, seed=2)])
    groups = torch.tensor([0] * 6 + [1] * 5)
    parts = []
    for part in (scores[:6], scores[6:]):
        z = (part - part.mean(0)) / part.std(0)
        correlation = torch.corrcoef(part.T)
        mean = (correlation.sum(1) - 1) / 2
        parts.append(z @ torch.softmax(1 - mean, 0))
    joined = torch.cat(parts)
    expected = (joined - joined.mean()) / joined.std()
    assert torch.allclose(cmo(scores, torch.ones(3), groups), expected, atol=1e-5)


def test_columns_without_weight_change_nothing() -> None:
    scores = rand(6, 3)
    scores[2, 1] = NAN
    weights, kept = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([1.0, 2.0])
    for rule in (gdpo, cmo):
        assert torch.allclose(rule(scores, weights), rule(scores[:, [0, 2]], kept), atol=1e-6)


def test_front_of_known_points() -> None:
    #                a beats c, nothing beats a, b, d; e is a copy of a
    points = torch.tensor([[2.0, 1.0], [1.0, 2.0], [1.0, 1.0], [3.0, 0.0], [2.0, 1.0]])
    assert non_dominated(points).tolist() == [True, True, False, True, True]


def test_front_of_duplicates_one_reward_one_sample_and_missing() -> None:
    assert non_dominated(torch.ones(3, 2)).all()
    assert non_dominated(torch.tensor([[1.0], [3.0], [3.0]])).tolist() == [False, True, True]
    assert non_dominated(torch.tensor([[0.0, 0.0]])).tolist() == [True]
    assert non_dominated(torch.zeros(0, 2)).shape == (0,)
    gap = torch.tensor([[9.0, NAN], [1.0, 1.0], [2.0, 0.0]])
    assert non_dominated(gap).tolist() == [False, True, True]


def test_front_by_the_definition_and_by_groups() -> None:
    scores, groups = (rand(40, 2) * 8).round(), torch.arange(40) % 2

    def beaten(i: int) -> bool:
        return any(
            groups[j] == groups[i]
            and bool((scores[j] >= scores[i]).all())
            and bool((scores[j] > scores[i]).any())
            for j in range(40)
        )

    assert non_dominated(scores, groups).tolist() == [not beaten(i) for i in range(40)]


def test_pairs_closed_form() -> None:
    scores = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.9, 1.2], [1.0, 1.0], [NAN, 0.0]])
    assert dominance_pairs(scores).tolist() == [[0, 1], [2, 1], [3, 1]]
    assert dominance_pairs(scores, margin=1.05).tolist() == [[2, 1]]
    assert dominance_pairs(scores, torch.tensor([0.0, 1.0])).tolist()[:2] == [[0, 4], [1, 4]]
    apart = torch.tensor([0, 1, 0, 1, 1])
    assert dominance_pairs(scores, groups=apart).tolist() == [[3, 1]]


@pytest.mark.parametrize("scores", [torch.ones(4, 3), torch.zeros(0, 2), torch.zeros(1, 2)])
def test_pairs_of_equal_few_or_no_rows(scores: torch.Tensor) -> None:
    assert dominance_pairs(scores).shape == (0, 2)


def test_pairs_agree_with_the_front() -> None:
    scores = (rand(30, 3) * 4).round()
    losers = set(dominance_pairs(scores, margin=-1)[:, 1].tolist())
    assert losers == set((~non_dominated(scores)).nonzero().flatten().tolist())


def test_gradients_and_none_that_is_nan() -> None:
    scores = rand(6, 2).double().requires_grad_()
    groups = torch.tensor([0, 0, 0, 1, 1, 1])
    assert torch.autograd.gradcheck(lambda s: gdpo(s, ONES, groups), (scores,))
    assert torch.autograd.gradcheck(lambda s: cmo(s, ONES, groups), (scores,))
    flat = torch.ones(4, 2, requires_grad=True)
    gdpo(flat, ONES).sum().backward()
    assert torch.isfinite(flat.grad).all()
    gap = torch.tensor([[1.0, NAN], [2.0, 1.0], [4.0, 3.0]], requires_grad=True)
    gdpo(gap, ONES)[1:].square().sum().backward()
    assert torch.isfinite(gap.grad).all()


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be \(N, K\)"):
        group_standardise(torch.zeros(3))
    with pytest.raises(ValueError, match="group numbers for 3 rows"):
        gdpo(torch.zeros(3, 2), ONES, torch.zeros(2, dtype=torch.long))


def test_dominance_counts_those_it_beats_less_those_that_beat_it() -> None:
    # Row 0 beats 1 and 2, row 1 beats 2, row 3 trades with all; row 4 was not measured.
    scores = torch.tensor([[3.0, 3.0], [2.0, 2.0], [1.0, 1.0], [0.0, 9.0], [NAN, 1.0]])
    found = dominance(scores)
    third = 1 / 3
    assert torch.allclose(found[:4], torch.tensor([2 * third, 0.0, -2 * third, 0.0]))
    assert found[4].isnan()
    assert torch.allclose(dominance(scores, margin=2.5)[:3], torch.tensor([third, 0.0, -third]))
    apart = torch.tensor([0, 1, 0, 1, 1])
    assert dominance(scores, groups=apart)[:4].tolist() == [1.0, 0.0, -1.0, 0.0]
    assert dominance(scores[:1]).tolist() == [0.0]


def test_noise_that_a_floor_held_down_does_not_come_up_over_the_batch() -> None:
    noise, groups = 0.01 * rand(64, 2), torch.arange(64) // 4
    for rule in (gdpo, cmo):
        assert rule(noise, ONES, groups).std() == pytest.approx(1, abs=0.01)
        assert rule(noise, ONES, groups, floor=1.0).std() < 0.05
        # What stands far above the floor is as the papers say.
        far = rule(1e4 * noise, ONES, groups, floor=1e-3)
        torch.testing.assert_close(far, rule(noise, ONES, groups), rtol=0.35, atol=0.05)
    assert non_dominated(noise, groups, floor=1.0).all()
    assert non_dominated(torch.tensor([[1.0, 5.0], [2.0, 4.9]]), floor=0.5).tolist() == [0, 1]
