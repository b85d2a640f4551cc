"""Probabilities of answers, from the logits of a language model at the place where it answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = [
    "answer_likelihood",
    "answer_log_odds",
    "answer_probability",
    "answer_terms",
    "grouped_mean",
    "margin_reward",
    "prompt_echo",
    "token_log_probabilities",
]


def answer_probability(
    logits: Tensor, answer: Sequence[int], against: Sequence[int] = ()
) -> Tensor:
    """P(answer | picture, question) (VQAScore, Lin et al. 2024, arXiv 2404.01291, eq. 1): (N,) in
    [0, 1].

    ``logits`` (N, V); ``answer``: ids of the answer's spellings, their probabilities are added.
    With ``against`` the rest of the vocabulary is left out: P(answer) / (P(answer) + P(against)),
    the reward of ZYN (Gallego 2023, arXiv 2308.06385, section 2).

    Differs from the paper: its encoder-decoder counts the closing token of the answer as well,
    which is :func:`answer_likelihood`, about the square root of this one.
    """
    if against:
        return torch.sigmoid(answer_log_odds(logits, answer, against))
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (wide[:, list(answer)].logsumexp(-1) - wide.logsumexp(-1)).exp()


def answer_log_odds(logits: Tensor, answer: Sequence[int], against: Sequence[int]) -> Tensor:
    """log of P(answer) / P(against), each the sum over its spellings: (N, V) -> (N,).

    ZYN (Gallego 2023, arXiv 2308.06385) takes the sigmoid of it; as a ratio of exponentials, as
    released, that overflows.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return wide[:, list(answer)].logsumexp(-1) - wide[:, list(against)].logsumexp(-1)


def token_log_probabilities(logits: Tensor, labels: Tensor) -> Tensor:
    """log P of each label under the logits of its place: (N, T, V), (N, T) -> (N, T).

    Labels below 0 are padding and give 0. Reduced in float32 or wider.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    picked = wide.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    values = picked - wide.logsumexp(-1)
    return torch.where(labels >= 0, values, torch.zeros_like(values))


def answer_likelihood(log_probs: Tensor, counted: Tensor) -> Tensor:
    """exp(-mean cross-entropy of the answer's tokens), the score of CLIP-FlanT5 (VQAScore, Lin et
    al. 2024, arXiv 2404.01291, eq. 1 as released): (N, T), (N, T) bool -> (N,) in [0, 1].

    The labels of "Yes" are that word *and* the end token, so this is the geometric mean of the two
    probabilities. NaN where nothing is counted.
    """
    return prompt_echo(log_probs, counted).exp()


def prompt_echo(
    log_probs: Tensor, counted: Tensor, prior: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """Log-probability of a prompt as the answer to a fixed request (PromptEcho, arXiv 2604.12652):
    (N, T), (N, T) bool -> (N,).

    ``mean`` per token (the paper's negative cross-entropy) or ``sum``. With ``prior`` (N, T), the
    same without the picture, the difference: how much likelier the picture makes the prompt. NaN
    where nothing is counted.

    Differs from the paper: it has no prior.
    """
    values = log_probs if prior is None else log_probs - prior
    total = torch.where(counted, values, torch.zeros_like(values)).sum(-1)
    number = counted.sum(-1).to(total.dtype)
    mean = total / number  # 0 / 0 is NaN
    return mean if reduction == "mean" else mean * number


def answer_terms(logits: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """log p(a*) and the lead of the right answer, l(a*) - max_{u != a*} l(u), at each place.

    ``logits`` l: (N, T, V); ``right`` (N, T, S): ids of the spellings of a*, below 0 where there
    are fewer. Probabilities of spellings are added, their best logit is the answer's. Two (N, T);
    the lead is above 0 where the right answer is the likeliest. 0 and infinity at places without
    any spelling. Reduced in float32 or wider.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    known = right >= 0
    picked = wide.gather(-1, right.clamp(min=0))
    picked = torch.where(known, picked, torch.full_like(picked, -torch.inf))
    counted = known.any(-1)
    safe = torch.where(counted.unsqueeze(-1), picked, torch.zeros_like(picked))
    # Padding points at the first spelling, which is no rival anyway.
    own = torch.where(known, right, right[..., :1].clamp(min=0))
    rivals = wide.scatter(-1, own, -torch.inf)
    # Of the odds, which are exact where p is nearly 1 and log p a difference of large numbers.
    log_probs = torch.nn.functional.logsigmoid(safe.logsumexp(-1) - rivals.logsumexp(-1))
    leads = safe.amax(-1) - rivals.amax(-1)
    zeros = torch.zeros_like(leads)
    return torch.where(counted, log_probs, zeros), torch.where(counted, leads, zeros + torch.inf)


def margin_reward(
    log_probs: Tensor, leads: Tensor, *, margin: float = 1.0, weight: float = 1.0
) -> Tensor:
    """VQA reward of RewardFlow (arXiv 2604.08536): two (N, Q) -> (N,).

    R = (1 / Q) sum_j [ log p_j(a*) - weight * max(0, margin - (l_j(a*) - max_{u != a*} l_j(u))) ]

    ``log_probs``: length-normalised log-probability of the right answer to each question, <= 0;
    ``leads``: its logit less that of its best rival. R rises with both. NaN stands for no
    question: it is left out, and a row without any is NaN.

    Differs from the paper: as printed, a minus in front of both terms lowers log p.
    """
    short = (margin - leads).clamp(min=0)
    return (log_probs - weight * short).nanmean(-1)


def grouped_mean(values: Tensor, groups: Tensor) -> Tensor:
    """Mean inside groups, then over groups (AlignEvaluator of PromptEnhancer, arXiv 2509.04545):
    (N, P), group numbers (P,) -> (N,).

    NaN values are not raised: they, and groups without any other, are left out. NaN where all are.
    """
    means = [values[:, groups == g].nanmean(-1) for g in groups.unique()]
    return torch.stack(means, dim=-1).nanmean(-1)
