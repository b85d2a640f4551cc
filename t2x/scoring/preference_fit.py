"""Fits of small preference models on frozen features: full batch, in float64, from fixed starts, so
that the same choices always give the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from t2x.functional.preferences import ideal_point, ideal_point_reward
from t2x.functional.scores import bradley_terry_loss

__all__ = ["fit_linear", "fit_prototypes", "fit_weights"]

_STEPS = 200


def fit_linear(chosen: Tensor, rejected: Tensor, *, penalty: float = 1e-3) -> Tensor:
    """Weights of a linear Bradley-Terry reward from the features (M, D) of chosen and rejected
    items: (D,) float64.

    ``penalty`` times the squared norm of the weights keeps them finite where the choices can be
    told apart without error; with it the loss is strictly convex, so there is one answer.
    """
    difference = (chosen - rejected).double()
    weight = torch.zeros(difference.shape[-1], dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        scores = difference @ weight
        return bradley_terry_loss(scores, torch.zeros_like(scores)).mean() + penalty * (
            weight.square().sum()
        )

    _minimise(loss, [weight])
    return weight.detach()


def fit_weights(
    chosen: Tensor, rejected: Tensor, prototypes: Tensor, *, scale: float, penalty: float = 1e-2
) -> Tensor:
    """A user's weights over prototypes (K, D) from a handful of choices between items (M, D): (K,)
    float64 on the simplex.

    ``penalty`` on the logits pulls a user of few choices towards all prototypes alike.
    """
    chosen, rejected, prototypes = chosen.double(), rejected.double(), prototypes.double()
    logits = torch.zeros(len(prototypes), dtype=torch.float64, requires_grad=True)

    def loss() -> Tensor:
        ideal = ideal_point(prototypes, logits.softmax(-1)[None])
        margins = ideal_point_reward(chosen, ideal) - ideal_point_reward(rejected, ideal)
        fit = bradley_terry_loss(scale * margins, torch.zeros_like(margins)).mean()
        return fit + penalty * logits.square().sum()

    _minimise(loss, [logits])
    return logits.detach().softmax(-1)


def fit_prototypes(
    chosen: Tensor,
    rejected: Tensor,
    users: Tensor,
    *,
    count: int,
    width: int,
    scale: float,
    penalty: float = 1e-3,
    seed: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Item map (D, width), prototypes (count, width) and weights (U, count) that best explain the
    choices of ``users`` (M,), numbered from 0, between items (M, D). All float64.

    Starts from an orthogonal map and prototypes drawn with ``seed``.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen, rejected = chosen.double(), rejected.double()
    shape = (chosen.shape[-1], width)
    table = torch.linalg.qr(torch.randn(shape, generator=generator, dtype=torch.float64))[0]
    start = torch.randn(count, width, generator=generator, dtype=torch.float64)
    parameters = [
        table.contiguous().requires_grad_(),
        (start / start.norm(dim=-1, keepdim=True)).requires_grad_(),
        torch.zeros(int(users.max()) + 1, count, dtype=torch.float64, requires_grad=True),
    ]

    def loss() -> Tensor:
        project, prototypes, logits = parameters
        ideal = ideal_point(prototypes, logits.softmax(-1)[users])
        margins = ideal_point_reward(chosen @ project, ideal) - ideal_point_reward(
            rejected @ project, ideal
        )
        fit = bradley_terry_loss(scale * margins, torch.zeros_like(margins)).mean()
        size = torch.stack([p.square().sum() for p in parameters]).sum()
        return fit + penalty * size

    _minimise(loss, parameters)
    project, prototypes, logits = (p.detach() for p in parameters)
    return project, prototypes, logits.softmax(-1)


def _minimise(loss: Callable[[], Tensor], parameters: Sequence[Tensor]) -> None:
    optimizer = torch.optim.LBFGS(
        list(parameters),
        max_iter=_STEPS,
        tolerance_grad=1e-9,
        tolerance_change=1e-12,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(closure)
