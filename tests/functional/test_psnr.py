"""PSNR inside a mask."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.psnr import MAX_PSNR, masked_psnr


def test_a_constant_difference_has_a_closed_form_and_the_rest_does_not_count() -> None:
    first = torch.rand(2, 3, 8, 8) * 0.5
    mask = torch.zeros(2, 1, 8, 8)
    mask[..., :4] = 1
    second = first + torch.tensor([0.1, 0.01]).view(2, 1, 1, 1)
    second[..., 4:] = 1
    assert masked_psnr(first, second, mask).tolist() == pytest.approx([20.0, 40.0], abs=1e-3)


def test_equal_pictures_and_empty_masks() -> None:
    picture, mask = torch.rand(1, 3, 4, 4), torch.ones(1, 1, 4, 4)
    assert float(masked_psnr(picture, picture, mask)) == pytest.approx(MAX_PSNR, abs=0.01)
    assert math.isnan(float(masked_psnr(picture, picture, 0 * mask)))
