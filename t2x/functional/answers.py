"""Probabilities of answers, from the logits of a language model at the place where it answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["answer_probability"]


def answer_probability(
    logits: Tensor, answer: Sequence[int], against: Sequence[int] = ()
) -> Tensor:
    """P(answer | picture, question) (VQAScore, Lin et al. 2024, arXiv 2404.01291, eq. 1): (N,) in
    [0, 1].

    ``logits`` (N, V); ``answer``: ids of the answer's spellings, their probabilities are added.
    With ``against`` the rest of the vocabulary is left out: P(answer) / (P(answer) + P(against)).

    Differs from the paper: its encoder-decoder counts the closing token of the answer as well,
    which makes the value about the square root of this one.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    chosen = wide[:, list(answer)].logsumexp(-1)
    if not against:
        return (chosen - wide.logsumexp(-1)).exp()
    return torch.sigmoid(chosen - wide[:, list(against)].logsumexp(-1))
