"""What a rewrite adds to the set of its group: the reward of DPP-GRPO (arXiv 2511.20647).

The reference set of a candidate is the rest of its group, in place of prompts that were written
before it: G of 5 to 9 is the size that the paper found best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from t2x.functional.diversity import log_det_gain, relevance

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.rollouts.config import SetSection

__all__ = ["SETS", "set_scores", "sets_column"]

SETS = "sets"


def set_scores(
    original: str,
    texts: Sequence[str],
    embed: Callable[[Sequence[str]], Tensor],
    *,
    gain: float = 0.5,
) -> Tensor:
    """Score each of M rewrites of ``original`` beside the others: gain * log det gain +
    (1 - gain) * relevance: (M,) float64.

    ``embed`` gives (M, D). A single rewrite has no others: its gain is log 2.
    """
    import torch

    if not texts:
        return torch.zeros(0, dtype=torch.float64)
    rows = embed([original, *texts]).double()
    query, own = rows[0], rows[1:]
    values = []
    for i in range(len(texts)):
        rest = torch.cat([own[:i], own[i + 1 :]])
        added = log_det_gain(own[i : i + 1], rest)
        fit = relevance(own[i : i + 1], query, rest)
        values.append(gain * added + (1 - gain) * fit)
    return torch.cat(values)


def sets_column(
    section: SetSection,
    embed: Callable[[Sequence[str]], Tensor],
    *,
    originals: Sequence[str],
    texts: Sequence[str | None],
    groups: Sequence[int],
) -> Tensor:
    """Set scores of N rows, (N,) float64: NaN where there is no text to draw."""
    import torch

    column = torch.full((len(texts),), math.nan, dtype=torch.float64)
    for group in dict.fromkeys(groups):
        rows = [i for i, g in enumerate(groups) if g == group and texts[i] is not None]
        words = [str(texts[i]) for i in rows]
        if rows:
            column[rows] = set_scores(originals[rows[0]], words, embed, gain=section.gain)
    return column
