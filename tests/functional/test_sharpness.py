"""Blur and noise: closed forms, direction, gradients, pictures that hold nothing."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from t2x.functional.sharpness import blur_effect, luma, noise_level


def step(height: int = 16, width: int = 40) -> torch.Tensor:
    picture = torch.zeros(1, height, width)
    picture[..., width // 2 :] = 1
    return picture


def blurred(pictures: torch.Tensor, times: int) -> torch.Tensor:
    for _ in range(times):
        pictures = F.avg_pool2d(F.pad(pictures[:, None], (1, 1, 1, 1), mode="replicate"), 3, 1)[
            :, 0
        ]
    return pictures


def texture(count: int = 3) -> torch.Tensor:
    return torch.rand(count, 24, 32, generator=torch.Generator().manual_seed(0))


def test_luma_of_primaries() -> None:
    colours = torch.eye(3).view(3, 3, 1, 1)
    assert luma(colours).flatten().tolist() == pytest.approx([0.299, 0.587, 0.114])
    assert luma(torch.ones(2, 5, 3, 4, 6)).shape == (2, 5, 4, 6)


@pytest.mark.parametrize("length", [3, 9])
@pytest.mark.parametrize("turned", [False, True])
def test_an_isolated_step_gives_one_over_the_length(length: int, turned: bool) -> None:
    """|D| is 1 at one place, |D'| 1/length there, so V = 1 - 1/length and b = 1/length."""
    picture = step().transpose(-1, -2) if turned else step()
    assert blur_effect(picture, length=length).item() == pytest.approx(1 / length, rel=1e-5)


def test_a_ramp_of_the_filter_s_length_closed_form() -> None:
    """Nine differences of 1/9; the mean makes a triangle of peak 1/9 of them, k/81 for k = 1 to 9
    and back. V is 1/9 - |D'| inside, so b = (45 + 36 - 2 (1 + 2 + 3 + 4)) / 81 = 61 / 81."""
    picture = torch.zeros(1, 4, 60)
    picture[..., 20:29] = torch.arange(1, 10) / 9
    picture[..., 29:] = 1
    assert blur_effect(picture).item() == pytest.approx(61 / 81, rel=1e-5)


def test_blur_raises_it_and_contrast_does_not_matter() -> None:
    pictures = texture()
    levels = torch.stack([blur_effect(blurred(pictures, n)) for n in range(4)])
    assert (levels.diff(dim=0) > 0.02).all() and levels.min() >= 0 and levels.max() <= 1
    assert torch.allclose(blur_effect(0.3 * pictures + 0.4), levels[0], atol=1e-4)


def test_the_worse_axis_counts() -> None:
    sideways = F.avg_pool2d(texture()[:, None], (1, 5), 1, (0, 2))[:, 0]
    up = blur_effect(sideways.transpose(-1, -2))
    assert torch.allclose(blur_effect(sideways), up, atol=1e-6)
    assert (blur_effect(sideways) > blur_effect(texture()) + 0.1).all()


def test_nothing_to_measure_is_nan() -> None:
    assert blur_effect(torch.full((2, 8, 8), 0.5)).isnan().all()
    assert blur_effect(torch.rand(1, 1, 1)).isnan().all()
    assert noise_level(torch.rand(1, 1, 9)).isnan().all()
    mixed = torch.cat([step(8, 8), torch.zeros(1, 8, 8)])
    assert blur_effect(mixed).isnan().tolist() == [False, True]


@pytest.mark.parametrize("sigma", [0.01, 0.05])
def test_noise_is_recovered_through_edges(sigma: float) -> None:
    generator = torch.Generator().manual_seed(2)
    base = step(128, 128).repeat(2, 1, 1)
    noisy = base + sigma * torch.randn(base.shape, generator=generator)
    assert noise_level(noisy).tolist() == pytest.approx([sigma] * 2, rel=0.06)
    assert noise_level(base).abs().max() == 0
    assert noise_level(noisy[:, :127, :125]).shape == (2,)


def test_a_batch_is_its_singles_and_gradients_hold() -> None:
    pictures = texture().double().requires_grad_()
    for measure in (blur_effect, noise_level):
        whole = measure(pictures)
        assert torch.allclose(whole, torch.cat([measure(p[None]) for p in pictures]), atol=1e-12)
        assert torch.autograd.gradcheck(measure, (pictures[:1, :6, :7],), eps=1e-7, atol=1e-5)
