"""The quality score: falls with blur and noise, closed form, gradients, nothing to measure."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.functional.sharpness import blur_effect, luma, noise_level
from t2x.registry import load_reward

PROMPTS = ["x"] * 3


def boxes(count: int = 3) -> Tensor:
    """Clean pictures of coloured rectangles, (count, 3, 64, 64)."""
    generator = torch.Generator().manual_seed(4)
    pictures = torch.ones(count, 3, 64, 64) * 0.9
    for picture in pictures:
        for _ in range(4):
            x, y = torch.randint(0, 44, (2,), generator=generator).tolist()
            picture[:, y : y + 18, x : x + 18] = torch.rand(3, 1, 1, generator=generator)
    return pictures


def test_blur_and_noise_lower_it_step_by_step() -> None:
    reward, clean = load_reward("quality"), boxes()
    blurred, noisy = [clean], [clean]
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(5))
    for sigma in (0.03, 0.1):
        last = blurred[-1]
        blurred.append(F.avg_pool2d(F.pad(last, (2, 2, 2, 2), mode="replicate"), 5, 1))
        noisy.append((clean + sigma * noise).clamp(0, 1))
    for series in (blurred, noisy):
        scores = torch.stack([reward.score(PROMPTS, media) for media in series])
        assert (scores.diff(dim=0) < -0.03).all()
        assert scores.min() >= 0 and scores.max() <= 1


def test_it_is_the_product_that_it_says() -> None:
    media = boxes() * 0.9 + 0.05 * torch.rand(3, 3, 64, 64)
    grey = luma(media)
    expected = (1 - blur_effect(grey)) * torch.exp(-noise_level(grey) / 0.1)
    assert torch.allclose(load_reward("quality").score(["", "x", "y"], media), expected, atol=1e-6)


def test_one_colour_and_bad_pixels_are_nan() -> None:
    media = boxes()
    media[0] = 0.5
    media[1, 0, 0, 0] = math.nan
    assert load_reward("quality").score(PROMPTS, media).isnan().tolist() == [True, True, False]


def test_sizes_may_differ() -> None:
    reward, media = load_reward("quality"), boxes()
    whole = reward.score(PROMPTS, media)
    items = [media[:1], media[1:2, :, :40], media[2:, :, :, :33]]
    listed = reward.score(PROMPTS, items)
    assert listed[0].item() == pytest.approx(whole[0].item(), abs=1e-6)
    singles = torch.cat([reward.score(["x"], item) for item in items])
    assert torch.allclose(listed, singles, atol=1e-6) and singles.shape == (3,)
