"""Temporal consistency and motion: direction, identities, gradients, what cannot be measured."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from t2x.registry import load_reward
from t2x.testing import tiny_open_clip
from t2x.types import RewardModel


def smooth(count: int, seed: int = 0) -> Tensor:
    """Pictures of soft blobs, (count, 3, 64, 64)."""
    small = torch.rand(count, 3, 6, 6, generator=torch.Generator().manual_seed(seed))
    large = torch.nn.functional.interpolate(small, size=(64, 64), mode="bicubic")
    return large.clamp(0, 1)


@pytest.fixture(scope="module")
def consistency() -> RewardModel:
    return load_reward("temporal-consistency", source=tiny_open_clip())


@pytest.fixture(scope="module", params=["motion", "temporal-consistency"])
def reward(request: pytest.FixtureRequest) -> RewardModel:
    options = {} if request.param == "motion" else {"source": tiny_open_clip()}
    return load_reward(request.param, **options)


def test_a_frozen_video_is_perfectly_steady_and_does_not_move(consistency: RewardModel) -> None:
    frozen = smooth(2)[:, None].repeat(1, 4, 1, 1, 1)
    assert consistency.score(["", "x"], frozen).tolist() == pytest.approx([1, 1], abs=1e-5)
    assert load_reward("motion").score(["", "x"], frozen).tolist() == [0, 0]


def test_other_scenes_in_every_frame_are_less_steady(consistency: RewardModel) -> None:
    calm = smooth(1).lerp(smooth(1, 1), torch.tensor([0.0, 0.1, 0.2]).view(3, 1, 1, 1))
    wild = smooth(3, 2)
    steady, torn = consistency.score(["x", "x"], torch.stack([calm, wild])).tolist()
    assert torn < steady < 1


def test_consistency_is_the_mean_cosine_of_neighbours(consistency: RewardModel) -> None:
    media = smooth(3, 2)[None]
    encoder = consistency.encoders["clip"].encoder  # type: ignore[attr-defined]
    e = torch.nn.functional.normalize(encoder.encode_image(media[0]), dim=-1)
    expected = ((e[0] @ e[1]) + (e[1] @ e[2])) / 2
    assert consistency.score(["x"], media).item() == pytest.approx(expected.item(), abs=1e-5)


def square(left: int) -> Tensor:
    picture = torch.ones(3, 64, 64)
    picture[:, 26:38, left : left + 12] = 0
    return picture


def test_motion_of_an_object_grows_with_its_speed_and_contrast() -> None:
    motion = load_reward("motion")
    slow, fast = (torch.stack([square(20 + v * i) for i in range(3)]) for v in (1, 3))
    pale = 0.5 + fast / 2
    media = torch.stack([slow, fast, pale])
    expected = [2 * 12 * v / 64**2 * c for v, c in ((1, 1), (3, 1), (3, 0.5))]
    assert motion.score(["x"] * 3, media).tolist() == pytest.approx(expected)


def test_motion_takes_out_a_pan_and_not_flicker() -> None:
    motion = load_reward("motion")
    large = torch.rand(3, 80, 80, generator=torch.Generator().manual_seed(1))
    pan = torch.stack([large[:, 2 * i : 2 * i + 64, i : i + 64] for i in range(4)])
    flicker = torch.stack([large[:, :64, :64] * f for f in (1.0, 0.5, 1.0, 0.5)])
    still, lit = motion.score(["x", "x"], torch.stack([pan, flicker])).tolist()
    assert still == pytest.approx(0, abs=1e-6) and lit > 0.1
    rigid = load_reward("motion", reach=0)
    assert rigid.score(["x"], pan[None]).item() > 0.2


def test_single_frames_and_bad_pixels_are_nan(reward: RewardModel) -> None:
    one = smooth(2)[:, None]
    assert reward.score(["x", "x"], one).isnan().all()
    media = smooth(6).view(2, 3, 3, 64, 64)
    media[1, 0, 0, 0, 0] = math.inf
    assert reward.score(["x", "x"], media).isnan().tolist() == [False, True]
    mixed = reward.score(["x", "x"], [smooth(1)[None], smooth(3)[None]])
    assert mixed.isnan().tolist() == [True, False]
