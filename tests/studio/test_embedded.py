"""The studio as it comes: the embedded models, the whole way, and what is freed."""

from __future__ import annotations

import gc
import weakref

import pytest

from t2x.studio import Studio
from t2x.studio.events import Cancelled, Finished, Rewritten
from t2x.studio.requests import BestOfRequest, CompareRequest, GuideRequest, TaskRequest

PROMPT = "two kittens to the left of a crimson slice of pizza"


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    made = Studio(home=tmp_path_factory.mktemp("home"))
    yield made
    made.close()


def test_a_rewrite_is_drawn_and_scores_better(studio):
    assert studio.state().generator.readiness == "unloaded"
    entry = list(studio.run(CompareRequest(PROMPT, num=1)))[-1].entry
    assert entry.rewrite.status == "accepted" and entry.words == PROMPT
    scores = {scored.reward: scored for scored in entry.scores}
    assert set(scores) == {"clip", "hps", "aesthetic", "vqa"}
    assert not any(scored.problem for scored in entry.scores)
    for name in ("clip", "hps", "vqa"):
        assert scores[name].values["rewritten"] > scores[name].values["original"]
    state = studio.state()
    assert state.generator.facts["settings"]["height"] == 64 and state.generator.facts["guided"]
    assert {r.readiness for r in state.rewards} == {"ready"}


def test_rewards_steer_and_questions_are_of_the_users_words(studio):
    request = GuideRequest(PROMPT, {"questions": 1.0, "clip": 0.3}, beside=False, rewards=())
    entry = list(studio.run(request))[-1].entry
    (drawn,) = entry.pictures
    known = [value for value in drawn.trace.values["questions"] if value == value]
    assert len(known) >= 4 and drawn.trace.prompt == PROMPT


def test_the_rewriter_stops_between_two_tokens(studio):
    model, tokens = studio.models.rewriter().rewriter.model, []
    handle = model.register_forward_pre_hook(lambda *_: tokens.append(1))
    try:
        whole = list(studio.run(TaskRequest("rewrite", lambda work: rewritten(work))))
        assert isinstance(whole[-1], Finished)
        needed = len(tokens)
        tokens.clear()
        events = studio.run(CompareRequest("three violet doughnuts", num=1, rewards=()))
        job = next(events).job
        stop = model.register_forward_pre_hook(
            lambda *_: studio.cancel(job) if len(tokens) == 3 else None
        )
        told = list(events)
        stop.remove()
    finally:
        handle.remove()
    assert isinstance(told[-1], Cancelled) and not any(isinstance(e, Rewritten) for e in told)
    assert len(tokens) <= 4 < needed


def rewritten(work):
    return work.models.rewriter().rewrite(["three violet doughnuts"])[0][0].text


def test_a_swap_frees_the_old_generator(studio):
    old = weakref.ref(studio.models.generator().pipeline.unet)
    events = list(studio.load(generator="emoji-flow-turbo"))
    assert events[-2].state.generator.facts["model_id"] == "emoji-flow-turbo"
    del events
    gc.collect()
    assert old() is None
    entry = list(studio.run(BestOfRequest(PROMPT, num=1, rewards=())))[-1].entry
    assert entry.pictures[0].recipe["model"] == "emoji-flow-turbo"
