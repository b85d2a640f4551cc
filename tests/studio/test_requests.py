"""Requests as JSON, and what is refused before anything is done."""

from __future__ import annotations

import json
import math

import pytest
from PIL import Image

from t2x.errors import T2XError
from t2x.studio.limits import Limits, check_request
from t2x.studio.requests import (
    BestOfRequest,
    CompareRequest,
    EditRequest,
    GuideRequest,
    Sampling,
    TaskRequest,
    request_from_record,
    request_record,
)

PICTURE = Image.new("RGB", (8, 8))
DRAWN = Sampling(size=(64, 32), steps=3, guidance_scale=2.5, num_frames=5)
REQUESTS = [
    CompareRequest("a cat"),
    CompareRequest("un chât", 2, 7, False, "a cat", "blurry", DRAWN, ("clip", "vqa")),
    BestOfRequest("a cat", num=9, rewards=()),
    GuideRequest(
        "a cat",
        {"clip": 1.0, "vqa": -0.3},
        "J",
        None,
        {"size": 0.3},
        False,
        (2.0, None),
        seed=2**63,
    ),
    EditRequest(PICTURE, "make it blue", region=(0.0, 0.0, 0.5, 1.0), strength=0.5, sampling=DRAWN),
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: r.kind)
def test_a_request_comes_back_from_its_json(request_):
    record = json.loads(json.dumps(request_record(request_), allow_nan=False))
    picture = PICTURE if isinstance(request_, EditRequest) else None
    assert request_from_record(record, picture=picture) == request_
    check_request(request_, Limits())


@pytest.mark.parametrize(
    "record", [{}, {"kind": "poem"}, {"kind": 3}, {"kind": "compare"}, {"kind": "task", "name": ""}]
)
def test_what_is_no_record_says_so(record):
    with pytest.raises(T2XError):
        request_from_record(record)


def test_a_record_with_foreign_keys_or_types_is_refused():
    record = request_record(CompareRequest("a cat"))
    for change in ({"nmu": 3}, {"num": "many"}, {"sampling": {"size": [64]}}, {"rewards": "clip"}):
        with pytest.raises(T2XError):
            request_from_record({**record, **change})


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (CompareRequest(""), "empty"),
        (CompareRequest(" \n\t"), "empty"),
        (CompareRequest(None), "prompt"),
        (CompareRequest("a", text=" "), "text to draw is empty"),
        (CompareRequest("x" * 9000), "9000 characters"),
        (CompareRequest("half a pair \ud83d"), "Unicode"),
        (CompareRequest("a", text="\udc00"), "Unicode"),
        (CompareRequest("a", negative="x" * 8001), "8001"),
        (CompareRequest("a", num=0), "num is 0"),
        (CompareRequest("a", num=-3), "num is -3"),
        (CompareRequest("a", num=10**6), "num is 1000000; give 1 to 32"),
        (CompareRequest("a", num=True), "num"),
        (CompareRequest("a", seed=-1), "seed is -1"),
        (CompareRequest("a", seed=2**64), "seed"),
        (CompareRequest("a", seed=2**64 - 2, num=4), "seed"),
        (CompareRequest("a", seed=1.5), "seed"),
        (CompareRequest("a", seed=math.nan), "seed"),
        (CompareRequest("a", rewards=("nope",)), "unknown reward 'nope'"),
        (CompareRequest("a", rewards=("clip", "clip")), "twice"),
        (CompareRequest("a", sampling=Sampling(size=(0, 64))), "side"),
        (CompareRequest("a", sampling=Sampling(size=(64, 10**6))), "side"),
        (CompareRequest("a", sampling=Sampling(size=(64, -64))), "side"),
        (CompareRequest("a", sampling=Sampling(size=(64, 64, 3))), "size"),
        (CompareRequest("a", sampling=Sampling(steps=0)), "steps"),
        (CompareRequest("a", sampling=Sampling(steps=10**9)), "steps"),
        (CompareRequest("a", sampling=Sampling(guidance_scale=math.nan)), "guidance_scale"),
        (CompareRequest("a", sampling=Sampling(guidance_scale=math.inf)), "guidance_scale"),
        (CompareRequest("a", sampling=Sampling(num_frames=0)), "num_frames"),
        (GuideRequest("a"), "needs rewards"),
        (GuideRequest("a", {"clip": math.nan}), "weight of clip"),
        (GuideRequest("a", {"clip": 1e9}), "weight of clip"),
        (GuideRequest("a", {"clip": 0.0}), "all weights"),
        (GuideRequest("a", {"nope": 1.0}), "unknown reward"),
        (GuideRequest("a", {"ocr": 1.0}), "no gradient"),
        (GuideRequest("a", {"clip": 1.0}, mode="magic"), "magic"),
        (GuideRequest("a", {"clip": 1.0}, budget=-1), "budget"),
        (GuideRequest("a", {"clip": 1.0}, options={"sise": 1}), "did you mean 'size'"),
        (GuideRequest("a", {"clip": 1.0}, three_way=(-1.0, None)), "three_way"),
        (GuideRequest("a", {"clip": 1.0}, three_way=(1.0, None), budget=9), "leave one out"),
        (GuideRequest("a", three_way=(1.0, None), rewrite=False), "rewriting"),
        (EditRequest(None, "make it blue"), "picture"),
        (EditRequest("cat.png", "make it blue"), "picture"),
        (EditRequest(PICTURE), "say what to change"),
        (EditRequest(PICTURE, "x", region=(0.5, 0.0, 0.5, 1.0)), "region"),
        (EditRequest(PICTURE, "x", region=(0.0, 0.0, math.nan, 1.0)), "region"),
        (EditRequest(PICTURE, "x", num=99), "num"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
def test_bad_requests_end_in_one_line(request_, said):
    with pytest.raises(T2XError) as caught:
        check_request(request_, Limits())
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_rewards_that_the_studio_has_beside_the_registry_are_known():
    request = GuideRequest("a", {"mine": 1.0}, rewards=("mine", "clip"))
    check_request(request, Limits(), rewards=["mine"])
    with pytest.raises(T2XError, match="mine"):
        check_request(request, Limits())


def test_what_is_no_request_is_refused():
    with pytest.raises(T2XError, match="dict is no request"):
        check_request({"kind": "compare"}, Limits())


def test_a_task_is_checked_by_who_makes_it():
    task = TaskRequest("ask", lambda work: None, {"seed": 3})
    check_request(task, Limits())
    assert request_record(task) == {"kind": "task", "name": "ask", "state": {"seed": 3}}


@pytest.mark.parametrize("limits", [{"queue": 0}, {"pictures": -1}, {"memory": "lots"}])
def test_limits_have_limits(limits):
    with pytest.raises(T2XError):
        Limits(**limits)
