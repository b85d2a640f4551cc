"""Sequential Monte Carlo: closed forms, unbiased resampling, weights in log space."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from t2x.functional.smc import (
    categorical,
    difference_potential,
    effective_sample_size,
    final_potential,
    max_potential,
    normalised_log_weights,
    proposal_log_ratio,
    ssp_resampling,
    sum_potential,
    systematic_resampling,
    tempering,
    twisted_log_weight,
)

INF = float("inf")
WEIGHTS = torch.tensor([0.05, 0.4, 0.15, 0.3, 0.1], dtype=torch.float64)


def test_effective_sample_size() -> None:
    """Equal weights count all; one alone counts 1; (1/2, 1/4, 1/4): 1 / (1/4 + 1/8) = 8/3."""
    rows = torch.tensor([[0.0, 0, 0], [0, -INF, -INF], [math.log(2), 0, 0], [-INF, -INF, -INF]])
    got = effective_sample_size(rows)
    assert torch.allclose(got, torch.tensor([3, 1, 8 / 3, 3], dtype=torch.float64))


def test_weights_do_not_overflow() -> None:
    """exp(1e5) overflows; weights of 1e5 and 1e5 + log 3 are 1/4 and 3/4."""
    rows = torch.tensor([[1e5, 1e5 + math.log(3)]], dtype=torch.float64)
    assert normalised_log_weights(rows).exp()[0].tolist() == pytest.approx([0.25, 0.75])
    assert effective_sample_size(rows).item() == pytest.approx(1.6)


@pytest.mark.parametrize("kind", ["difference", "max", "sum"])
def test_potentials_multiply_to_the_tilt(kind: str) -> None:
    """Values 1, 3, 2 on the way and 0.5 at the end, lambda 2: whatever the potentials, the product
    with the last is exp(2 * 0.5). Logs on the way: differences 2, 4, -2; maxima 2, 6, 6; sums 2,
    8, 12."""
    expected = {"difference": [2, 4, -2], "max": [2, 6, 6], "sum": [2, 8, 12]}[kind]
    before, best, total = torch.zeros(1), torch.full((1,), -INF), torch.zeros(1)
    product, got = torch.zeros(1), []
    for value in (torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([2.0])):
        if kind == "difference":
            log = difference_potential(value, before, 2.0)
        elif kind == "max":
            log = max_potential(value, best, 2.0)
        else:
            log = sum_potential(value, total, 2.0)
        before, best, total = value, torch.maximum(best, value), total + value
        product = product + log
        got.append(log.item())
    assert got == expected
    last = final_potential(torch.tensor([0.5]), product, 2.0)
    assert (product + last).item() == pytest.approx(1.0)


def test_tempering() -> None:
    """1.008^10 - 1 = 0.0829..., 1 from step 87: 1.008^87 = 2.0001."""
    assert tempering(0) == 0
    assert tempering(10) == pytest.approx(0.08294, abs=1e-5)
    assert tempering(86) < 1 == tempering(87) == tempering(1000)


def test_proposal_ratio_is_that_of_the_densities() -> None:
    generator = torch.Generator().manual_seed(0)
    noise, shift = torch.randn(4, 2, 3, generator=generator), torch.randn(4, 2, 3)
    base = torch.distributions.Normal(torch.zeros(4, 2, 3), 0.7)
    moved = torch.distributions.Normal(shift, 0.7)
    x = shift + 0.7 * noise
    expected = (base.log_prob(x) - moved.log_prob(x)).flatten(1).sum(1)
    assert torch.allclose(proposal_log_ratio(noise, shift, 0.7).float(), expected, atol=1e-4)


def test_weighted_proposals_have_the_mean_of_the_base() -> None:
    """E_prop[x p_base / p_prop] = E_base[x] = 0 though the proposal's mean is 0.5."""
    noise = torch.randn(200_000, 1, generator=torch.Generator().manual_seed(1))
    shift = torch.full_like(noise, 0.5)
    weights = proposal_log_ratio(noise, shift, 1.0).exp()
    x = (shift + noise)[:, 0].double()
    assert weights.mean().item() == pytest.approx(1, abs=0.01)
    assert (weights * x).mean().item() == pytest.approx(0, abs=0.01)


