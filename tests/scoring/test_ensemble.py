"""The ensemble: sharing, weights, missing values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.scoring.ensemble import RewardEnsemble
from t2x.scoring.reward import EncoderReward, Features
from t2x.testing import FakeReward
from t2x.types import Context, Media, RewardModel

from .conftest import PROMPTS


class CountingEncoder:
    """Mean colour of pictures and length of texts; counts its calls."""

    def __init__(self, key: str = "count") -> None:
        self.key = key
        self.calls: list[tuple[int, frozenset[str]]] = []

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str],
        context: Context | None = None,
    ) -> Features:
        self.calls.append((len(prompts), parts))
        assert isinstance(media, Tensor)
        lengths = torch.tensor([float(len(p)) for p in prompts])
        return {"image": media.mean((-2, -1)), "text": lengths}


def _reward(name: str, encoder: CountingEncoder, channel: int, *, text: bool) -> EncoderReward:
    def head(features: Mapping[str, Features]) -> Tensor:
        value = features["main"]["image"][:, channel]
        return value + features["main"]["text"] if text else value

    parts = frozenset({"image", "text"} if text else {"image"})
    return EncoderReward(name, {"main": encoder}, head, "test", range=(0, 1), parts=parts)


def test_an_encoder_runs_once_for_all_its_rewards() -> None:
    encoder, twin = CountingEncoder(), CountingEncoder()
    rewards = [_reward("a", encoder, 0, text=True), _reward("b", twin, 1, text=False)]
    media = torch.rand(3, 3, 4, 4)
    parts = RewardEnsemble(rewards).components(["x", "yy", "zzz"], media)
    assert encoder.calls == [(3, frozenset({"image", "text"}))]
    assert twin.calls == []  # same key, so the first stands in for it
    assert torch.allclose(parts["a"], media[:, 0].mean((1, 2)) + torch.tensor([1.0, 2.0, 3.0]))
    assert torch.allclose(parts["b"], media[:, 1].mean((1, 2)))


def test_encoders_of_other_keys_run_on_their_own() -> None:
    encoder, other = CountingEncoder(), CountingEncoder("other")
    rewards = [_reward("a", encoder, 0, text=False), _reward("b", other, 1, text=False)]
    RewardEnsemble(rewards).score(["x"], torch.rand(1, 3, 4, 4))
    assert (len(encoder.calls), len(other.calls)) == (1, 1)


def test_weighted_sum_with_rewards_of_any_kind(tiny_clip: Path, pictures: torch.Tensor) -> None:
    clip, fake = load_reward("clip", source=tiny_clip), FakeReward()
    both = RewardEnsemble([clip, fake], {"clip": 2.0, "fake-reward": -0.5})
    expected = 2 * clip.score(PROMPTS, pictures) - 0.5 * fake.score(PROMPTS, pictures)
    assert isinstance(both, RewardModel)
    assert torch.allclose(both.score(PROMPTS, pictures), expected, atol=1e-6)
    assert both.range == (-2.5, 2.0)


def test_missing_stays_missing(pictures: torch.Tensor) -> None:
    encoder = CountingEncoder()
    rewards = [_reward("a", encoder, 0, text=False), FakeReward(fails_on="dog")]
    scores = RewardEnsemble(rewards).score(PROMPTS, pictures)
    assert scores.isnan().tolist() == ["dog" in p for p in PROMPTS]
    without = RewardEnsemble(rewards, {"fake-reward": 0.0}).score(PROMPTS, pictures)
    assert not without.isnan().any()


def test_blank_prompts_are_missing_only_where_text_is_read() -> None:
    encoder = CountingEncoder()
    rewards = [_reward("a", encoder, 0, text=True), _reward("b", encoder, 0, text=False)]
    parts = RewardEnsemble(rewards).components([" "], torch.rand(1, 3, 4, 4))
    assert math.isnan(parts["a"].item())
    assert not math.isnan(parts["b"].item())


def test_gradients_add_up(tiny_clip: Path, pictures: torch.Tensor) -> None:
    clip, fake = load_reward("clip", source=tiny_clip), FakeReward()
    media = pictures.clone().requires_grad_()
    both = RewardEnsemble([clip, fake], {"fake-reward": 3.0})

    def gradient(reward: RewardModel) -> Tensor:
        return torch.autograd.grad(reward.score(PROMPTS, media).sum(), media)[0]

    assert torch.allclose(gradient(both), gradient(clip) + 3 * gradient(fake), atol=1e-6)


def test_wrong_shapes_from_a_head_are_noticed() -> None:
    encoder = CountingEncoder()
    wrong = EncoderReward("w", {"main": encoder}, lambda f: f["main"]["image"], "test")
    with pytest.raises(ValueError, match=r"shape \(2, 3\) for 2 pairs"):
        wrong.score(["a", "b"], torch.rand(2, 3, 4, 4))


def test_bad_ensembles_are_refused() -> None:
    with pytest.raises(T2XError, match="names of their own"):
        RewardEnsemble([FakeReward(), FakeReward()])
    with pytest.raises(T2XError, match="names of their own"):
        RewardEnsemble([])
    with pytest.raises(T2XError, match="clp"):
        RewardEnsemble([FakeReward()], {"clp": 1.0})
