"""Log-determinant gain: closed forms, duplicates, the empty set."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.diversity import log_det, log_det_gain


def diversity(rows: torch.Tensor) -> float:
    unit = torch.nn.functional.normalize(rows.double(), dim=-1)
    return torch.logdet(unit @ unit.T + torch.eye(len(rows), dtype=torch.float64)).item()


def test_closed_forms() -> None:
    x, y = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    assert log_det_gain(x, x[:0]).item() == pytest.approx(math.log(2))  # empty set
    assert log_det_gain(y, x).item() == pytest.approx(math.log(2))  # orthogonal
    assert log_det_gain(x, x).item() == pytest.approx(math.log(1.5))  # copy
    assert log_det_gain(-x, x).item() == pytest.approx(math.log(1.5))  # L holds squares


@pytest.mark.parametrize("copies", [1, 2, 8, 50])
def test_duplicates_are_worth_less_and_less_but_finite(copies: int) -> None:
    x = torch.tensor([[1.0, 2.0, 2.0]])
    gain = log_det_gain(x, x.repeat(copies, 1)).item()
    assert gain == pytest.approx(math.log((copies + 2) / (copies + 1)), rel=1e-3)


def test_it_is_the_difference_of_two_determinants() -> None:
    generator = torch.Generator().manual_seed(0)
    candidates, reference = (torch.randn(n, 5, generator=generator) for n in (4, 7))
    expected = [
        diversity(torch.cat([reference, c[None]])) - diversity(reference) for c in candidates
    ]
    got = log_det_gain(candidates, reference)
    assert got.tolist() == pytest.approx(expected, abs=1e-5)
    assert torch.allclose(log_det_gain(9 * candidates, reference), got, atol=1e-5)
    more = log_det_gain(candidates, torch.cat([reference, candidates[:1]]))
    assert (more <= got + 1e-6).all()  # submodular: a larger set leaves less to gain


def test_missing_embeddings() -> None:
    bad = torch.tensor([[math.nan, 0.0]])
    x = torch.tensor([[1.0, 0.0]])
    assert log_det_gain(torch.cat([bad, x]), x).isnan().tolist() == [True, False]
    assert log_det_gain(x, torch.cat([bad, x])).item() == pytest.approx(math.log(1.5))
    assert log_det_gain(x, bad).item() == pytest.approx(math.log(2))
    assert log_det_gain(x[:0], x).shape == (0,)


def test_gradient() -> None:
    generator = torch.Generator().manual_seed(1)
    a, b = (torch.randn(3, 4, generator=generator).double().requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(log_det_gain, (a, b))


def test_log_det_of_sets_and_the_sum_of_what_each_member_adds() -> None:
    """Copies give log(1 + G), orthogonal ones G log 2, and any set the sum of the gains."""
    copies = torch.ones(1, 4, 3)
    apart = 5 * torch.eye(4)[None]
    assert log_det(copies).item() == pytest.approx(math.log(5), abs=1e-6)
    assert log_det(apart).item() == pytest.approx(4 * math.log(2), abs=1e-6)
    rows = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gains = [sum(log_det_gain(one[i : i + 1], one[:i]).item() for i in range(5)) for one in rows]
    assert log_det(rows).tolist() == pytest.approx(gains)
