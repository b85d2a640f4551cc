"""Rewards on boxes and masks."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import pytest
import torch

from t2x.errors import T2XError
from t2x.registry import load_reward
from t2x.scoring.region import RegionReward
from t2x.testing import FakeReward
from t2x.types import Context, Media, RewardModel

RED = RegionReward(FakeReward(channel=0))
HALVES = torch.tensor([[[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0]]])


def halves(n: int = 1, *, left: float = 1.0, right: float = 0.0) -> torch.Tensor:
    picture = torch.full((n, 3, 8, 10), right)
    picture[..., :5] = left
    return picture


class Recorder:
    """Keeps what it is given; scores 0."""

    name, modality, scale, range, differentiable = "recorder", "image", "none", (0.0, 0.0), False

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> torch.Tensor:
        self.prompts, self.media, self.context = list(prompts), media, context
        return torch.zeros(len(prompts))


def test_is_a_reward_that_says_what_it_wraps() -> None:
    assert isinstance(RED, RewardModel)
    assert RED.name == "region-fake-reward"
    assert RED.range == (0.0, 1.0) and RED.differentiable
    assert "mean over regions (crop)" in RED.scale


@pytest.mark.parametrize(("reduce", "expected"), [("mean", 0.5), ("min", 0.0), ("max", 1.0)])
def test_boxes_are_cut_out_and_reduced(reduce: str, expected: float) -> None:
    reward = RegionReward(FakeReward(channel=0), reduce=reduce)
    assert reward.score(["x"], halves(), context=Context(boxes=HALVES)).tolist() == [expected]


def test_each_sample_has_its_boxes_and_nan_rows_are_padding() -> None:
    boxes = torch.full((3, 2, 4), math.nan)
    boxes[0, 0] = torch.tensor([0.0, 0.0, 0.5, 1.0])
    boxes[1] = HALVES[0]
    scores = RED.score(["a", "b", "c"], halves(3), context=Context(boxes=boxes))
    assert scores[:2].tolist() == [1.0, 0.5]
    assert scores[2].isnan()


def test_empty_boxes_and_no_regions_are_nan_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    boxes = HALVES.expand(2, -1, -1).clone()
    boxes[1, 0] = torch.tensor([0.4, 0.0, 0.4, 1.0])
    with caplog.at_level(logging.WARNING):
        scores = RED.score(["a", "b"], halves(2), context=Context(boxes=boxes))
        assert scores.isnan().tolist() == [False, True]
        assert "1 of 2 samples lack a region" in caplog.text
        for context in (None, Context(), Context(mask=torch.zeros(2, 1, 8, 10))):
            caplog.clear()
            assert RED.score(["a", "b"], halves(2), context=context).isnan().all()
            assert "none of 2 samples has a region" in caplog.text
    assert RED.score([], torch.zeros(0, 3, 8, 8)).shape == (0,)


def test_boxes_end_at_the_picture_and_touch_whole_pixels() -> None:
    inner = Recorder()
    boxes = torch.tensor([[[-0.2, 0.3, 0.3, 1.4], [0.99, 0.0, 1.0, 0.01], [0.31, 0.0, 0.6, 1.0]]])
    picture = torch.rand(1, 3, 10, 10)
    RegionReward(inner).score(["x"], picture, context=Context(boxes=boxes))
    assert [tuple(m.shape[-2:]) for m in inner.media] == [(7, 3), (1, 1), (10, 3)]
    assert torch.equal(inner.media[0], picture[..., 3:, :3])
    assert inner.prompts == ["x"] * 3


def test_grey_keeps_the_picture_s_size() -> None:
    inner = Recorder()
    picture = torch.rand(1, 3, 8, 10)
    reward = RegionReward(inner, mode="grey", fill=0.25)
    reward.score(["x"], picture, context=Context(boxes=HALVES[:, :1]))
    (seen,) = inner.media
    assert torch.equal(seen[..., :5], picture[..., :5])
    assert (seen[..., 5:] == 0.25).all()


def test_a_mask_alone_is_cut_out_along_its_rectangle_and_greyed_inside_of_it() -> None:
    inner = Recorder()
    picture = torch.rand(1, 3, 9, 7)
    mask = torch.zeros(1, 1, 9, 7)
    mask[0, 0, 2, 3] = mask[0, 0, 6, 5] = 1
    for mode in ("crop", "both"):
        RegionReward(inner, mode=mode).score(["x"], picture, context=Context(mask=mask))
        (seen,) = inner.media
        assert seen.shape == (1, 3, 5, 3)
        assert torch.equal(seen[0, :, 0, 0], picture[0, :, 2, 3])
        inside = torch.full((3,), 0.6) if mode == "both" else picture[0, :, 3, 4]
        assert torch.equal(seen[0, :, 1, 1], inside)


def test_the_context_is_that_of_the_region() -> None:
    inner = Recorder()
    source = torch.rand(2, 3, 16, 20)
    boxes = torch.full((2, 2, 4), math.nan)
    boxes[1] = HALVES[0]
    context = Context(source=source, boxes=boxes, user=["ann", "bob"], questions=[["a"], ["b"]])
    RegionReward(inner).score(["x", "y"], halves(2), context=context)
    seen = inner.context
    assert seen is not None and seen.boxes is None and seen.mask is None
    assert seen.user == ["bob", "bob"] and seen.questions == [["b"], ["b"]]
    assert isinstance(seen.source, list)
    assert torch.equal(seen.source[1], source[1:, :, :, 10:])
    assert inner.prompts == ["y", "y"]


def test_each_box_is_scored_against_its_own_phrase() -> None:
    recorder = Recorder()
    nothing = [math.nan] * 4
    boxes = torch.tensor([[nothing, [0, 0, 1, 1]], [[0, 0, 1, 1], nothing]])
    context = Context(boxes=boxes, phrases=[["a cat", "a dog"], []])
    RegionReward(recorder).score(["both", "none"], torch.rand(2, 3, 8, 8), context=context)
    assert recorder.prompts == ["a dog", "none"]
    assert recorder.context is not None and recorder.context.phrases is None


def test_gradient_reaches_the_region_and_nothing_else() -> None:
    for mode in ("crop", "grey", "both"):
        media = halves().requires_grad_()
        reward = RegionReward(FakeReward(channel=0), mode=mode)
        reward.score(["x"], media, context=Context(boxes=HALVES[:, :1])).sum().backward()
        assert media.grad is not None
        assert (media.grad[:, 0, :, :5] > 0).all()
        assert (media.grad[..., 5:] == 0).all()
    assert not RED.score(["x"], halves(), context=Context(boxes=HALVES)).requires_grad


def test_batch_equals_singles_with_a_real_reward() -> None:
    reward = load_reward("region", reward="t2x.testing:FakeReward", channel=1)
    media = torch.rand(3, 3, 12, 12)
    boxes = torch.tensor([[[0.0, 0.0, 0.4, 0.5]], [[0.2, 0.1, 1.0, 1.0]], [[0.5, 0.5, 0.9, 0.9]]])
    together = reward.score(["a"] * 3, media, context=Context(boxes=boxes))
    apart = [
        reward.score(["a"], media[i : i + 1], context=Context(boxes=boxes[i : i + 1]))
        for i in range(3)
    ]
    assert torch.allclose(together, torch.cat(apart))
    as_list = reward.score(["a"] * 3, list(media.split(1)), context=Context(boxes=boxes))
    assert torch.equal(as_list, together)


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(T2XError, match="crop, grey, both"):
        RegionReward(FakeReward(), mode="blur")
    with pytest.raises(T2XError, match="mean, min, max"):
        RegionReward(FakeReward(), reduce="sum")
    with pytest.raises(T2XError, match="regions are of pictures"):
        RegionReward(FakeReward(modality="video"))
    with pytest.raises(ValueError, match="boxes must be"):
        RED.score(["a"], halves(), context=Context(boxes=torch.zeros(1, 4)))
    with pytest.raises(ValueError, match="mask must be"):
        RED.score(["a"], halves(), context=Context(mask=torch.zeros(1, 8, 10)))
    with pytest.raises(ValueError, match="2 prompts and 1 media"):
        RED.score(["a", "b"], halves(), context=Context(boxes=HALVES))
