"""Which question to ask a user: the equations of Adaptive Prompt Elicitation (arXiv 2602.04713).

A belief is a weighted set of intents, each a complete idea of the picture; an intent answers a
question in one way.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = [
    "answer_distribution",
    "expected_information_gain",
    "question_utility",
    "visual_influence",
]


def answer_distribution(weights: Tensor, answers: Tensor, count: int) -> Tensor:
    """P(a) = sum of the weights of the intents that answer a, over the sum of all: weights (I,)
    >= 0, answers (I,) integers in [0, count) -> (count,), which sums to 1.

    NaN if all weights are 0.

    Differs from the paper: there a language model states the probabilities and nobody divides by
    their sum.
    """
    zero = torch.zeros(count, dtype=weights.dtype, device=weights.device)
    return zero.index_add(0, answers, weights) / weights.sum()


def expected_information_gain(probabilities: Tensor) -> Tensor:
    """H(a) = - sum_a p(a) ln p(a) in nats, with p divided by its sum: (..., A) -> (...,) in
    [0, ln A].

    An intent settles the answer, so that the entropy of the answer is what it tells about the
    intent: I(a; intent) = H(a) - H(a | intent) = H(a). "Doesn't matter" and "something else" are
    answers like the others. n equally likely answers give ln n, a certain one 0.

    Differs from the paper: it does not divide by the sum, so that a model which is generous with
    probability makes a question look better. Like there, entropy grows with the number of options,
    and it is not divided by ln A here: four pictures that part the intents in four do tell twice as
    much as two that halve them, while the quotient would call both the same. That a user has more
    to look at is bounded by four options in a row.
    """
    p = probabilities / probabilities.sum(-1, keepdim=True)
    gain: Tensor = torch.special.entr(p).sum(-1)
    return gain


def visual_influence(features: Tensor) -> Tensor:
    """How much a feature changes the picture, in units of what seeds alone change: embeddings of
    O options drawn from the same S seeds, (O, S, D) -> a scalar >= 0.

    Mean cosine distance between two options of one seed, over the mean distance between two seeds
    of one option. 0 if the options look the same, 1 if they differ as two seeds do. NaN with fewer
    than two options or seeds, or if seeds change nothing.

    Differs from the paper: there a language model guesses it, as a number in [0, 1].
    """
    options, seeds, _ = features.shape
    if options < 2 or seeds < 2:
        return features.new_full((), torch.nan)
    wide = F.normalize(features.to(torch.promote_types(features.dtype, torch.float32)), dim=-1)
    of_options = _mean_distance(wide.transpose(0, 1))
    of_seeds = _mean_distance(wide)
    return torch.where(of_seeds > 0, of_options / of_seeds, torch.nan)


def _mean_distance(sets: Tensor) -> Tensor:
    """Mean cosine distance between two members of a set, over sets of unit vectors (B, N, D)."""
    count = sets.shape[1]
    distances = 1 - sets @ sets.mT
    mean: Tensor = distances.sum((1, 2)).mean() / (count * (count - 1))
    return mean


def question_utility(gain: Tensor, influence: Tensor) -> Tensor:
    """gain * influence, the paper's weighted expected information gain: any shapes that broadcast.

    An influence that was not measured (NaN) counts as 1, as much as seeds do.
    """
    return gain * torch.where(influence.isnan(), 1.0, influence)
