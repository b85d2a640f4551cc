"""Rewards of pictures on videos: the mean over frames, one pass, any length and size."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.scoring.ensemble import RewardEnsemble
from t2x.scoring.frames import frames
from t2x.testing import FakeReward
from t2x.types import Context, Media, RewardModel

from .test_ensemble import CountingEncoder, _reward

PROMPTS = ["a cat", "two dogs"]


def videos(count: int = 2, length: int = 3, size: int = 40) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.rand(count, length, 3, size, size, generator=generator)


@pytest.mark.parametrize("kind", ["encoder", "plain"])
def test_it_is_the_mean_over_frames(tiny_clip: Path, kind: str) -> None:
    inner = load_reward("clip", source=tiny_clip) if kind == "encoder" else FakeReward()
    reward, media = frames(inner), videos()
    assert isinstance(reward, RewardModel) and reward.modality == "video"
    assert reward.name == f"{inner.name}-frames" and reward.range == inner.range
    expected = torch.stack(
        [inner.score([p] * 3, v).mean() for p, v in zip(PROMPTS, media, strict=True)]
    )
    got = reward.score(PROMPTS, media)
    assert got.shape == (2,) and torch.allclose(got, expected, atol=1e-5)
    assert torch.allclose(reward.score(PROMPTS[:1], media[:1]), expected[:1], atol=1e-5)
    turned = reward.score(PROMPTS[::-1], media.flip(0))
    assert torch.allclose(turned.flip(0), got, atol=1e-5)
    assert reward.score([], media[:0]).shape == (0,)


@pytest.mark.parametrize("kind", ["encoder", "plain"])
def test_videos_of_several_lengths_and_sizes(tiny_clip: Path, kind: str) -> None:
    inner = load_reward("clip", source=tiny_clip) if kind == "encoder" else FakeReward()
    reward = frames(inner)
    one, other = videos(1, 2, 40), videos(1, 5, 48)
    got = reward.score(PROMPTS, [one, other])
    apart = [reward.score(PROMPTS[:1], one), reward.score(PROMPTS[1:], other)]
    assert torch.allclose(got, torch.cat(apart), atol=1e-5)


def test_one_pass_for_all_rewards_of_a_video() -> None:
    encoder = CountingEncoder()
    pair = [frames(_reward(n, encoder, i, text=n == "a")) for i, n in enumerate("ab")]
    media = videos(2, 4)
    parts = RewardEnsemble(pair).components(["x", "yy"], media)
    assert encoder.calls == [(8, frozenset({"image", "text"}))]
    assert torch.allclose(parts["b-frames"], media[:, :, 1].mean((1, 2, 3)))
    expected = media[:, :, 0].mean((1, 2, 3)) + torch.tensor([1.0, 2.0])
    assert torch.allclose(parts["a-frames"], expected)


def test_temporal_consistency_shares_the_pass(tiny_clip: Path) -> None:
    clip = frames(load_reward("clip", source=tiny_clip))
    steady = load_reward("temporal-consistency", source=tiny_clip)
    keys = {e.key for r in (clip, steady) for e in r.encoders.values()}  # type: ignore[union-attr]
    assert len(keys) == 1


def test_some_frames_evenly_spaced() -> None:
    media = videos(1, 9)
    for wanted, chosen in {1: [4], 2: [0, 8], 3: [0, 4, 8], 9: range(9), 20: range(9)}.items():
        got = frames(FakeReward(), max_frames=wanted).score(["x"], media)
        assert got.item() == pytest.approx(media[0, list(chosen), 0].mean().item(), abs=1e-6)


class _Blinking(FakeReward):
    """Can't see dark frames."""

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        values = super().score(prompts, media)
        return torch.where(values < 0.1, math.nan, values)


def test_a_frame_that_is_missing_leaves_the_mean(caplog: pytest.LogCaptureFixture) -> None:
    media = torch.full((2, 3, 3, 4, 4), 0.5)
    media[0, 1], media[1] = 0, 0
    with caplog.at_level(logging.WARNING):
        got = frames(_Blinking()).score(PROMPTS, media)
    assert got[0].item() == pytest.approx(0.5) and got[1].isnan()
    assert "1 of 3 frames" in caplog.text and "3 of 3 frames" in caplog.text


def test_pixels_that_are_not_finite_make_their_video_nan(tiny_clip: Path) -> None:
    media = videos()
    media[1, 2, 0, 0, 0] = math.nan
    got = frames(load_reward("clip", source=tiny_clip)).score(PROMPTS, media)
    assert got.isnan().tolist() == [False, True]


def test_every_frame_gets_its_video_s_context() -> None:
    seen: list[Context | None] = []

    class Watching(FakeReward):
        def score(self, prompts: Sequence[str], media: Media, *, context=None) -> Tensor:
            seen.append(context)
            return super().score(prompts, media)

    source = torch.rand(2, 3, 4, 4)
    context = Context(source=source, user=["ann", "bob"], fps=8.0)
    frames(Watching()).score(PROMPTS, [videos(1, 2), videos(1, 1)], context=context)
    (got,) = seen
    assert got is not None and got.user == ["ann", "ann", "bob"] and got.fps == 8.0
    assert torch.equal(got.source, source[[0, 0, 1]])  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [None, 2])
def test_every_frame_is_compared_with_its_own_of_the_source(most: int | None) -> None:
    class Closeness(FakeReward):
        def score(self, prompts: Sequence[str], media: Media, *, context=None) -> Tensor:
            return -(media - context.source).abs().flatten(1).amax(1)

    media = videos(2, 5, 8)
    reward = frames(Closeness(), max_frames=most)
    assert reward.score(PROMPTS, media, context=Context(source=media)).tolist() == [0.0, 0.0]
    turned = reward.score(PROMPTS, media, context=Context(source=media.flip(1)))
    assert bool((turned < -0.1).all())
    lists = [list(media.split(1)), [videos(1, 5, 8), media[1:]]]
    found = reward.score(PROMPTS, lists[0], context=Context(source=lists[1]))
    assert found[1] == 0 and torch.equal(
        found[:1], reward.score(PROMPTS[:1], media[:1], context=Context(source=lists[1][0]))
    )
    if most is None:
        with pytest.raises(ValueError, match="same lengths"):
            reward.score(PROMPTS, media, context=Context(source=media[:, 1:]))


def test_gradient_reaches_every_frame(tiny_clip: Path) -> None:
    media = videos().requires_grad_()
    frames(load_reward("clip", source=tiny_clip)).score(PROMPTS, media).sum().backward()
    assert media.grad is not None and (media.grad.abs().amax((2, 3, 4)) > 0).all()


def test_what_can_not_be_is_refused(tiny_clip: Path) -> None:
    reward = frames(FakeReward())
    with pytest.raises(T2XError, match="videos already"):
        frames(reward)
    with pytest.raises(T2XError, match="max_frames"):
        frames(FakeReward(), max_frames=0)
    with pytest.raises(ValueError, match="scores videos of shape"):
        reward.score(PROMPTS, torch.rand(2, 3, 4, 4))
    with pytest.raises(ValueError, match="no frames"):
        reward.score(["x"], torch.rand(1, 0, 3, 4, 4))
