"""Answer probabilities in closed form."""

from __future__ import annotations

import math

import torch

from t2x.functional.answers import answer_probability


def test_share_of_the_vocabulary() -> None:
    """Logits log(1), log(2), log(5): probabilities 1/8, 2/8, 5/8."""
    logits = torch.tensor([[0.0, math.log(2), math.log(5)], [0.0, 0.0, 0.0]], dtype=torch.float64)
    got = answer_probability(logits, [1])
    assert torch.allclose(got, torch.tensor([2 / 8, 1 / 3], dtype=torch.float64), atol=1e-12)


def test_spellings_are_added() -> None:
    logits = torch.tensor([[0.0, math.log(2), math.log(5)]], dtype=torch.float64)
    assert abs(float(answer_probability(logits, [0, 1])) - 3 / 8) < 1e-12
    assert abs(float(answer_probability(logits, [0, 1, 2])) - 1) < 1e-12


def test_against_leaves_the_rest_out() -> None:
    """P(1) / (P(1) + P(2)) = 2 / 7; the third logit has no say."""
    logits = torch.tensor([[9.0, math.log(2), math.log(5)]], dtype=torch.float64)
    assert abs(float(answer_probability(logits, [1], [2])) - 2 / 7) < 1e-12
    assert answer_probability(torch.tensor([[0.0, 900.0, -900.0]]), [1], [2]) == 1  # no overflow


def test_half_precision_is_reduced_in_single() -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0)).half()
    got = answer_probability(logits, [3])
    assert got.dtype == torch.float32
    assert torch.allclose(got, logits.float().softmax(-1)[:, 3], atol=1e-7)


def test_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: answer_probability(x, [1, 2]), (logits,))
    assert torch.autograd.gradcheck(lambda x: answer_probability(x, [1], [0, 4]), (logits,))
