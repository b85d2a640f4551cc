"""A world of prompts with known difficulty, without any model: how much each method of selection
saves, in seconds. What it saves in a real run is for a real run to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.selection.config import METHODS, SelectionConfig
from t2x.selection.results import GroupResult, evidence
from t2x.selection.sampler import PromptSampler

__all__ = ["BanditWorld", "Trace", "compare", "simulate"]


class BanditWorld:
    """Prompts whose rewrites succeed by a logit each; groups of mixed success raise it.

    ``logits``: (N,). After a group whose share of successes is k / G, the prompt's own logit rises
    by ``gain`` * 4 (k / G) (1 - k / G), those of all others by ``spill`` times as much: nothing is
    learnt from a group without failures or without successes, and hard prompts become easier as
    others are learnt. A success has a reward of ``gap``, a failure of -``gap``, both with noise of
    deviation ``noise``; the no-rewrite arm has ``arm``. Temperature divides the logit.
    """

    def __init__(
        self,
        logits: Tensor,
        *,
        group: int = 8,
        gain: float = 0.0,
        spill: float = 0.0,
        gap: float = 0.5,
        noise: float = 0.05,
        arm: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.logits = logits.double().clone()
        self.group, self.gain, self.spill = group, gain, spill
        self.gap, self.noise, self.arm = gap, noise, arm
        self._random = torch.Generator().manual_seed(seed)
        hints = torch.randn(len(logits), 8, generator=self._random, dtype=torch.float64)
        hints[:, 0] += 2 * self.logits / self.logits.std().clamp(min=1e-9)
        self.features = hints

    @property
    def score(self) -> float:
        """Mean success rate over all prompts."""
        return self.logits.sigmoid().mean().item()

    def probe(self, prompts: Sequence[int]) -> list[float]:
        """What stands for prompt entropies: largest at a rate of one half, and noisy."""
        rate = self.logits[torch.tensor(prompts)].sigmoid()
        noise = torch.randn(len(prompts), generator=self._random, dtype=torch.float64)
        return (4 * rate * (1 - rate) + 0.2 * noise).tolist()

    def roll(self, prompts: Sequence[int], temperatures: Sequence[float]) -> list[GroupResult]:
        """Draw the pictures of a group for each prompt, and learn from them."""
        rows = torch.tensor(prompts)
        heat = torch.tensor(temperatures, dtype=torch.float64)
        rate = (self.logits[rows] / heat).sigmoid()[:, None].expand(-1, self.group)
        success = torch.bernoulli(rate, generator=self._random)
        noise = torch.randn(success.shape, generator=self._random, dtype=torch.float64)
        rewards = self.gap * (2 * success - 1) + self.noise * noise
        share = success.mean(1)
        learnt = self.gain * 4 * share * (1 - share)
        self.logits += self.spill * learnt.sum()
        self.logits.index_add_(0, rows, (1 - self.spill) * learnt)
        found = zip(prompts, rewards.tolist(), strict=True)
        return [GroupResult(p, tuple(row), self.arm, self.noise) for p, row in found]


@dataclass
class Trace:
    """What a simulated run did. ``informative``: share of its groups with a success and a failure.
    ``counts``: (N,), how often each prompt was drawn. ``pictures``: until ``score`` was reached,
    None if it was not. ``scores``: after each draw."""

    informative: float
    counts: Tensor
    pictures: int | None
    scores: list[float] = field(default_factory=list)


def simulate(
    config: SelectionConfig,
    world: BanditWorld,
    *,
    draws: int,
    size: int = 8,
    seed: int = 0,
    score: float | None = None,
) -> Trace:
    """Run ``draws`` draws of ``size`` prompts, one picture per rewrite; stop early at ``score``."""
    prompts = len(world.logits)
    sampler = PromptSampler(
        config,
        prompts=prompts,
        size=size,
        seed=seed,
        features=world.features,
        probe=world.probe,
    )
    counts = torch.zeros(prompts, dtype=torch.long)
    mixed, scores, pictures = 0, [], None
    numbers = (draw for _ in range(draws) for draw in sampler.epoch())
    for _, chosen in zip(range(draws), numbers, strict=False):
        results = world.roll(chosen, sampler.temperatures(chosen, 1.0))
        sampler.observe(results)
        counts[torch.tensor(chosen)] += 1
        mixed += int(evidence(results, -world.arm).informative.sum())
        scores.append(world.score)
        if score is not None and world.score >= score:
            pictures = len(scores) * size * world.group
            break
    return Trace(mixed / (len(scores) * size), counts, pictures, scores)


def compare(
    methods: Sequence[str] = METHODS,
    *,
    prompts: int = 512,
    score: float = 0.8,
    draws: int = 4000,
    seeds: Sequence[int] = (0, 1, 2),
    **settings: Any,
) -> dict[str, dict[str, float | None]]:
    """Pictures until the mean success rate is ``score``, method by method: their mean over the
    ``seeds``, the ratio to uniform, and the share of informative groups. Logits begin between -6
    and 6, so that a third of all prompts has a rate outside of 2 % to 98 %. None: not every seed
    got there in ``draws`` draws.
    """
    if unknown := sorted(set(methods) - set(METHODS)):
        raise T2XError(f"no method of selection {unknown[0]!r}; known are: {', '.join(METHODS)}")
    found: dict[str, dict[str, float | None]] = {}
    for name in dict.fromkeys(("uniform", *methods)):
        traces = []
        for seed in seeds:
            start = 12 * torch.rand(prompts, generator=torch.Generator().manual_seed(seed)) - 6
            world = BanditWorld(start, gain=0.2, spill=0.002, seed=seed)
            config = SelectionConfig(name, **settings)  # type: ignore[arg-type]
            traces.append(simulate(config, world, draws=draws, seed=seed, score=score))
        taken = [trace.pictures for trace in traces if trace.pictures is not None]
        mean = sum(taken) / len(taken) if len(taken) == len(traces) else None
        base = mean if name == "uniform" else found["uniform"]["pictures"]
        found[name] = {
            "pictures": mean,
            "to_uniform": mean / base if mean is not None and base else None,
            "informative": sum(trace.informative for trace in traces) / len(traces),
        }
    return found
