"""Values and image gradients of several rewards on media that are being drawn.

Each reward's gradient is taken by itself, per sample, detached, and divided by its own running
size, so that a weight says how much of the step a reward decides, whatever its scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.scoring.ensemble import RewardEnsemble

if TYPE_CHECKING:
    from t2x.guidance.regions import Region
    from t2x.guidance.trace import GuidanceTrace
    from t2x.types import Context, Modality, RewardModel

__all__ = ["Objective", "Valued", "WeightPolicy"]

_KEEP = 0.8  # of a gradient's running size from one step to the next


class WeightPolicy(Protocol):
    """Decides the weights of the rewards while sampling.

    One that also has ``factors(prompts, index, total)``, (N,) and at least 0, decides the size of
    each sample's steps too; ``located(prompts, context)`` puts into the context where rewards look,
    and ``regions(prompts)`` tells it for the trace (``t2x.guidance.regions``).
    """

    def weights(
        self, prompts: Sequence[str], index: int, total: int, values: Tensor, given: Tensor
    ) -> Tensor:
        """Weights (N, K), detached, of the rewards' values (N, K) and the weights given, (K,)."""


@dataclass(frozen=True)
class Valued:
    """What media are worth: ``values`` (N, K) as scored, NaN where a reward can't measure;
    ``weights`` (N, K), 0 there; ``sizes`` (N, K), root mean square of each image gradient;
    ``gradient``: of the weighed and normalised sum at the media, shaped as they are.
    """

    values: Tensor
    weights: Tensor
    sizes: Tensor
    gradient: Tensor


