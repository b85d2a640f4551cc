"""SigLIP: scales, and the same numbers as transformers' own model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.testing import tiny_open_clip, tiny_siglip

PROMPTS = ["a red cat", "two dogs", "the small bus"]


@pytest.fixture(scope="module")
def siglip() -> tuple[Any, Any]:
    return tiny_siglip()


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_logit_and_probability_equal_the_model_s_own(
    siglip: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    model, processor = siglip
    ids = processor.tokenizer(PROMPTS, padding="max_length", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        logits = model(input_ids=ids, pixel_values=(pictures - 0.5) / 0.5).logits_per_image.diag()
    score = {
        scale: load_reward("siglip", source=siglip, scale=scale).score(PROMPTS, pictures)
        for scale in ("probability", "logit", "cos")
    }
    assert torch.allclose(score["logit"], logits, atol=1e-5)
    assert torch.allclose(score["probability"], logits.sigmoid(), atol=1e-6)
    cos = (logits - model.logit_bias) / model.logit_scale.exp()
    assert torch.allclose(score["cos"], cos, atol=1e-6)


def test_what_is_no_siglip_is_refused() -> None:
    with pytest.raises(T2XError, match="no logit bias"):
        load_reward("siglip", source=tiny_open_clip())
    with pytest.raises(T2XError, match="probability, logit, cos"):
        load_reward("siglip", source=tiny_siglip(), scale="sigmoid")
