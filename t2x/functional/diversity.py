"""How much a candidate adds to a set: the determinantal point process of DPP-GRPO."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["log_det", "log_det_gain", "relevance"]


def log_det(sets: Tensor) -> Tensor:
    """log det(L + I), the diversity of sets (DPP-GRPO, arXiv 2511.20647): embeddings (B, G, D) ->
    (B,) in [log(1 + G), G log 2].

    L holds cosines: G copies of one give log(1 + G), G that are orthogonal G log 2. It is the sum
    of what each member adds to those before it (``log_det_gain``).
    """
    wide = torch.promote_types(sets.dtype, torch.float32)
    rows = F.normalize(sets.to(wide), dim=-1)
    kernel = rows @ rows.mT + torch.eye(rows.shape[1], dtype=wide, device=rows.device)
    return torch.logdet(kernel)


def log_det_gain(candidates: Tensor, reference: Tensor) -> Tensor:
    """log det(L + I) of the reference with each candidate, minus that of the reference alone
    (DPP-GRPO, arXiv 2511.20647): candidates (P, D), reference (R, D) -> (P,) in [0, log 2].

    L holds cosines of embeddings. By Schur's complement the gain is log(2 - v (L + I)^-1 v), v the
    cosines of a candidate with the reference: log 2 for one orthogonal to all, or with R = 0; log
    1.5 for the copy of the only reference; log((n + 2) / (n + 1)) for one more copy of n equal
    ones, which is never minus infinity. A candidate with NaN is NaN, a reference row with NaN is
    left out. Differentiable in both.

    Differs from the paper: it writes the gain without "+ I", which is minus infinity for a
    duplicate; here gain and diversity both have it.
    """
    wide = torch.promote_types(candidates.dtype, torch.float32)
    kept = reference[~reference.isnan().any(1)]
    p, r = F.normalize(candidates.to(wide), dim=-1), F.normalize(kept.to(wide), dim=-1)
    if len(r) == 0:
        return torch.log(1 + p.square().sum(-1))
    kernel = r @ r.T + torch.eye(len(r), dtype=wide, device=r.device)
    cosines = p @ r.T  # (P, R)
    explained = (cosines * torch.linalg.solve(kernel, cosines.T).T).sum(-1)
    return torch.log((1 + p.square().sum(-1) - explained).clamp(min=1))


def relevance(candidates: Tensor, query: Tensor, reference: Tensor) -> Tensor:
    """mean over g in R of cos(p, q) cos(p, g), how much a prompt belongs to its query and its set
    (DPP-GRPO, arXiv 2511.20647): (P, D), (D,), (R, D) -> (P,) in [-1, 1].

    With R = 0 it is cos(p, q).
    """
    wide = torch.promote_types(candidates.dtype, torch.float32)
    p, q = F.normalize(candidates.to(wide), dim=-1), F.normalize(query.to(wide), dim=-1)
    own = p @ q
    if len(reference) == 0:
        return own
    return own * (p @ F.normalize(reference.to(wide), dim=-1).T).mean(-1)
