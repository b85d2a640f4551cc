"""LPIPS in closed form, and its gradient where features are zero."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.perceptual import lpips_distance, unit_channels


def test_two_layers_by_hand() -> None:
    """Layer 1, one place: (3, 4) is (.6, .8) and (0, 2) is (0, 1): .36 w1 + .04 w2. Layer 2, two
    places, of which one is equal and one opposite: (0 + 4) / 2 w.
    """
    a = [torch.tensor([3.0, 4.0]).view(1, 2, 1, 1), torch.tensor([5.0, -1.0]).view(1, 1, 1, 2)]
    b = [torch.tensor([0.0, 2.0]).view(1, 2, 1, 1), torch.tensor([1.0, 7.0]).view(1, 1, 1, 2)]
    weights = [torch.tensor([1.0, 10.0]), torch.tensor([0.5])]
    assert lpips_distance(a, b, weights).tolist() == pytest.approx([0.36 + 0.4 + 1.0])
    assert lpips_distance(a, a, weights).tolist() == [0.0]
    assert torch.allclose(lpips_distance(a, b, weights), lpips_distance(b, a, weights))


def test_the_size_of_features_plays_no_part() -> None:
    a, b = (torch.rand(2, 3, 4, 4, generator=torch.Generator().manual_seed(s)) for s in (0, 1))
    weights = [torch.tensor([1.0, 2.0, 3.0])]
    assert torch.allclose(lpips_distance([9 * a], [b], weights), lpips_distance([a], [b], weights))


def test_zero_channels_have_a_gradient_of_zero() -> None:
    x = torch.zeros(1, 2, 1, 2)
    x[..., 1] = 1.0
    x.requires_grad_()
    unit = unit_channels(x)
    assert unit[0, :, 0].tolist() == [[0.0, pytest.approx(math.sqrt(0.5))]] * 2
    unit[:, 0].sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert x.grad[..., 1].abs().sum() > 0
