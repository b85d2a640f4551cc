"""CLIPScore: named scales, prefix, and the same numbers as stock open_clip."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.registry import load_reward

PROMPTS = ["a cat", "two red dogs", "a bus above a car"]


def test_cosine_and_logit_equal_open_clips_own(
    clip: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    model, tokenize = clip
    from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (OPENAI_DATASET_MEAN, OPENAI_DATASET_STD))
    with torch.no_grad():
        logits, _ = model.get_logits((pictures - mean) / std, tokenize(PROMPTS))
    by_logit = load_reward("clip", source=clip, scale="logit").score(PROMPTS, pictures)
    assert torch.allclose(by_logit, logits.diag(), atol=1e-5)
    cos = load_reward("clip", source=clip).score(PROMPTS, pictures)
    assert torch.allclose(cos, logits.diag() / model.logit_scale.exp(), atol=1e-6)


def test_scales_are_what_their_names_say(clip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    rewards = {s: load_reward("clip", source=clip, scale=s) for s in ("cos", "clipscore", "x100")}
    scores = {s: r.score(PROMPTS, pictures) for s, r in rewards.items()}
    assert torch.allclose(scores["x100"], 100 * scores["cos"], rtol=1e-5)
    assert torch.allclose(scores["clipscore"], 2.5 * scores["cos"].clamp(min=0), rtol=1e-5)
    for scale, reward in rewards.items():
        low, high = reward.range
        assert reward.scale == scale
        assert bool(((scores[scale] >= low) & (scores[scale] <= high)).all())


def test_prefix_changes_the_text(clip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    told = load_reward("clip", source=clip, prefix="A photo depicts ").score(PROMPTS, pictures)
    full = [f"A photo depicts {p}" for p in PROMPTS]
    plain = load_reward("clip", source=clip)
    assert torch.allclose(told, plain.score(full, pictures), atol=1e-6)
    assert not torch.allclose(told, plain.score(PROMPTS, pictures), atol=1e-4)


def test_unknown_scale_lists_the_known_ones(clip: tuple[Any, Any]) -> None:
    with pytest.raises(T2XError, match="cos, clipscore, x100, logit"):
        load_reward("clip", source=clip, scale="percent")
