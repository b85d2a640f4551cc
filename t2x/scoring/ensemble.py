"""Several rewards as one: each encoder runs once per batch of media, components are weighted and
summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.scoring.pairs import check_pairs, wants_gradient
from t2x.scoring.reward import EncoderReward, encode_all

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality, RewardModel

__all__ = ["RewardEnsemble"]


class RewardEnsemble:
    """Weighted sum of rewards, itself a ``RewardModel``.

    ``weights`` by reward name; 1 for those not named. A pair for which any component of non-zero
    weight is NaN scores NaN: what can't be measured never counts as 0. Rewards on different scales
    need weights that say so; nothing is normalised here.
    """

    def __init__(
        self,
        rewards: Sequence[RewardModel],
        weights: Mapping[str, float] | None = None,
        *,
        name: str = "ensemble",
    ) -> None:
        names = [r.name for r in rewards]
        weights = dict(weights or {})
        if not rewards or len(set(names)) < len(names):
            raise T2XError(f"an ensemble needs rewards with names of their own, got: {names}")
        if unknown := sorted(set(weights) - set(names)):
            raise T2XError(f"weights for {unknown}, but the rewards are: {', '.join(names)}")
        if len({r.modality for r in rewards}) > 1:
            raise T2XError(
                "an ensemble scores either pictures or videos; these rewards are of both"
            )
        self.name = name
        self.rewards = tuple(rewards)
        self.weights = {n: float(weights.get(n, 1.0)) for n in names}
        self.modality: Modality = rewards[0].modality
        self.scale = " + ".join(f"{self.weights[r.name]:g} * {r.name} ({r.scale})" for r in rewards)
        self.differentiable = all(r.differentiable for r in rewards if self.weights[r.name])
        self.range = self._range()

    def _range(self) -> tuple[float, float]:
        low = high = 0.0
        for reward in self.rewards:
            if weight := self.weights[reward.name]:
                a, b = sorted(weight * bound for bound in reward.range)
                low, high = low + a, high + b
        return low, high

    def components(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> dict[str, Tensor]:
        """Scores of each reward by name, (N,) each, not weighted."""
        check_pairs(prompts, media, modality=self.modality, name=self.name)
        shared = [r for r in self.rewards if isinstance(r, EncoderReward)]
        with torch.set_grad_enabled(wants_gradient(media)):
            features = encode_all(shared, prompts, media, context=context)
            return {
                r.name: r.score_features(prompts, media, features)
                if isinstance(r, EncoderReward)
                else r.score(prompts, media, context=context)
                for r in self.rewards
            }

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Weighted sum, (N,) float32; gradients reach ``media`` if it requires them."""
        parts = self.components(prompts, media, context=context)
        total = torch.zeros(len(prompts))
        for name, weight in self.weights.items():
            if weight:
                total = total.to(parts[name].device) + weight * parts[name]
        return total
