"""Fits of preference models on features whose truth is known."""

from __future__ import annotations

import torch

from t2x.functional.preferences import ideal_point, ideal_point_reward
from t2x.scoring.preference_fit import fit_linear, fit_prototypes, fit_weights


def _draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_linear_fit_finds_the_direction_that_chose() -> None:
    """Items are chosen by their first two numbers; the weight of the others comes out small."""
    a, b = _draw(400, 5, seed=0), _draw(400, 5, seed=1)
    truth = torch.tensor([3.0, -2.0, 0.0, 0.0, 0.0])
    better = ((a - b) @ truth > 0).unsqueeze(1)
    weight = fit_linear(torch.where(better, a, b), torch.where(better, b, a))
    similarity = torch.cosine_similarity(weight.float(), truth, dim=0)
    assert float(similarity) > 0.98
    # A control: choices turned round give the opposite.
    turned = fit_linear(torch.where(better, b, a), torch.where(better, a, b))
    assert torch.allclose(turned, -weight, atol=1e-6)


def test_linear_fit_of_one_choice_has_a_closed_form_condition() -> None:
    """One choice of difference d: w = t d with 2 p t = sigmoid(-t |d|^2) at penalty p."""
    d = torch.tensor([[0.6, 0.8]])
    weight = fit_linear(d, torch.zeros(1, 2), penalty=0.1)
    t = float(weight @ d[0].double())
    assert abs(0.2 * t - float(torch.sigmoid(torch.tensor(-t)))) < 1e-6
    assert torch.allclose(weight, t * d[0].double(), atol=1e-6)


def test_weights_of_a_user_from_six_choices() -> None:
    prototypes = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    chosen = torch.tensor([[0.1, 1.0], [0.0, 0.9], [0.2, 1.1]] * 2)
    rejected = torch.tensor([[1.0, 0.1], [-1.0, 0.2], [0.9, -0.1]] * 2)
    weights = fit_weights(chosen, rejected, prototypes, scale=10.0)
    assert abs(float(weights.sum()) - 1) < 1e-9
    assert int(weights.argmax()) == 1
    assert torch.equal(weights, fit_weights(chosen, rejected, prototypes, scale=10.0))
    # A strong pull towards all alike leaves all alike.
    even = fit_weights(chosen, rejected, prototypes, scale=10.0, penalty=1e6)
    assert torch.allclose(even, torch.full((3,), 1 / 3, dtype=torch.float64), atol=1e-4)


def test_prototypes_explain_users_who_disagree() -> None:
    """Two users choose oppositely on the same items: one taste for all could not be right."""
    a, b = _draw(60, 4, seed=2), _draw(60, 4, seed=3)
    better = (a[:, :1] > b[:, :1]).repeat(2, 1)
    better[60:] = ~better[60:]
    a, b = a.repeat(2, 1), b.repeat(2, 1)
    users = torch.arange(120) // 60
    chosen, rejected = torch.where(better, a, b), torch.where(better, b, a)

    def right(count: int) -> float:
        project, prototypes, weights = fit_prototypes(
            chosen, rejected, users, count=count, width=2, scale=5.0
        )
        ideal = ideal_point(prototypes, weights[users])
        items = (x.double() @ project for x in (chosen, rejected))
        first, second = (ideal_point_reward(x, ideal) for x in items)
        return float((first > second).float().mean())

    assert right(2) > 0.9
    assert right(1) < 0.6


def test_fits_do_not_depend_on_the_state_of_the_generator() -> None:
    a, b, users = _draw(20, 4, seed=4), _draw(20, 4, seed=5), torch.arange(20) % 2
    fits = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        fits.append(fit_prototypes(a, b, users, count=2, width=2, scale=5.0))
    assert all(torch.equal(x, y) for x, y in zip(*fits, strict=True))