def test_twisted_weight_is_the_sum_of_its_parts() -> None:
    parts = (torch.tensor([1.0]), torch.tensor([4.0]), torch.tensor([2.5]))
    assert twisted_log_weight(*parts).item() == 2.5


def _systematic(weights: Tensor, generator: torch.Generator) -> Tensor:
    return systematic_resampling(weights, torch.rand(len(weights), 1, generator=generator))


def _ssp(weights: Tensor, generator: torch.Generator) -> Tensor:
    return ssp_resampling(weights, torch.rand(weights.shape, generator=generator))


@pytest.mark.parametrize("resample", [_systematic, _ssp])
def test_resampling_is_unbiased_and_tight(
    resample: Callable[[Tensor, torch.Generator], Tensor],
) -> None:
    """E[children] = k w; each has floor(k w) or ceil(k w); parents come in order."""
    n, k = 40_000, len(WEIGHTS)
    generator = torch.Generator().manual_seed(2)
    parents = resample(WEIGHTS.log().expand(n, k), generator)
    children = torch.nn.functional.one_hot(parents, k).sum(1)
    assert children.double().mean(0).tolist() == pytest.approx((k * WEIGHTS).tolist(), abs=0.015)
    assert bool((children >= (k * WEIGHTS).floor()).all())
    assert bool((children <= (k * WEIGHTS).ceil()).all())
    assert bool((children.sum(1) == k).all())
    assert bool((parents.diff(dim=1) >= 0).all())


@pytest.mark.parametrize("resample", [_systematic, _ssp])
def test_equal_weights_keep_all_and_dead_particles_have_no_children(
    resample: Callable[[Tensor, torch.Generator], Tensor],
) -> None:
    generator = torch.Generator().manual_seed(3)
    rows = torch.tensor([[0.0, 0, 0, 0], [-INF, 0, -INF, 0], [-INF, -INF, -INF, -INF]])
    parents = resample(rows, generator)
    assert parents.tolist() == [[0, 1, 2, 3], [1, 1, 3, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize("resample", [_systematic, _ssp])
def test_a_group_does_not_depend_on_its_neighbours(
    resample: Callable[[Tensor, torch.Generator], Tensor],
) -> None:
    rows = torch.randn(3, 6, generator=torch.Generator().manual_seed(4))
    together = torch.rand(3, 6, generator=torch.Generator().manual_seed(5))
    kernel = ssp_resampling if resample is _ssp else systematic_resampling
    width = 6 if resample is _ssp else 1
    whole = kernel(rows, together[:, :width])
    for i in range(3):
        assert torch.equal(whole[i : i + 1], kernel(rows[i : i + 1], together[i : i + 1, :width]))


def test_categorical_follows_the_softmax() -> None:
    """SVDD's choice: values 0, 1, 2 at alpha 0.5 have weights 1, e^2, e^4 (over their sum)."""
    values = torch.tensor([0.0, 1.0, 2.0]).expand(100_000, 3)
    uniforms = torch.rand(100_000, generator=torch.Generator().manual_seed(6))
    shares = torch.bincount(categorical(values / 0.5, uniforms), minlength=3) / 100_000
    total = 1 + math.e**2 + math.e**4
    assert shares.tolist() == pytest.approx(
        [v / total for v in (1, math.e**2, math.e**4)], abs=4e-3
    )


def test_the_estimate_of_resampled_particles_is_the_weighted_mean() -> None:
    """A mutation (weights taken as they are, not as logs) shows: groups of a tilted Gaussian,
    r = x, lambda 1 on N(0, 1): the mean is 1 but for a bias of e / k = 0.005 at k = 512."""
    x = torch.randn(500, 512, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    generator = torch.Generator().manual_seed(8)
    for parents in (_systematic(x, generator), _ssp(x, generator)):
        assert x.gather(1, parents).mean().item() == pytest.approx(1, abs=0.02)
