"""Running statistics: closed forms, merging, missing values, checkpoints."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from t2x.functional.moments import Moments, merge_moments, moments, spread, standardise

NAN = float("nan")


def test_closed_form_and_missing_values() -> None:
    # Column 0: 1, 3: mean 2, m2 = 1 + 1. Column 1: 4 alone. Column 2: nothing.
    got = moments(torch.tensor([[1.0, NAN, NAN], [3.0, 4.0, NAN]]))
    assert got.measured.tolist() == [2, 1, 0] and got.missing.tolist() == [0, 1, 2]
    assert got.mean.tolist() == [2, 4, 0] and got.m2.tolist() == [2, 0, 0]


@pytest.mark.parametrize("cuts", [(), (3,), (1, 2, 30), (0, 0, 17), (40,)])
def test_parts_merge_to_the_whole_in_any_cut(cuts: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, 3, generator=generator) * torch.tensor([1.0, 100.0, 0.01]) + 1000
    scores[::7, 1] = NAN
    merged = moments(scores[:0])
    for part in torch.tensor_split(scores, cuts):
        merged = merge_moments(merged, moments(part))
    whole = moments(scores)
    for a, b in zip(merged, whole, strict=True):
        assert torch.allclose(a, b, rtol=1e-9, atol=0)
    column = scores[~scores[:, 1].isnan(), 1].double()
    assert whole.mean[1].item() == pytest.approx(column.mean().item(), rel=1e-12)
    assert whole.m2[1].item() == pytest.approx(column.var().item() * (len(column) - 1), rel=1e-9)


def test_a_part_counts_by_its_size() -> None:
    """Means of 1 value 0 and of 3 values 4: 3, not the 2 of two equal parts."""
    merged = merge_moments(moments(torch.zeros(1, 1)), moments(torch.full((3, 1), 4.0)))
    assert merged.mean.item() == 3 and merged.measured.item() == 4
    assert merged.m2.item() == pytest.approx(9 + 3 * 1)


def test_merging_commutes() -> None:
    a, b = moments(torch.tensor([[1.0], [2.0]])), moments(torch.tensor([[5.0], [NAN], [9.0]]))
    for x, y in zip(merge_moments(a, b), merge_moments(b, a), strict=True):
        assert torch.allclose(x, y, rtol=1e-12)


def test_large_offsets_keep_small_deviations() -> None:
    """A sum of squares in float32 would give a variance of 0 or less here."""
    scores = torch.tensor([[1e4], [1e4 + 0.01], [1e4 + 0.02]])
    parts = [moments(row[None]) for row in scores]
    merged = merge_moments(merge_moments(parts[0], parts[1]), parts[2])
    assert merged.m2.item() == pytest.approx(scores.double().var().item() * 2, rel=1e-6)


def test_a_checkpoint_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first, second = torch.rand(5, 2), torch.rand(7, 2)
    torch.save(moments(first)._asdict(), tmp_path / "m.pt")
    loaded = Moments(**torch.load(tmp_path / "m.pt", weights_only=True))
    for a, b in zip(
        merge_moments(loaded, moments(second)), moments(torch.cat([first, second])), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-12)


def test_standardise_closed_form_and_float32() -> None:
    # Mean 2, sample deviation sqrt(2): 3 -> 1 / sqrt(2).
    running = moments(torch.tensor([[1.0], [3.0]]))
    z = standardise(torch.tensor([[3.0], [2.0], [NAN]]), running)
    assert z.dtype == torch.float32
    assert z[0].item() == pytest.approx(0.5**0.5) and z[1].item() == 0 and z[2].isnan()


def test_a_batch_equals_its_singles_and_scale_drops_out() -> None:
    scores = torch.rand(6, 2)
    running = moments(torch.rand(50, 2))
    whole = standardise(scores, running)
    assert torch.equal(whole, torch.cat([standardise(row[None], running) for row in scores]))
    bigger = Moments(running.measured, running.missing, running.mean * 1000, running.m2 * 1e6)
    assert torch.allclose(standardise(scores * 1000, bigger), whole, atol=1e-4)


def test_no_spread_gives_nought_and_too_few_values_nan() -> None:
    flat = moments(torch.full((4, 1), 0.3))
    assert standardise(torch.tensor([[0.3], [0.9]]), flat).tolist() == [[0], [0]]
    for few in (torch.zeros(0, 1), torch.zeros(1, 1)):
        assert standardise(torch.ones(1, 1), moments(few)).isnan().all()


def test_rounding_is_no_spread_and_a_floor_holds_noise_down() -> None:
    noisy = torch.tensor([[100.0], [100.00001]])
    assert noisy[0] != noisy[1]
    assert standardise(noisy, moments(noisy)).abs().max() == 0
    small = torch.tensor([[0.0], [0.02]])
    z = standardise(small, moments(small), floor=1.0)
    assert z.flatten().tolist() == pytest.approx([-0.01, 0.01])


def test_spread_is_the_deviation_its_floor_or_infinite() -> None:
    """sqrt(4) = 2; sqrt(0.01) = 0.1 below the floor of 0.5; no variance; one of rounding alone."""
    variance = torch.tensor([4.0, 0.01, 0.0, 1e-20])
    largest = torch.tensor([3.0, 1.0, 1.0, 100.0])
    assert spread(variance, largest, floor=0.5).tolist() == [2.0, 0.5, math.inf, math.inf]
