"""Neighbour cosine and aligned differences: closed forms, what is taken out and what is not."""

from __future__ import annotations

import math

import pytest
import torch

from t2x.functional.motion import aligned_difference, border_shift, neighbour_cosine


def scene(seed: int = 0, size: int = 48) -> torch.Tensor:
    return torch.rand(size, size, generator=torch.Generator().manual_seed(seed))


def test_neighbour_cosine_closed_form() -> None:
    # Angles 0, 60, 90 degrees: mean of cos 60 and cos 30.
    angles = torch.tensor([0.0, 60.0, 90.0]).deg2rad()
    frames = torch.stack([angles.cos(), angles.sin()], -1) * torch.tensor([[1.0], [5.0], [0.1]])
    assert neighbour_cosine(frames).item() == pytest.approx((0.5 + math.sqrt(3) / 2) / 2)
    assert neighbour_cosine(frames[:1]).isnan()


@pytest.mark.parametrize("move", [(0, 0), (3, 0), (-2, 4), (4, -4)])
def test_a_pan_is_found_and_taken_out(move: tuple[int, int]) -> None:
    large = scene(size=60)
    down, right = move
    first = large[6:54, 6:54]
    second = large[6 - down : 54 - down, 6 - right : 54 - right]
    assert border_shift(first[None], second[None], reach=5).tolist() == [[down, right]]
    assert aligned_difference(first[None], second[None], reach=5).item() == pytest.approx(0)
    if move != (0, 0):
        assert (first - second).abs().mean() > 0.2


def test_a_pan_beyond_reach_stays() -> None:
    large = scene(size=60)
    first, second = large[:48, :48], large[8:56, :48]
    assert aligned_difference(first[None], second[None], reach=5).item() > 0.2


def test_it_is_the_least_error_over_the_border() -> None:
    first, second = scene(1, 20), scene(2, 20)
    ring = torch.ones(20, 20, dtype=torch.bool)
    ring[5:15, 5:15] = False
    best, where = math.inf, (0, 0)
    for down in range(-3, 4):
        for right in range(-3, 4):
            errors = [
                (first[y, x] - second[y + down, x + right]).item() ** 2
                for y in range(20)
                for x in range(20)
                if ring[y, x] and 0 <= y + down < 20 and 0 <= x + right < 20
            ]
            mean = sum(errors) / len(errors)
            if mean < best:
                best, where = mean, (down, right)
    assert border_shift(first[None], second[None], reach=3).tolist() == [list(where)]


def test_an_object_on_a_plain_border_moves_the_score_and_not_the_camera() -> None:
    """A square of side 6 moves by 2: 2 x 6 pixels appear and 2 x 6 vanish of 24 x 24."""
    first, second = torch.ones(24, 24), torch.ones(24, 24)
    first[9:15, 8:14], second[9:15, 10:16] = 0, 0
    assert border_shift(first[None], second[None], reach=4).tolist() == [[0, 0]]
    got = aligned_difference(first[None], second[None], reach=4).item()
    assert got == pytest.approx(24 / 576)


def test_gradient_with_the_shift_held() -> None:
    a, b = scene(3, 9).double()[None].requires_grad_(), scene(4, 9).double()[None].requires_grad_()
    check = torch.autograd.gradcheck
    assert check(lambda x, y: aligned_difference(x, y, reach=1), (a, b), eps=1e-7, atol=1e-5)
