"""Several rewards as one: each encoder runs once per batch of media, and a named rule makes one
score of the components.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.moments import Moments, merge_moments, moments
from t2x.scoring.combine import COMBINERS, Given, prompt_groups
from t2x.scoring.pairs import check_pairs, wants_gradient
from t2x.scoring.reward import EncoderReward, encode_all

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality, RewardModel

__all__ = ["RewardEnsemble"]

log = logging.getLogger(__name__)


class RewardEnsemble:
    """Several rewards combined, itself a ``RewardModel``.

    ``weights`` by reward name; 1 for those not named. ``combine``: a key of
    ``t2x.scoring.combine.COMBINERS``; ``sum`` normalises nothing, so rewards on different scales
    need weights that say so. A pair for which any component of non-zero weight is NaN scores NaN:
    what can't be measured never counts as 0.

    ``running`` are the statistics that ``standardised`` divides by, (K,) each in the order of
    ``rewards``. Only :meth:`observe` changes them; keep ``running._asdict()`` with a checkpoint and
    give ``running=Moments(**loaded)`` to go on. ``floor``: how far seeds alone move a score; least
    deviation to divide by (``standardised``, ``gdpo``, ``correlation``), least difference that
    counts (``pareto``) or counts in the sum (``dominance``). ``temperature``: of ``correlation``.
    ``batchwise`` says that a score depends on the rest of its batch.
    """

    def __init__(
        self,
        rewards: Sequence[RewardModel],
        weights: Mapping[str, float] | None = None,
        *,
        combine: str = "sum",
        running: Moments | None = None,
        floor: float = 0.0,
        temperature: float = 1.0,
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
                "an ensemble scores either pictures or videos; these rewards are of both "
                "(t2x.scoring.frames.frames makes one of pictures score videos)"
            )
        if combine not in COMBINERS:
            raise T2XError(f"unknown combine {combine!r}; allowed: {', '.join(COMBINERS)}")
        if running is not None and running.measured.shape != (len(names),):
            raise T2XError(
                f"running has shape {tuple(running.measured.shape)} for {len(names)} rewards"
            )
        self.name = name
        self.rewards = tuple(rewards)
        self.weights = {n: float(weights.get(n, 1.0)) for n in names}
        self.combiner = COMBINERS[combine]
        self.running = moments(torch.zeros(0, len(names))) if running is None else running
        self.floor, self.temperature = floor, temperature
        self.modality: Modality = rewards[0].modality
        total = " + ".join(f"{self.weights[r.name]:g} * {r.name} ({r.scale})" for r in rewards)
        self.scale = total if combine == "sum" else f"{self.combiner.about}; {total}"
        self.batchwise = self.combiner.batchwise
        self.differentiable = self.combiner.differentiable and all(
            r.differentiable for r in rewards if self.weights[r.name]
        )
        self.range = self.combiner.range or self._range()

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
        """Combined score, (N,) float32; gradients reach ``media`` if it requires them.

        Rows of equal prompts are a group for ``gdpo`` and ``correlation``; ``pareto`` looks at the
        whole batch. Raises ``T2XError`` for a gradient of a rule that has none, and for
        ``standardised`` before anything was observed.
        """
        check_pairs(prompts, media, modality=self.modality, name=self.name)
        if wants_gradient(media):
            self._check_gradient()
        parts = self.components(prompts, media, context=context)
        device = next(iter(parts.values())).device
        scores = torch.stack([column.to(device) for column in parts.values()], -1)
        groups = prompt_groups(prompts) if self.combiner.grouped else None
        return self.combine(scores, groups=groups)

    def _check_gradient(self) -> None:
        if not self.combiner.differentiable:
            raise T2XError(
                f"{self.name}: {self.combiner.about}, which has no gradient; "
                "detach the media, or combine by sum"
            )
        if without := [
            r.name for r in self.rewards if self.weights[r.name] and not r.differentiable
        ]:
            raise T2XError(
                f"{self.name}: {', '.join(without)} give no gradient; detach the media, or leave "
                "them out"
            )

    def combine(self, scores: Tensor, *, groups: Tensor | None = None) -> Tensor:
        """Make (N,) of (N, K) scores, columns in the order of ``rewards``; ``groups`` (N,) are
        integers, None for one group. How many scores are missing is logged.
        """
        if scores.ndim != 2 or scores.shape[1] != len(self.rewards):
            raise ValueError(
                f"{self.name}: scores must be (N, {len(self.rewards)}), got {tuple(scores.shape)}"
            )
        weights = torch.tensor([self.weights[r.name] for r in self.rewards], device=scores.device)
        missing = scores[:, weights != 0].isnan().any(1)
        if bool(missing.any()):
            log.warning(
                "%s: %d of %d rows miss a score", self.name, int(missing.sum()), len(missing)
            )
        given = Given(scores, weights, groups, self.running, self.floor, self.temperature)
        return self.combiner.run(given)

    def observe(self, scores: Tensor) -> Moments:
        """Count (N, K) scores in ``running`` and give it; NaN is counted as missing."""
        new = moments(scores)
        old = Moments(*(part.to(new.mean.device) for part in self.running))
        self.running = merge_moments(old, new)
        return self.running
