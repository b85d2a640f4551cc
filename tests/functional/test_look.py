"""What a picture looks like, on pictures whose numbers are known."""

from __future__ import annotations

import pytest
import torch

from t2x.functional.look import LOOK, picture_look


def look_of(picture: torch.Tensor) -> dict[str, float]:
    return dict(zip(LOOK, picture_look(picture[None])[0].tolist(), strict=True))


def test_a_picture_in_two_halves() -> None:
    """Left half (1, 0.5, 0), right half black: each mean is half the colour, each spread too (two
    equal shares of a and 0 deviate by a / 2); colourfulness 1 on one half; brightness changes by
    0.5 in one of 63 steps to the right."""
    picture = torch.zeros(3, 64, 64)
    picture[:, :, :32] = torch.tensor([1.0, 0.5, 0.0])[:, None, None]
    found = look_of(picture)
    wanted = dict(zip(LOOK, (0.5, 0.25, 0, 0.5, 0.25, 0, 0.5, 0.5 / 63), strict=True))
    assert found == pytest.approx(wanted, abs=2e-4)  # 1e-4 is what keeps the root smooth at 0
    large = picture.repeat_interleave(4, 1).repeat_interleave(2, 2)
    assert look_of(large) == pytest.approx(found, abs=1e-6)


def test_its_gradient_is_that_of_the_differences_and_finite_on_one_colour() -> None:
    stream = torch.Generator().manual_seed(0)
    pixels = torch.rand(2, 3, 64, 64, generator=stream, dtype=torch.float64, requires_grad=True)
    way = torch.rand(2, 3, 64, 64, generator=stream, dtype=torch.float64)
    weights = torch.rand(8, generator=stream, dtype=torch.float64)

    def value(at: float) -> torch.Tensor:
        return torch.as_tensor((picture_look(pixels + at * way) @ weights).sum())

    (gradient,) = torch.autograd.grad(value(0.0), pixels)
    step = 1e-7
    slope = float((value(step) - value(-step)).detach()) / (2 * step)
    assert float((gradient * way).sum()) == pytest.approx(slope, rel=1e-4)
    flat = torch.full((1, 3, 8, 8), 0.5, requires_grad=True)
    picture_look(flat).sum().backward()
    assert flat.grad is not None and bool(torch.isfinite(flat.grad).all())
