"""What a judge that scores its own work does to the scores."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["self_preference_bias"]


def self_preference_bias(judged: Tensor, truth: Tensor) -> Tensor:
    """P(judge prefers its own | its own is better) - P(judge prefers the other | the other is
    better) (Wataoka et al. 2024, arXiv 2410.21819, section 3): a scalar in [-1, 1].

    ``judged`` and ``truth`` (N,): score of its own work minus that of another's, by the judge and
    by an outside measure. 0 is no bias, above 0 the judge favours its own. Rows where one of them
    is NaN, and where ``truth`` is a tie, are left out; a judge's tie counts half. NaN without both
    kinds of rows.

    Differs from the paper: what is better is measured, by another reward, not told by people.
    """
    known = ~(judged.isnan() | truth.isnan())
    wins = (judged > 0).double() + (judged == 0).double() / 2
    own, other = known & (truth > 0), known & (truth < 0)
    nan = torch.tensor(torch.nan, dtype=torch.float64)
    agrees = wins[own].mean() if bool(own.any()) else nan
    defends = (1 - wins[other]).mean() if bool(other.any()) else nan
    return agrees - defends
