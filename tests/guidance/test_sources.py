"""Which frames of a source, and how large, rewards compare with."""

from __future__ import annotations

import pytest
import torch

from t2x.guidance.sources import beside, frames_shown
from t2x.types import Context


@pytest.mark.parametrize(
    ("chosen", "latents", "decoded", "count", "shown"),
    [
        ([0, 1, 2], 3, 9, 9, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ([0, 2], 3, 5, 9, [0, 5, 6, 7, 8]),
        ([1], 3, 1, 9, [4]),  # the last of its four, as a decoder's first latent shows one frame
        ([0, 2], 3, 8, 9, [0, 0, 0, 0, 5, 6, 7, 8]),  # four of each
        ([0], 1, 1, 1, [0]),
        ([0, 1], 2, 3, 7, [0, 3, 6]),  # of no such decoder
        ([0, 1], 2, 8, 5, [0, 0, 0, 0, 1, 2, 3, 4]),
    ],
)
def test_frames_of_latent_frames(chosen, latents, decoded, count, shown):
    assert frames_shown(chosen, latents, decoded, count) == shown


def test_sources_have_the_size_of_what_is_scored():
    media = torch.rand(2, 3, 8, 12)
    assert beside(None, media) is None
    assert beside(Context(), media) == Context()
    same = Context(source=media)
    assert beside(same, media).source is media
    stripes = torch.zeros(2, 3, 16, 24)
    stripes[..., ::2] = 1.0
    found = beside(Context(source=stripes, user=["ann", "bob"]), media)
    assert found.source.shape == media.shape and found.user == ["ann", "bob"]
    assert (found.source[..., 2:-2] - 0.5).abs().max() < 0.1  # not one of the stripes
    lists = beside(Context(source=[stripes[:1], media[1:]]), media).source
    assert torch.equal(lists[0], found.source[:1]) and torch.equal(lists[1], media[1:])


def test_frames_without_a_decoder_that_tells():
    video = torch.arange(9.0).view(1, 9, 1, 1, 1).expand(1, 9, 3, 4, 4) / 10
    found = beside(Context(source=video), video[:, :3]).source
    assert (found[0, :, 0, 0, 0] * 10).tolist() == pytest.approx([0, 4, 8])
    still = beside(Context(source=video[:, 0]), video).source
    assert torch.equal(still, video[:, 0])  # a picture is beside every frame
