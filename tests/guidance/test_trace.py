"""What a trace keeps, and what it gives back."""

from __future__ import annotations

import json
import math

import pytest
import torch

from t2x.guidance.trace import GuidanceTrace
from t2x.testing import tiny_stable_diffusion


def traced(thumbnails=None):
    """Two steps of two samples; the second reward is measured at the second step only."""
    trace = GuidanceTrace(["clip", "vqa"], thumbnails=thumbnails)
    trace.begin(["a cat", "a dog"])
    trace.add(
        0,
        0.9,
        values=torch.tensor([[1.0, math.nan], [2.0, math.nan]]),
        weights=torch.tensor([[1.0, 0.0], [1.0, 0.0]]),
        eta=torch.tensor([0.1, 0.2]),
        media=torch.rand(2, 3, 64, 32),
        parents=torch.tensor([1, 1]),
    )
    trace.add(
        1, 0.5, values=torch.tensor([[3.0, 5.0], [4.0, 7.0]]), weights=torch.full((2, 2), 0.5)
    )
    return trace


def test_means_are_over_what_was_measured():
    found = traced().summary()

    assert found["first"] == {"clip": 2.0, "vqa": 6.0}  # both rows come from row 1
    assert found["last"] == {"clip": 3.5, "vqa": 6.0}
    assert found["weights"] == {"clip": 0.75, "vqa": 0.25}
    assert (found["pictures"], found["steps"], found["calls"]) == (2, 2, 1)


def test_a_sample_follows_its_ancestors():
    sample = traced(thumbnails=16).sample(0)

    assert sample.prompt == "a cat"
    assert sample.values["clip"] == (2.0, 3.0)
    assert sample.eta[0] == pytest.approx(0.2)
    assert math.isnan(sample.eta[1])
    assert sample.sigmas == (0.9, 0.5)
    assert sample.thumbnails[0].shape == (3, 16, 8)
    assert sample.thumbnails[0].dtype == torch.uint8
    assert sample.thumbnails[1] is None


def test_json_has_null_where_nothing_was_measured():
    found = json.loads(traced().to_json())

    steps = found["trace"][0]["steps"]
    assert steps[0]["values"] == {"clip": [1.0, 2.0], "vqa": [None, None]}
    assert steps[1]["eta"] == [None, None]
    assert "thumbnails" not in steps[0]


def test_wrong_shapes_are_refused():
    trace = GuidanceTrace(["clip"])
    with pytest.raises(ValueError, match="begin"):
        trace.add(0, 0.5)
    trace.begin(["a", "b"])
    with pytest.raises(ValueError, match=r"eta must be \(2,\), got \(1,\)"):
        trace.add(0, 0.5, eta=torch.ones(1))
    with pytest.raises(ValueError, match="allowed: denoiser, decoder, reward"):
        trace.timed("vae", rows=1).__enter__()


def test_thumbnails_of_videos_are_of_the_middle_frame_and_within_range():
    trace = GuidanceTrace(thumbnails=8)
    trace.begin(["a"])
    video = torch.zeros(1, 3, 3, 4, 4)
    video[:, 1] = 3.0
    trace.add(0, 0.5, media=video)

    assert trace.sample(0).thumbnails[0].tolist() == torch.full((3, 4, 4), 255).tolist()


def test_passes_are_counted_by_part_and_step():
    """Four steps of two pictures with classifier-free guidance: 4 * 2 * 2 evaluations."""
    pipe = tiny_stable_diffusion()
    pipe.set_progress_bar_config(disable=True)
    trace = GuidanceTrace()
    trace.begin(["a", "b"])
    with trace.watching(pipe):
        pipe(["a", "b"], num_inference_steps=4, guidance_scale=3.0, output_type="latent")
    with trace.timed("decoder", rows=2, backward=True):
        pass
    trace.add(3, 0.1)
    pipe("a", num_inference_steps=1, output_type="latent")

    cost = trace.cost
    assert (cost["denoiser"].forward, cost["denoiser"].backward) == (16, 0)
    assert cost["denoiser"].forward_seconds > 0
    assert (cost["decoder"].forward, cost["decoder"].backward) == (0, 2)
    assert trace.calls[0].steps[0].cost["denoiser"].forward == 16
    assert not pipe.unet._forward_hooks
    assert not pipe.unet._forward_pre_hooks
