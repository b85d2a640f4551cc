"""Equations of asking: closed forms and identities."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.elicitation import (
    answer_distribution,
    expected_information_gain,
    question_utility,
    visual_influence,
)

FLOAT64 = torch.float64


def test_answers_weigh_what_their_intents_weigh() -> None:
    """Weights 1, 2, 5 of answers 0, 2, 2 out of 3: 1/8, 0, 7/8."""
    p = answer_distribution(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 2, 2]), 3)
    assert p.tolist() == [0.125, 0.0, 0.875]


def test_no_intent_is_not_measured() -> None:
    assert answer_distribution(torch.zeros(2), torch.tensor([0, 1]), 2).isnan().all()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_n_alike_answers_tell_ln_n(n: int) -> None:
    p = torch.full((n,), 1 / n, dtype=FLOAT64)
    assert expected_information_gain(p).item() == pytest.approx(math.log(n), abs=1e-12)


def test_probabilities_need_not_sum_to_one() -> None:
    """-(1/4 ln 1/4 + 3/4 ln 3/4) = ln 4 - 3/4 ln 3, whatever the scale; the paper's own sum over
    0.1 and 0.3 is another number."""
    expected = math.log(4) - 0.75 * math.log(3)
    for scale in (0.4, 1.0, 7.0):
        p = torch.tensor([0.25, 0.75], dtype=FLOAT64) * scale
        assert expected_information_gain(p).item() == pytest.approx(expected)
    paper = -sum(q * math.log(q) for q in (0.1, 0.3))
    assert abs(paper - expected) > 0.02


def test_four_that_quarter_tell_twice_as_much_as_two_that_halve() -> None:
    four = expected_information_gain(torch.full((4,), 0.25, dtype=FLOAT64))
    two = expected_information_gain(torch.full((2,), 0.5, dtype=FLOAT64))
    assert (four / two).item() == pytest.approx(2)


def test_gain_is_the_mutual_information_of_intent_and_answer() -> None:
    """H(intent) - sum_a p(a) H(intent | a), for weights 1, 1, 2 and answers 0, 1, 1: 1.5 ln 2 less
    the entropy of (1/3, 2/3) times 3/4."""
    weights, answers = torch.tensor([1.0, 1.0, 2.0], dtype=FLOAT64), torch.tensor([0, 1, 1])
    rest = -(math.log(1 / 3) / 3 + 2 * math.log(2 / 3) / 3)
    expected = 1.5 * math.log(2) - 0.75 * rest
    p = answer_distribution(weights, answers, 2)
    assert expected_information_gain(p).item() == pytest.approx(expected)


def test_influence_in_units_of_seeds() -> None:
    """Options at right angles (distance 1), seeds 60 degrees apart (distance 1/2): 2. The other
    way round: 1/2."""
    half, root = 0.5, math.sqrt(0.75)
    one = torch.tensor([[1.0, 0, 0, 0], [half, root, 0, 0]])
    two = torch.tensor([[0, 0, 1.0, 0], [0, 0, half, root]])
    features = torch.stack([one, two])  # (2 options, 2 seeds, 4)
    assert visual_influence(features).item() == pytest.approx(2)
    assert visual_influence(features.transpose(0, 1)).item() == pytest.approx(0.5)
    assert visual_influence(features * 7).item() == pytest.approx(2)


def test_options_that_look_alike_have_no_influence() -> None:
    seeds = torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(0))
    assert visual_influence(seeds.expand(4, 3, 5)).item() == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("shape", [(1, 3, 2), (3, 1, 2)])
def test_influence_needs_two_options_and_two_seeds(shape: tuple[int, ...]) -> None:
    assert visual_influence(torch.rand(shape)).isnan()


def test_seeds_that_change_nothing_give_no_unit() -> None:
    assert visual_influence(torch.eye(2)[:, None].expand(2, 2, 2)).isnan()


def test_utility_counts_what_is_not_measured_as_one() -> None:
    gain, influence = torch.tensor([2.0, 2.0]), torch.tensor([0.5, math.nan])
    assert question_utility(gain, influence).tolist() == [1.0, 2.0]
