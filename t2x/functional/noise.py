"""Initial noise: what it is worth by itself, steps of its optimisation, neighbours, re-noising."""

from __future__ import annotations

from torch import Tensor

__all__ = [
    "clipped_gradient",
    "near_noise",
    "nesterov_step",
    "noise_penalty",
    "noised",
    "time_travelled",
]


def noise_penalty(noise: Tensor, strength: float = 0.01) -> Tensor:
    """strength (|e|^2 / 2 - (d - 1) log |e|) of noise (N, ...) of d numbers each: the negative
    log-density of the norm of a Gaussian, up to a constant (ReNO, Eyring et al. 2024, arXiv
    2406.04312). (N,) float32, least at |e| = sqrt(d - 1).

    In half precision |e|^2 overflows: it is taken in float32 whatever the noise is.
    """
    flat = noise.float().flatten(1)
    norm = flat.norm(dim=1)
    penalty: Tensor = norm.square() / 2 - (flat.shape[1] - 1) * norm.log()
    return strength * penalty


def clipped_gradient(gradient: Tensor, limit: float) -> Tensor:
    """Scale each sample's gradient (N, ...) down to the norm ``limit``; smaller ones stay."""
    norm = gradient.flatten(1).norm(dim=1)
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    return gradient * _like(factor, gradient)


def nesterov_step(
    value: Tensor, gradient: Tensor, velocity: Tensor, *, rate: float, momentum: float = 0.9
) -> tuple[Tensor, Tensor]:
    """A step of descent with Nesterov's momentum, as ``torch.optim.SGD`` takes it: v = momentum v +
    g, value - rate (g + momentum v). Gives value and velocity, shaped as given."""
    velocity = momentum * velocity + gradient
    return value - rate * (gradient + momentum * velocity), velocity


def near_noise(pivot: Tensor, noise: Tensor, distance: float) -> Tensor:
    """A neighbour of the pivot, sqrt(1 - distance^2) pivot + distance noise, any shape.

    Differs from the paper (zero-order search of Ma et al. 2025, arXiv 2501.09732,
    pivot + a step of length lambda): this neighbour of Gaussian noise is Gaussian noise again, for
    any ``distance`` from 0 (the pivot) to 1 (independent of it).
    """
    return float((1 - distance**2) ** 0.5) * pivot + distance * noise


def noised(clean: Tensor, noise: Tensor, alpha: float, sigma: float) -> Tensor:
    """x_t = alpha x0 + sigma z, any shape: a fresh sample of the level around x0, or x0_hat; where
    SDEdit starts (Meng et al. 2022, arXiv 2108.01073)."""
    return alpha * clean + sigma * noise


def time_travelled(
    sample: Tensor,
    clean: Tensor,
    noise: Tensor,
    levels: tuple[tuple[float, float], tuple[float, float]],
) -> Tensor:
    """One step down and up again: x_t of the same level as ``sample``, any shape (FreeDoM, Yu et
    al. 2023, arXiv 2303.09833; self-recurrence of Universal Guidance).

    Down by DDIM, y = alpha' x0_hat + sigma' (x - alpha x0_hat) / sigma; up by the forward process,
    (alpha / alpha') y + sqrt(sigma^2 - (alpha / alpha')^2 sigma'^2) z. ``levels``: (alpha, sigma)
    and the next, (alpha', sigma').
    """
    (alpha, sigma), (next_alpha, next_sigma) = levels
    down = next_alpha * clean + next_sigma * (sample - alpha * clean) / sigma
    ratio = alpha / next_alpha
    new = float(max(sigma**2 - (ratio * next_sigma) ** 2, 0.0) ** 0.5)
    return ratio * down + new * noise


def _like(factor: Tensor, value: Tensor) -> Tensor:
    return factor.to(value).view(-1, *[1] * (value.ndim - 1))