class Objective:
    """Rewards with weights; keeps the running size of each gradient for each sample.

    Args:
        rewards: differentiable, all of one modality, with names of their own.
        weights: by name, 1 for those not named; negative ones push away. One of 0 is scored and, as
            long as no policy can move its weight, asked for no gradient.
        policy: moves weights while sampling; fixed without.
        normalise: divide each gradient by its running size; without, gradients are those of
            sum_i w_i r_i.

    Raises T2XError for a reward that has no gradient.
    """

    def __init__(
        self,
        rewards: Sequence[RewardModel],
        weights: Mapping[str, float] | None = None,
        *,
        policy: WeightPolicy | None = None,
        normalise: bool = True,
    ) -> None:
        self.ensemble = RewardEnsemble(rewards, weights, name="guidance")
        if without := [r.name for r in rewards if not r.differentiable]:
            raise T2XError(
                f"no gradient comes from {', '.join(without)}; guide by others, or choose among "
                "whole pictures: mode particles or search"
            )
        self.names = [r.name for r in rewards]
        self.modality: Modality = self.ensemble.modality
        self.policy, self.normalise = policy, normalise
        self._sizes: Tensor | None = None  # (N, K), and how often each was seen
        self._seen: Tensor | None = None

    def reset(self) -> None:
        """Forget the running sizes: a new call begins."""
        self._sizes, self._seen = None, None

    def reorder(self, rows: Tensor) -> None:
        """Take rows (N,) of what is kept for each sample."""
        if self._sizes is not None and self._seen is not None:
            self._sizes, self._seen = self._sizes[rows], self._seen[rows]

    def satisfaction(self, values: Tensor) -> Tensor:
        """Mean over the rewards that weigh something of how far the values (N, K) are where they
        should be, in [0, 1]: (N,); NaN are left out.

        The place in a reward's range; of a range with one end, exp(-distance from it) at an upper
        end, 1 less that at a lower one; of none, the logistic of the value. A reward of negative
        weight should be low.
        """
        columns = []
        for reward, column in zip(self.ensemble.rewards, values.unbind(1), strict=True):
            if weight := self.ensemble.weights[reward.name]:
                place = _place(column, *reward.range)
                columns.append(place if weight > 0 else 1 - place)
        if not columns:
            return torch.full_like(values[:, 0], 0.5)
        return torch.stack(columns, 1).nanmean(1).nan_to_num(0.5)

    def located(self, prompts: Sequence[str], context: Context | None) -> Context | None:
        """The context with where rewards look, as the policy says; the same without."""
        locate = getattr(self.policy, "located", None)
        if locate is None:
            return context
        found: Context | None = locate(prompts, context)
        return found

    def regions(self, prompts: Sequence[str]) -> Sequence[Sequence[Region]]:
        """What shall be where, of each sample, as the policy says; nothing without."""
        tell = getattr(self.policy, "regions", None)
        if tell is None:
            return [()] * len(prompts)
        found: Sequence[Sequence[Region]] = tell(prompts)
        return found

    def factors(self, prompts: Sequence[str], index: int, total: int) -> Tensor:
        """Factor of each sample's step size, (N,), as the policy says; 1 without."""
        decide = getattr(self.policy, "factors", None)
        if decide is None:
            return torch.ones(len(prompts))
        found: Tensor = decide(prompts, index, total)
        return found.detach()

    def evaluate(
        self,
        prompts: Sequence[str],
        media: Tensor,
        *,
        context: Context | None = None,
        index: int = 0,
        total: int = 1,
        trace: GuidanceTrace | None = None,
    ) -> Valued:
        """Score media (N, ...), in [0, 1] after a clamp that gradients pass straight through; what
        it takes is counted in ``trace``.

        Raises T2XError if a reward's gradient is not finite where its value is, and if it is
        nothing for all samples: a hop through a picture of 8 bits, say, would otherwise never be
        noticed.
        """
        with torch.enable_grad():
            leaf = media.detach().clamp(0, 1).requires_grad_()
            rows = len(leaf) * len(self.names)
            with _timed(trace, rows):
                located = self.located(prompts, context)
                scores = self.ensemble.components(prompts, leaf, context=located)
                columns = [self._column(name, scores[name], leaf) for name in self.names]
            with _timed(trace, rows, backward=True):
                gradients = self._gradients(columns, leaf)
        values = torch.stack([column.detach() for column in columns], 1)
        flat = gradients.flatten(2)  # (K, N, pixels)
        sizes = flat.pow(2).mean(2).sqrt().T  # (N, K)
        running = self._observe(sizes, values.isfinite())
        weights = self._weights(prompts, index, total, values)
        scale = weights / running if self.normalise else weights
        fused = _weighed(gradients, scale.to(gradients.dtype))
        return Valued(values, weights, sizes, fused)

    def _column(self, name: str, scores: Tensor, media: Tensor) -> Tensor:
        """Scores of one reward, checked, where the media are."""
        shape = tuple(getattr(scores, "shape", ()))
        if not isinstance(scores, Tensor) or shape != (len(media),):
            found = f"{type(scores).__name__} {shape}" if shape else type(scores).__name__
            raise T2XError(
                f"{name} gave {found} for {len(media)} media; its score is to be a tensor of "
                f"{len(media)} numbers"
            )
        return scores.to(media.device)

    def _gradients(self, columns: Sequence[Tensor], leaf: Tensor) -> Tensor:
        """(K, N, ...): of each reward by itself; 0 for samples that it can't measure, and of a
        reward whose weight is 0 for good.

        Not of columns of one (N, K) tensor: zeros would go backward through every other reward.
        """
        found = []
        for column, (name, scores) in enumerate(zip(self.names, columns, strict=True)):
            last = column == len(self.names) - 1
            if self.policy is None and self.ensemble.weights[name] == 0:
                found.append(torch.zeros_like(leaf))
                continue
            if not scores.requires_grad:
                raise T2XError(f"{name} gives no gradient for these media; guide by others")
            (gradient,) = torch.autograd.grad(scores.nansum(), leaf, retain_graph=not last)
            known = scores.isfinite().view(-1, *[1] * (leaf.ndim - 1))
            gradient = torch.where(known, gradient, 0.0)
            if not bool(gradient.isfinite().all()):
                raise T2XError(
                    f"the gradient of {name} is not finite though its value is: a root or a "
                    "logarithm at 0, or half precision that overflows; load it in float32 "
                    "(dtype), or guide by others"
                )
            if self._seen is None and not bool(gradient.any()) and bool(known.any()):
                raise T2XError(
                    f"the gradient of {name} is 0 for all pictures: something on the way (8 bits, "
                    "a clamp, a scorer without gradients) lets none through"
                )
            found.append(gradient)
        return torch.stack(found)

    def _observe(self, sizes: Tensor, known: Tensor) -> Tensor:
        """Running root mean square of each gradient, bias-corrected: (N, K), positive. What a
        reward can't measure is no gradient of size 0, and leaves it as it was."""
        if self._sizes is None or self._seen is None:
            self._sizes = self._seen = torch.zeros_like(sizes)
        met = _KEEP * self._sizes + (1 - _KEEP) * sizes**2
        self._sizes, self._seen = torch.where(known, met, self._sizes), self._seen + known
        tiny = torch.finfo(sizes.dtype).tiny
        part = 1 - _KEEP ** self._seen.to("cpu", torch.float64)  # not every device has float64
        return (self._sizes / part.to(sizes).clamp_min(tiny)).sqrt().clamp_min(tiny)

    def _weights(self, prompts: Sequence[str], index: int, total: int, values: Tensor) -> Tensor:
        given = torch.tensor([self.ensemble.weights[n] for n in self.names], device=values.device)
        weights = given.expand_as(values)
        if self.policy is not None:
            weights = self.policy.weights(prompts, index, total, values, given).detach()
        return torch.where(values.isfinite(), weights, 0.0)


def _weighed(gradients: Tensor, scale: Tensor) -> Tensor:
    """Sum (N, ...) of gradients (K, N, ...) by scales (N, K). One by one, not as a product of
    matrices, whose rounding would depend on K: a weight of 0 leaves the bits of the others."""
    total = torch.zeros_like(gradients[0])
    for gradient, column in zip(gradients, scale.T, strict=True):
        total = total + column.view(-1, *[1] * (gradient.ndim - 1)) * gradient
    return total


def _place(values: Tensor, low: float, high: float) -> Tensor:
    """Where values are in their range, in [0, 1]."""
    if math.isfinite(low) and math.isfinite(high):
        return (values - low) / (high - low)
    if math.isfinite(high):
        return (values - high).exp()
    if math.isfinite(low):
        return 1 - (low - values).exp()
    return values.sigmoid()


def _timed(
    trace: GuidanceTrace | None, rows: int, *, backward: bool = False
) -> AbstractContextManager[None]:
    return nullcontext() if trace is None else trace.timed("reward", rows=rows, backward=backward)
