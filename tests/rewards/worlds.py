"""Rendered pictures of the emoji world with right and wrong captions."""

from __future__ import annotations

import torch
from torch import Tensor

from t2x.types import RewardModel
from t2x.world.corruption import to_pictures
from t2x.world.prompts import held_out_prompts
from t2x.world.render import render_scene
from t2x.world.reward_auc import auc


def captioned(n: int = 48, seed: int = 5) -> tuple[Tensor, list[str], list[str]]:
    """``n`` (in sixes) pictures of held-out prompts, those prompts, and prompts of other pictures
    of the same task.
    """
    prompts = held_out_prompts(n, seed)
    pictures = to_pictures([render_scene(p.scene, i) for i, p in enumerate(prompts)])
    texts = [p.text for p in prompts]
    return pictures, texts, texts[6:] + texts[:6]


def caption_auc(reward: RewardModel, n: int = 48) -> float:
    """Odds that a right pair scores above a wrong one."""
    pictures, right, wrong = captioned(n)
    with torch.no_grad():
        scores = torch.cat([reward.score(right, pictures), reward.score(wrong, pictures)])
    assert not scores.isnan().any()
    return auc(scores, torch.arange(2 * n) < n)
