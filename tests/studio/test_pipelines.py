"""The studio over tiny pipelines of the real classes: steps as they are made, stopping in the
middle of each kind of job, lack of memory, and the same bytes again.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from t2x.media import from_pil
from t2x.studio import guiding
from t2x.studio.events import Cancelled, Drawn, Failed, Finished, GuidanceStep, Progress
from t2x.studio.requests import (
    BestOfRequest,
    CompareRequest,
    EditRequest,
    GuideRequest,
    Sampling,
    request_from_record,
)
from t2x.testing import FakeReward

WEIGHTS = {"fake-reward": 1.0}
PICTURE = Image.effect_noise((64, 64), 90).convert("RGB")
PLAIN = BestOfRequest("a red cat", num=2, rewrite=False, rewards=(), seed=3)
GUIDED = GuideRequest("a red cat", WEIGHTS, rewrite=False, beside=False, rewards=(), seed=3)
JOBS = {
    "compare": CompareRequest("a red cat", num=2, rewards=(), seed=3),
    "best_of": PLAIN,
    "E": GUIDED,
    "J": GuideRequest("a red cat", WEIGHTS, "J", rewrite=False, rewards=(), seed=3),
    "particles": GuideRequest("a cat", WEIGHTS, "particles", 16, rewrite=False, rewards=()),
    "noise": GuideRequest("a cat", WEIGHTS, "noise", 48, rewrite=False, rewards=()),
    "search": GuideRequest("a cat", WEIGHTS, "search", 16, rewrite=False, rewards=()),
    "flowedit": EditRequest(
        PICTURE, "make the cat blue", source_prompt="a red cat", rewards=(), strength=1.0
    ),
    "sdedit": EditRequest(PICTURE, target_prompt="a blue cat", rewards=(), strength=1.0),
    "rewardflow": EditRequest(
        PICTURE, target_prompt="a cat", weights=WEIGHTS, rewards=(), strength=1.0
    ),
}


@pytest.fixture
def studio(make_studio, tiny_generator):
    return make_studio(generator=tiny_generator)


def pictures(events):
    last = events[-1]
    assert isinstance(last, Finished), last
    return [(d.arm, d.seed, d.picture.tobytes()) for d in last.entry.pictures]


@pytest.fixture
def evaluations(tiny_generator):
    """Counts evaluations of the denoiser; what is in ``at`` is called at its number."""

    class Count:
        number, at = 0, {}

    def before(*_):
        Count.number += 1
        if Count.number in Count.at:
            Count.at.pop(Count.number)()

    Count.number, Count.at = 0, {}
    handle = tiny_generator.pipeline.unet.register_forward_pre_hook(before)
    yield Count
    handle.remove()


@pytest.mark.parametrize("kind", JOBS)
def test_any_job_stops_between_two_steps_and_the_next_is_as_good(studio, evaluations, kind):
    before = pictures(list(studio.run(PLAIN)))
    events = studio.run(JOBS[kind])
    job = next(events).job
    evaluations.number, evaluations.at = 0, {3: lambda: studio.cancel(job)}
    told = list(events)
    assert isinstance(told[-1], Cancelled) and not evaluations.at
    assert evaluations.number <= 4  # the one that was stopped at, and none after the next check
    assert told[-1].pictures == sum(isinstance(event, Drawn) for event in told)
    assert pictures(list(studio.run(PLAIN))) == before
    assert "step" not in vars(studio.models.generator().pipeline.scheduler)


def test_a_stopped_pipeline_puts_its_models_back(studio, evaluations, tiny_generator, monkeypatch):
    called = []
    pipe = tiny_generator.pipeline
    monkeypatch.setattr(type(pipe), "maybe_free_model_hooks", lambda pipe: called.append(pipe))
    events = studio.run(PLAIN)
    job = next(events).job
    evaluations.at = {3: lambda: studio.cancel(job)}
    assert isinstance(list(events)[-1], Cancelled) and called == [pipe]


@pytest.mark.parametrize("kind", JOBS)
def test_the_same_request_gives_the_same_bytes_and_each_recipe_its_own(studio, kind):
    events = list(studio.run(JOBS[kind]))
    assert pictures(list(studio.run(JOBS[kind]))) == pictures(events)
    source = None
    for drawn in events[-1].entry.pictures:
        recipe = json.loads(json.dumps(dict(drawn.recipe), allow_nan=False))
        assert recipe["sampling"]["num_inference_steps"] == 4
        if drawn.arm == "source":
            source = drawn.picture
            continue
        request = request_from_record(recipe["request"], picture=source)
        again = list(studio.run(request))[-1].entry.pictures[-1]
        assert again.picture.tobytes() == drawn.picture.tobytes()
        assert again.seed == drawn.seed


@pytest.mark.parametrize("mode", ["E", "J"])
def test_steps_of_guidance_are_told_while_the_picture_is_made(
    studio, evaluations, mode, monkeypatch
):
    """Each step is heard before the next evaluation of the denoiser begins."""
    request = GuideRequest(
        "a red cat", WEIGHTS, mode, options={"free_last": 1}, rewrite=False, num=2, rewards=()
    )
    heard = []
    plain = guiding.StepTeller.__call__

    def spy(teller, call, step):
        plain(teller, call, step)
        heard.append((teller.shot.index, step.index, evaluations.number))

    monkeypatch.setattr(guiding.StepTeller, "__call__", spy)
    events = list(studio.run(request))
    steps = [event for event in events if isinstance(event, GuidanceStep)]
    assert [(s.index, s.step, s.steps) for s in steps] == [
        (i, step, 4) for i in range(2) for step in range(4)
    ]
    one = [count for index, _, count in heard if index == 0]
    assert one == sorted(set(one))  # an evaluation between any two of them
    for step in steps[:3]:
        assert 0 <= step.values["fake-reward"] <= 1 and step.weights == WEIGHTS
        assert step.eta > 0 and step.gradient_norm > 0 and step.thumbnail.size == (64, 64)
    assert math.isnan(steps[3].values["fake-reward"])  # the last one is free
    order = [type(e) for e in events if isinstance(e, GuidanceStep | Drawn)]
    assert order == ([Drawn] + [GuidanceStep] * 4 + [Drawn]) * 2


@pytest.mark.parametrize("mode", ["particles", "noise", "search"])
def test_values_are_told_live_where_there_are_no_steps_of_guidance(studio, mode):
    events = list(studio.run(JOBS[mode]))
    drawn = next(i for i, e in enumerate(events) if isinstance(e, Drawn) and e.arm == "guided")
    steps = [e for e in events[:drawn] if isinstance(e, GuidanceStep)]
    known = [s.values["fake-reward"] for s in steps if math.isnan(s.sigma)]
    assert all(0 <= s.step < s.steps for s in steps)
    assert len(known) >= 2 and all(0 <= value <= 1 for value in known)
    assert any(step.thumbnail is not None for step in steps)
    if mode == "search":
        assert max(known) == pytest.approx(events[drawn].notes["value"], abs=1e-6)


def test_guidance_acts_and_its_trace_stays_with_the_picture(studio):
    request = GuideRequest("a cat", WEIGHTS, options={"size": 2.0}, rewrite=False)
    events = list(studio.run(request))
    entry = events[-1].entry
    (scored,) = entry.scores
    assert scored.values["guided"][0] > scored.values["plain"][0]
    (guided,) = entry.arm("guided")
    assert len(guided.trace.sigmas) == 4
    assert entry.arm("plain")[0].trace is None


def test_three_way_guidance_weighs_the_users_words_with_the_rewrite(studio):
    def guided(three_way, weights=None, **given):
        request = GuideRequest(
            "a red cat", weights or {}, three_way=three_way, beside=True, rewards=(), **given
        )
        entry = list(studio.run(request))[-1].entry
        return {d.arm: d.picture.tobytes() for d in entry.pictures}, entry

    (mixed, _), (none, _) = guided((1.5, None)), guided((0.0, None))
    assert none["guided"] == none["plain"] == mixed["plain"] != mixed["guided"]
    same, entry = guided((1.5, None), text="a red cat")
    assert same["guided"] == same["plain"] and "no rewrite" in entry.notes[0]
    both, _ = guided((1.5, None), WEIGHTS)
    assert both["guided"] not in mixed.values()


def test_steps_inside_a_picture_are_told(studio):
    events = [e for e in studio.run(PLAIN) if isinstance(e, Progress) and e.steps]
    assert [(e.done, e.step, e.steps) for e in events] == [
        (i, step, 4) for i in range(2) for step in range(1, 5)
    ]
    left = [e.seconds_left for e in events]
    assert all(value is not None and value >= 0 for value in left)


def test_steps_scale_and_size_of_a_request_hold_for_it_alone(studio):
    before = pictures(list(studio.run(PLAIN)))
    other = BestOfRequest(
        "a red cat", num=1, rewrite=False, rewards=(), seed=3,
        sampling=Sampling(size=(32, 96), steps=2, guidance_scale=1.0),
    )  # fmt: skip
    events = list(studio.run(other))
    (drawn,) = events[-1].entry.pictures
    assert drawn.picture.size == (96, 32)
    settings = drawn.recipe["sampling"]
    assert (settings["num_inference_steps"], settings["guidance_scale"]) == (2, 1.0)
    assert max(e.steps for e in events if isinstance(e, Progress)) == 2
    assert pictures(list(studio.run(PLAIN))) == before


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (Sampling(size=(60, 64)), "divisible by 8"),
        (Sampling(size=(1024, 512)), "at most as many as 256x256"),
        (Sampling(num_frames=3), "makes pictures"),
    ],
)
def test_what_the_model_does_not_take_is_said(studio, sampling, said):
    for kind in (BestOfRequest, GuideRequest):
        given = {"weights": WEIGHTS} if kind is GuideRequest else {}
        last = list(studio.run(kind("a cat", rewrite=False, sampling=sampling, **given)))[-1]
        assert isinstance(last, Failed) and last.cause == "request" and said in last.message


@pytest.mark.parametrize("kind", ["compare", "E", "J", "noise", "flowedit"])
def test_lack_of_memory_inside_a_picture_leaves_the_weights_good(studio, evaluations, kind):
    def runs_out():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    before = pictures(list(studio.run(PLAIN)))
    evaluations.number, evaluations.at = 0, {3: runs_out}
    failed = list(studio.run(JOBS[kind]))[-1]
    assert isinstance(failed, Failed) and failed.cause == "memory", failed
    assert "smaller" in failed.message and "\n" not in failed.message
    assert pictures(list(studio.run(PLAIN))) == before


@pytest.mark.parametrize("kind", ["flowedit", "sdedit", "rewardflow"])
def test_an_edit_inside_a_box_keeps_the_rest_and_says_how_well(studio, kind):
    region = (0.0, 0.0, 0.5, 1.0)
    request = replace(JOBS[kind], region=region, rewards=None, num=1)
    entry = list(studio.run(request))[-1].entry
    source, edited = entry.pictures
    boxed = edited.change
    assert source.change is None and 0 < boxed.share <= 1 and boxed.map.size == (64, 64)
    before, after = (from_pil([drawn.picture])[..., 32:] for drawn in (source, edited))
    assert np.array_equal(before, after) and boxed.kept_all
    free = list(studio.run(replace(request, region=None)))[-1].entry.pictures[1]
    assert free.picture != edited.picture and free.change.kept != boxed.kept
    assert {scored.reward for scored in entry.scores} >= set(request.weights)
    assert all(set(scored.values) == {"source", "edited"} for scored in entry.scores)


def test_an_edit_shows_what_the_model_saw(studio):
    request = EditRequest(
        Image.effect_noise((300, 150), 90).convert("RGBA"), target_prompt="a blue cat", num=2
    )
    entry = list(studio.run(request))[-1].entry
    assert [(d.arm, d.seed) for d in entry.pictures] == [
        ("source", 0),
        ("edited", 0),
        ("edited", 1),
    ]
    assert len({d.picture.size for d in entry.pictures}) == 1
    width, height = entry.pictures[0].picture.size
    assert width % 8 == height % 8 == 0 and 1.5 < width / height < 2.5
    assert abs(width * height - 64 * 64) < 0.3 * 64 * 64
    (scored,) = entry.scores
    assert len(scored.values["source"]) == 1 and len(scored.values["edited"]) == 2
    assert entry.pictures[1].recipe["source"] == entry.pictures[2].recipe["source"]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (EditRequest(PICTURE, "add a dog", method="magic"), "magic"),
        (EditRequest(PICTURE, "add a dog", method="flowedit"), "source prompt"),
        (EditRequest(PICTURE, "add a dog", weights=WEIGHTS, method="sdedit"), "rewardflow"),
        (EditRequest(PICTURE, "add a dog", strength=7.0), "strength"),
        (EditRequest(PICTURE, "add a dog", sampling=Sampling(size=(60, 60))), "divisible"),
        (EditRequest(PICTURE, "remove the dog"), "source"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_an_edit_that_means_nothing_is_said(studio, request_, said):
    failed = list(studio.run(request_))[-1]
    assert isinstance(failed, Failed) and failed.cause == "request" and said in failed.message


def test_videos_are_drawn_guided_and_scored(make_studio):
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.testing import tiny_wan

    wan = DiffusionGenerator(
        tiny_wan(), model_id="wan", sampling={"num_inference_steps": 3, "height": 32, "width": 32}
    )
    studio = make_studio(generator=wan, rewards=[FakeReward()])
    request = GuideRequest(
        "a red cat", WEIGHTS, rewrite=False, sampling=Sampling(num_frames=5),
        options={"free_last": 0},
    )  # fmt: skip
    events = list(studio.run(request))
    entry = events[-1].entry
    for drawn in entry.pictures:
        assert len(drawn.frames) == 5 and drawn.picture == drawn.frames[2] and drawn.fps > 0
    assert [s.problem for s in entry.scores] == [""]
    steps = [event for event in events if isinstance(event, GuidanceStep)]
    assert len(steps) == 3 and steps[0].thumbnail is not None
    failed = list(studio.run(EditRequest(PICTURE, target_prompt="a cat")))[-1]
    assert "makes videos" in failed.message
