"""The contract of rewards: pairs, NaN, gradients, order, batches, determinism."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from t2x.functional.scores import cosine
from t2x.media import from_pil
from t2x.registry import load_reward
from t2x.scoring.clip_encoder import load_clip
from t2x.types import RewardModel

from .conftest import PROMPTS


@pytest.fixture
def reward(tiny_clip: Path) -> RewardModel:
    return load_reward("clip", source=tiny_clip)


def test_is_a_reward_model(reward: RewardModel) -> None:
    assert isinstance(reward, RewardModel)
    assert reward.scale == "cos"
    assert reward.range == (-1.0, 1.0)


@pytest.mark.parametrize("n", [0, 1, 2, 6])
def test_n_pairs_give_n_scores(reward: RewardModel, pictures: torch.Tensor, n: int) -> None:
    scores = reward.score(PROMPTS[:n], pictures[:n])
    assert scores.shape == (n,)
    assert scores.dtype == torch.float32
    assert not scores.requires_grad


def test_mismatch_and_wrong_types_are_refused(reward: RewardModel, pictures: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="2 prompts and 6 media"):
        reward.score(PROMPTS[:2], pictures)
    with pytest.raises(TypeError, match="list of strings"):
        reward.score("a cat", pictures[:1])
    with pytest.raises(TypeError, match="from_pil"):
        reward.score(["a"], [Image.new("RGB", (8, 8))])
    with pytest.raises(ValueError, match="from_pil"):
        reward.score(["a"], torch.rand(1, 4, 8, 8))
    with pytest.raises(ValueError, match="floats"):
        reward.score(["a"], torch.zeros(1, 3, 8, 8, dtype=torch.uint8))
    with pytest.raises(ValueError, match="between 0 and 255, allowed"):
        reward.score(["a"], torch.linspace(0, 255, 192).reshape(1, 3, 8, 8))
    with pytest.raises(ValueError, match="between -1 and 1"):
        reward.score(["a"], torch.linspace(-1, 1, 192).reshape(1, 3, 8, 8))
    for shape in [(1, 3, 0, 5), (1, 3, 5, 0)]:
        with pytest.raises(ValueError, match="no pixels"):
            reward.score(["a"], torch.rand(shape))
    slightly = torch.linspace(-0.1, 1.1, 192).reshape(1, 3, 8, 8)  # as in the midst of guidance
    assert bool(reward.score(["a"], slightly).isfinite())
    with pytest.raises(ValueError, match="images of shape"):
        reward.score(["a"], torch.rand(1, 2, 3, 8, 8))


def test_order_of_pairs_does_not_matter(reward: RewardModel, pictures: torch.Tensor) -> None:
    order = torch.tensor([4, 0, 5, 2, 1, 3])
    scores = reward.score(PROMPTS, pictures)
    turned = reward.score([PROMPTS[i] for i in order], pictures[order])
    assert torch.allclose(turned, scores[order], atol=1e-6)
    assert scores.unique().numel() == 6


def test_batch_equals_singles(reward: RewardModel, pictures: torch.Tensor) -> None:
    together = reward.score(PROMPTS, pictures)
    apart = [reward.score([p], pictures[i : i + 1]) for i, p in enumerate(PROMPTS)]
    # Stated tolerance: float32 sums in another order.
    assert torch.allclose(together, torch.cat(apart), atol=1e-6)


def test_same_input_same_score(reward: RewardModel, pictures: torch.Tensor) -> None:
    assert torch.equal(reward.score(PROMPTS, pictures), reward.score(PROMPTS, pictures))


def test_what_cannot_be_measured_is_nan_and_the_rest_is_not(
    reward: RewardModel, pictures: torch.Tensor
) -> None:
    expected = reward.score(PROMPTS, pictures)
    broken = pictures.clone()
    broken[1, 0, 3, 3] = math.nan
    broken[4, 2, 0, 0] = math.inf
    prompts = [*PROMPTS[:5], "  \n"]
    scores = reward.score(prompts, broken)
    assert scores.isnan().tolist() == [False, True, False, False, True, True]
    assert torch.allclose(scores[[0, 2, 3]], expected[[0, 2, 3]], atol=1e-6)


def test_gradient_reaches_the_pixels_and_raises_the_score(
    reward: RewardModel, pictures: torch.Tensor
) -> None:
    media = pictures.clone().requires_grad_()
    scores = reward.score(PROMPTS, media)
    (gradient,) = torch.autograd.grad(scores.sum(), media)
    norms = gradient.flatten(1).norm(dim=1)
    assert (norms > 0).all()
    with torch.no_grad():
        step = 0.5 * gradient / norms.view(-1, 1, 1, 1)
        assert (reward.score(PROMPTS, media + step) > scores).all()


def test_no_graph_unless_asked_for(reward: RewardModel, pictures: torch.Tensor) -> None:
    media = pictures.clone().requires_grad_()
    with torch.no_grad():
        assert not reward.score(PROMPTS, media).requires_grad
    assert torch.allclose(
        reward.score(PROMPTS, media).detach(), reward.score(PROMPTS, pictures), atol=1e-6
    )


def test_finite_differences_in_float64(tiny_clip: Path, pictures: torch.Tensor) -> None:
    """Of the path that does not round; rounding as PIL does leaves the gradient as it is."""
    rounding = load_clip(tiny_clip, dtype=torch.float64)
    encoder = rounding.with_preprocess(replace(rounding.preprocess, rounded=False))
    media = pictures[:1].double().requires_grad_()
    text = encoder.encode_text(PROMPTS[:1])

    def value(x: torch.Tensor) -> torch.Tensor:
        return cosine(encoder.encode_image(x), text).sum()

    (gradient,) = torch.autograd.grad(value(media), media)
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        way = torch.randn(media.shape, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            slope = (value(media + 1e-5 * way) - value(media - 1e-5 * way)) / 2e-5
        assert slope.item() == pytest.approx((gradient * way).sum().item(), rel=1e-5, abs=1e-9)
    by_rounding = torch.autograd.grad(cosine(rounding.encode_image(media), text).sum(), media)[0]
    off = (by_rounding - gradient).norm() / gradient.norm()
    assert 0 < off < 0.05


def test_grey_and_transparent_pictures_go_through_from_pil(reward: RewardModel) -> None:
    grey = Image.new("L", (40, 40), 128)
    clear = Image.new("RGBA", (40, 40), (255, 0, 0, 0))
    plain = [Image.new("RGB", (40, 40), (128,) * 3), Image.new("RGB", (40, 40), "white")]
    scores = reward.score(["a cat"] * 2, from_pil([grey, clear]))
    assert torch.allclose(scores, reward.score(["a cat"] * 2, from_pil(plain)), atol=1e-6)


def test_pictures_of_several_sizes(reward: RewardModel, pictures: torch.Tensor) -> None:
    media = [pictures[:1], pictures[1:2, :, :, :40]]
    scores = reward.score(PROMPTS[:2], media)
    assert torch.allclose(scores[0], reward.score(PROMPTS[:1], pictures[:1])[0], atol=1e-6)
