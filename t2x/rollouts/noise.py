"""How far seeds alone move scores, measured while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["NoiseFloor"]

_KEPT = 0.98  # of what is known, at each new rollout: the policy changes, and noise with it


class NoiseFloor:
    """Running covariance of one picture's scores between seeds, (K, K); the last fifty rollouts
    count.
    """

    def __init__(self, number: int) -> None:
        self.products = torch.zeros(number, number, dtype=torch.float64)
        self.freedom = torch.zeros((), dtype=torch.float64)

    def observe(self, products: Tensor, freedom: Tensor) -> None:
        """Count what ``t2x.functional.advantages.seed_noise`` gave."""
        self.products = self.products * _KEPT + products.cpu()
        self.freedom = self.freedom * _KEPT + freedom.cpu()

    def deviation(self, weights: Tensor, seeds: int) -> Tensor:
        """Standard deviation of weighted sums of scores that are means over ``seeds`` seeds:
        weights (..., K) -> (...); 0 as long as nothing was measured.
        """
        covariance = self.products / self.freedom.clamp(min=1.0) / seeds
        wide = weights.double().cpu()
        return ((wide @ covariance) * wide).sum(-1).clamp(min=0).sqrt()

    def state_dict(self) -> dict[str, Any]:
        """Plain values that JSON holds exactly."""
        return {"products": self.products.tolist(), "freedom": float(self.freedom)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""
        self.products = torch.tensor(state["products"], dtype=torch.float64)
        self.freedom = torch.tensor(state["freedom"], dtype=torch.float64)
