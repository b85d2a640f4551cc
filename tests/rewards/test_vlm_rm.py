"""VLM-RM: the projection in a CLIP's space, its baseline, and what it can't measure."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from t2x.errors import T2XError
from t2x.functional.scores import goal_baseline_score
from t2x.registry import load_reward
from t2x.testing import tiny_open_clip

PROMPTS = ["a cat", "two red dogs", "a bus above a car"]


@pytest.fixture(scope="module")
def clip() -> tuple[Any, Any]:
    return tiny_open_clip()


@pytest.fixture
def pictures() -> torch.Tensor:
    return torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_projects_onto_the_line_from_baseline_to_prompt(
    clip: tuple[Any, Any], pictures: torch.Tensor
) -> None:
    baselines = ["a picture", "a photo"]
    reward = load_reward("vlm-rm", source=clip, baseline=baselines, alpha=0.4)
    encoder = reward.encoders["clip"]
    unit = torch.nn.functional.normalize
    goal, base = (unit(encoder.encode_text(t), dim=-1) for t in (PROMPTS, baselines))
    image = encoder.encode_image(pictures)
    expected = goal_baseline_score(image, goal, base.mean(0), alpha=0.4)
    scores = reward.score(PROMPTS, pictures)
    assert torch.allclose(scores, expected, atol=1e-6)
    swapped = load_reward("vlm-rm", source=clip, baseline="two red dogs", alpha=0.4)
    assert (swapped.score(["a cat"], pictures[:1]) - scores[:1]).abs() > 1e-4


def test_alpha_0_is_the_cosine(clip: tuple[Any, Any], pictures: torch.Tensor) -> None:
    scores = load_reward("vlm-rm", source=clip, alpha=0.0).score(PROMPTS, pictures)
    cos = load_reward("clip", source=clip).score(PROMPTS, pictures)
    assert torch.allclose(scores, cos, atol=1e-6)
    half = load_reward("vlm-rm", source=clip, alpha=0.5).score(PROMPTS, pictures)
    assert (half - cos).abs().min() > 1e-3


def test_a_prompt_that_is_the_baseline_is_missing_and_logged(
    clip: tuple[Any, Any], pictures: torch.Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    reward = load_reward("vlm-rm", source=clip, baseline="a cat")
    media = pictures.clone().requires_grad_()
    with caplog.at_level(logging.WARNING):
        scores = reward.score(PROMPTS, media)
    assert scores.isnan().tolist() == [True, False, False]
    assert "1 prompts equal the baseline" in caplog.text
    (gradient,) = torch.autograd.grad(scores[1:].sum(), media)
    assert gradient[1:].isfinite().all() and (gradient[1:].flatten(1).norm(dim=1) > 0).all()


def test_what_makes_no_sense_is_refused(clip: tuple[Any, Any]) -> None:
    with pytest.raises(T2XError, match="alpha must be in"):
        load_reward("vlm-rm", source=clip, alpha=1.5)
    with pytest.raises(T2XError, match="not blank"):
        load_reward("vlm-rm", source=clip, baseline=[])
    with pytest.raises(T2XError, match="not blank"):
        load_reward("vlm-rm", source=clip, baseline=" ")
