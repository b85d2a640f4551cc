"""Which prompts teach a policy something: the equations of prompt selection for reinforcement
learning. A group is the G rewrites of one prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "beta_posterior",
    "history_utility",
    "informative_probability",
    "lifted_temperature",
    "prompt_entropy",
    "ridge_weights",
    "success_rate",
    "true_variance",
]


def success_rate(rewards: Tensor, baseline: Tensor, *, margin: float = 0.0) -> Tensor:
    """Share of a group that is ahead of the no-rewrite arm by more than ``margin``: (B, G), (B,)
    -> (B,) in [0, 1].

    The Bernoulli rate that MoPPS, PCL, HIVE and ERPO need, from rewards that are no 0 or 1. NaN
    rewards (not measured, or masked) leave the share; NaN without any, or without a baseline.

    Differs from the papers: theirs are answers that a verifier calls right.
    """
    measured = ~rewards.isnan()
    ahead = measured & (rewards > baseline[:, None] + margin)
    rate = ahead.sum(1).to(rewards.dtype) / measured.sum(1)
    return torch.where(baseline.isnan(), torch.nan, rate)


def true_variance(rewards: Tensor, noise: Tensor) -> Tensor:
    """Variance between the rewrites of a group beyond that of seeds: max(s^2 - noise^2, 0), with
    the unbiased s^2: (B, G), (B,) -> (B,).

    The variance among prompts of p1 (Gao et al. 2026, arXiv 2604.08801): all variance is that
    among prompts plus that among their answers. ``noise`` is the standard deviation of a reward by
    its seeds alone. NaN rewards leave it; NaN with fewer than two.

    Differs from the paper: its prompts are system prompts and its answers a model's; here they are
    rewrites of one prompt, and pictures of one rewrite.
    """
    measured = ~rewards.isnan()
    count = measured.sum(1)
    known = torch.where(measured, rewards, 0.0)
    mean = known.sum(1, keepdim=True) / count[:, None]
    squares = torch.where(measured, (known - mean).square(), 0.0).sum(1)
    variance = (squares / (count - 1).clamp(min=1) - noise.square()).clamp(min=0)
    return torch.where(count > 1, variance, torch.nan)


def informative_probability(rate: Tensor, size: int) -> Tensor:
    """Chance that a group of ``size`` independent rewrites holds a success and a failure:
    1 - p^G - (1 - p)^G, any shape -> the same, in [0, 1 - 2^(1 - G)].

    The share of groups with a gradient, which PCL calls the effective ratio (Gao et al. 2025,
    arXiv 2510.01135); largest at p = 0.5.
    """
    return 1 - rate**size - (1 - rate) ** size


def beta_posterior(
    alpha: Tensor,
    beta: Tensor,
    successes: Tensor,
    failures: Tensor,
    *,
    decay: float = 1.0,
    prior: tuple[float, float] = (1.0, 1.0),
) -> tuple[Tensor, Tensor]:
    """Difficulty posterior Beta(alpha, beta) after one more group: alpha' = decay alpha + (1 -
    decay) alpha_0 + successes, beta' likewise with failures: each (B,) -> ((B,), (B,)).

    MoPPS (Qu et al. 2025, arXiv 2507.04632), as in its released code; ``decay`` below 1 forgets
    what an older policy did. At 1 it is the conjugate update.
    """
    kept = (1 - decay) * prior[0], (1 - decay) * prior[1]
    return decay * alpha + kept[0] + successes, decay * beta + kept[1] + failures


def ridge_weights(gram: Tensor, moment: Tensor, *, ridge: float) -> Tensor:
    """Weights that minimise sum c (w x - y)^2 + ridge |w|^2, from gram = sum c x x^T and moment =
    sum c y x: (D, D), (D,) -> (D,).

    The squared error of PCL's value model (Gao et al. 2025, arXiv 2510.01135) for a linear head.
    """
    eye = torch.eye(len(moment), dtype=gram.dtype, device=gram.device)
    weights: Tensor = torch.linalg.solve(gram + ridge * eye, moment)
    return weights


def history_utility(rate: Tensor) -> Tensor:
    """How near a prompt's past success rate is to the learning edge: 4 p (1 - p), any shape -> the
    same, in [0, 1]; 1 where nothing is known (NaN).

    The coarse, historical stage of HIVE (Wu et al. 2026, arXiv 2603.25184).

    Differs from the paper: only its abstract could be read, which names historical rewards and
    response entropy; this is the Bernoulli variance, scaled to 1, and no response entropy.
    """
    return torch.where(rate.isnan(), 1.0, 4 * rate * (1 - rate))


def prompt_entropy(logits: Tensor, mask: Tensor) -> Tensor:
    """Mean entropy of the next-token distributions along a prompt, in nats: (B, T, V), (B, T) with
    1 for the prompt's own tokens -> (B,).

    What HIVE (Wu et al. 2026, arXiv 2603.25184) looks at under the current policy before it pays
    for rollouts. NaN for a prompt without tokens.
    """
    logs = torch.log_softmax(logits.float(), -1)
    entropy = -(logs.exp() * logs.masked_fill(logs.isinf(), 0.0)).sum(-1)  # (B, T)
    kept = mask.to(entropy.dtype)
    return (entropy * kept).sum(1) / kept.sum(1)


def lifted_temperature(streak: Tensor, *, base: float, step: float, ceiling: float) -> Tensor:
    """Sampling temperature of a prompt that was spent ``streak`` times in a row: min(base + step
    streak, max(ceiling, base)), any shape of counts -> the same.

    ERPO (Liu et al. 2025, arXiv 2511.04800) raises the temperature of prompts that gave only right
    answers until they give wrong ones again.

    Differs from the paper: only its abstract could be read; that the lift is linear, and its
    numbers, are ours.
    """
    return (base + step * streak).clamp(max=max(ceiling, base))
