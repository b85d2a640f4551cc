"""PickScore: scales, the processor that lies elsewhere, the contract of rewards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.testing import tiny_transformers_clip

PROMPTS = ["a red cat", "two dogs", "the small bus"]


@pytest.fixture(scope="module")
def clip() -> tuple[Any, Any]:
    return tiny_transformers_clip()


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_logit_equals_the_model_s_own(clip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    model, processor = clip
    ids = processor.tokenizer(PROMPTS, padding=True, return_tensors="pt")
    mean, std = (
        torch.tensor(v).view(3, 1, 1)
        for v in (processor.image_processor.image_mean, processor.image_processor.image_std)
    )
    with torch.no_grad():
        logits = model(**ids, pixel_values=(pictures - mean) / std).logits_per_image.diag()
    reward = load_reward("pickscore", source=clip)
    assert torch.allclose(reward.score(PROMPTS, pictures), logits, atol=1e-5)
    cos = load_reward("pickscore", source=clip, scale="cos").score(PROMPTS, pictures)
    assert torch.allclose(cos, logits / model.logit_scale.exp(), atol=1e-6)


def test_weights_and_processor_from_two_folders(
    clip: tuple[Any, Any], pictures: torch.Tensor, tmp_path: Path
) -> None:
    for part, name in zip(clip, ("model", "processor"), strict=True):
        part.save_pretrained(tmp_path / name)
    reward = load_reward("pickscore", source=tmp_path / "model", processor=tmp_path / "processor")
    expected = load_reward("pickscore", source=clip).score(PROMPTS, pictures)
    assert torch.allclose(reward.score(PROMPTS, pictures), expected, atol=1e-5)


def test_unknown_scale_lists_the_known_ones(clip: tuple[Any, Any]) -> None:
    with pytest.raises(T2XError, match="logit, cos"):
        load_reward("pickscore", source=clip, scale="x100")
