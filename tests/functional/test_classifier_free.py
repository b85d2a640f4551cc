"""Guidance of predictions: closed forms and identities."""

from __future__ import annotations

import pytest
import torch

from t2x.functional.classifier_free import classifier_free, three_way, unconditional_for

U, C, WORDS = (torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0, 0.0]]), torch.tensor([[0.0, 4.0]]))


def test_closed_form():
    """u + 2.5 (c - u): 1 + 2.5 * 2 = 6 and -2 + 2.5 * 2 = 3."""
    assert torch.equal(classifier_free(U, C, 2.5), torch.tensor([[6.0, 3.0]]))
    assert torch.equal(classifier_free(U, C, 1.0), C)


def test_three_way_closed_form():
    """2 o + (1 - 2 - 3) u + 3 c: 0 - 4 + 9 = 5 and 8 + 8 + 0 = 16."""
    assert torch.equal(three_way(U, WORDS, C, 2.0, 3.0), torch.tensor([[5.0, 16.0]]))


def test_three_way_of_one_prompt_is_classifier_free_at_the_sum():
    assert torch.allclose(three_way(U, C, C, 2.0, 3.0), classifier_free(U, C, 5.0))
    assert torch.allclose(three_way(U, WORDS, C, 0.0, 3.0), classifier_free(U, C, 3.0))
    assert torch.allclose(three_way(U, WORDS, C, 3.0, 0.0), classifier_free(U, WORDS, 3.0))


def test_three_way_shifts_the_score_of_a_gaussian():
    """Scores of N(m, 1) are m - x: of the three-way mixture it is
    w1 m1 + (1 - w1 - w2) m0 + w2 m2 - x, so at m0 = 0 the mode lies at w1 m1 + w2 m2."""
    x = torch.tensor([2 * 1.5 + 3 * -0.5])
    found = three_way(0.0 - x, 1.5 - x, -0.5 - x, 2.0, 3.0)
    assert torch.allclose(found, torch.zeros(1), atol=1e-6)


@pytest.mark.parametrize("scale", [1.1, 3.0, 9.0])
def test_the_unconditional_prediction_that_gives_a_target(scale):
    target = three_way(U, WORDS, C, 2.0, 3.0)
    found = unconditional_for(target, C, scale)
    assert torch.allclose(classifier_free(found, C, scale), target, atol=1e-5)
    assert torch.allclose(unconditional_for(classifier_free(U, C, scale), C, scale), U, atol=1e-5)


def test_no_unconditional_prediction_matters_at_scale_one():
    with pytest.raises(ZeroDivisionError):
        float(unconditional_for(1.0, 2.0, 1.0))  # type: ignore[arg-type]


def test_gradients_pass():
    inputs = tuple(torch.randn(2, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    assert torch.autograd.gradcheck(lambda u, o, c: three_way(u, o, c, 2.0, 3.0), inputs)
    assert torch.autograd.gradcheck(lambda t, c, _: unconditional_for(t, c, 4.0), inputs)
