"""Scores of models that read a text beside its picture (BLIP), per sample."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from t2x.functional.scores import affine_chain

__all__ = ["IMAGE_REWARD_MEAN", "IMAGE_REWARD_STD", "image_reward", "match_logit"]

# Of ImageReward's raw output over its authors' pictures; constants of the published scorer.
IMAGE_REWARD_MEAN = 0.16717362830052426
IMAGE_REWARD_STD = 1.0333394966054072


def image_reward(fused: Tensor, layers: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """ImageReward v1.0 (Xu et al. 2023, arXiv 2304.05977, section 3.2): the fused feature (N, D)
    through affine ``layers``, standardised -> (N,); about -2.3 to 2.3.

    Differs from the paper: its MLP has no activation between layers, as published, so the head is
    affine; dropout is left out. Computed in float32 or wider.
    """
    wide = torch.promote_types(fused.dtype, torch.float32)
    raw = affine_chain(fused.to(wide), [(w.to(wide), b.to(wide)) for w, b in layers])
    return (raw - IMAGE_REWARD_MEAN) / IMAGE_REWARD_STD


def match_logit(logits: Tensor) -> Tensor:
    """Logit of "picture and text match" (BLIP's ITM head, Li et al. 2022, arXiv 2201.12086, section
    3.2): logits (N, 2) of (no match, match) -> (N,). Its sigmoid is the softmax's probability.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return wide[:, 1] - wide[:, 0]
