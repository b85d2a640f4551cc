"""The studio with fakes: order of events, users side by side, models missing or swapped."""

from __future__ import annotations

import gc
import json
import math
import threading
import time
import weakref

import pytest
import torch
from PIL import Image

from t2x import registry
from t2x.errors import T2XError
from t2x.studio import Limits
from t2x.studio.events import (
    LAST,
    Answered,
    Cancelled,
    Drawn,
    Failed,
    Finished,
    Loaded,
    Progress,
    Rewritten,
    Scored,
    Waiting,
)
from t2x.studio.requests import (
    BestOfRequest,
    CompareRequest,
    EditRequest,
    GuideRequest,
    Sampling,
    TaskRequest,
    request_from_record,
)
from t2x.testing import FakeGenerator, FakeReward, FakeRewriter

ASKED = CompareRequest("a red cat", num=2, seed=5)


def seen(events, kind):
    return [event for event in events if isinstance(event, kind)]


def test_compare_tells_rewrite_pictures_and_scores_in_order(make_studio):
    events = list(make_studio().run(ASKED, user="ada"))
    assert isinstance(events[0], Waiting) and events[0].place == 0
    assert sum(isinstance(event, LAST) for event in events) == 1
    entry = events[-1].entry
    (rewritten,) = seen(events, Rewritten)
    assert rewritten.words == "a red cat" and rewritten.rewrite.text.startswith("a red cat, ")
    drawn = seen(events, Drawn)
    assert sorted((d.arm, d.index, d.seed) for d in drawn) == [
        ("original", 0, 5),
        ("original", 1, 6),
        ("rewritten", 0, 5),
        ("rewritten", 1, 6),
    ]
    (scored,) = seen(events, Scored)
    assert set(scored.values) == {"original", "rewritten"} and not scored.problem
    red = entry.arm("original")[1].picture.getpixel((0, 0))[0]
    assert scored.values["original"][1] == pytest.approx(red / 255)
    assert entry.user == "ada" and entry.job == events[0].job and entry.request == ASKED
    assert entry.pictures == tuple(drawn) and entry.scores == (scored,)
    assert entry.seconds["total"] >= entry.seconds["draw"]


def test_the_first_picture_comes_before_the_rewriter_is_loaded(make_studio):
    studio = make_studio()
    kinds = [type(e) for e in studio.run(ASKED) if isinstance(e, Drawn | Rewritten)]
    again = [type(e) for e in studio.run(ASKED) if isinstance(e, Drawn | Rewritten)]
    assert kinds == [Drawn, Rewritten, Drawn, Drawn, Drawn]
    assert again == [Rewritten, Drawn, Drawn, Drawn, Drawn]


def test_progress_is_told_with_the_time_left(make_studio):
    events = [e for e in make_studio().run(ASKED) if isinstance(e, Progress)]
    drawing = [e for e in events if e.what.startswith("drawing")]
    assert drawing[-1].done == drawing[-1].total == 4 and drawing[-1].seconds_left == 0
    assert drawing[0].seconds_left is None
    assert all(e.seconds_left is None or e.seconds_left >= 0 for e in events)


def test_the_same_request_gives_the_same_bytes_in_any_studio(make_studio):
    def pictures(studio):
        entry = list(studio.run(ASKED))[-1].entry
        return [(d.arm, d.index, d.picture.tobytes()) for d in entry.arm("rewritten")], entry

    one, entry = pictures(make_studio())
    two, again = pictures(make_studio())
    assert one == two and entry.scores == again.scores
    assert [d.recipe for d in entry.arm("original")] == [d.recipe for d in again.arm("original")]


@pytest.mark.parametrize("request_", [ASKED, BestOfRequest("a red cat", num=2, negative="blue")])
def test_a_recipe_draws_its_picture_again(make_studio, request_):
    studio = make_studio()
    for drawn in list(studio.run(request_))[-1].entry.pictures:
        recipe = json.loads(json.dumps(dict(drawn.recipe), allow_nan=False))
        assert recipe["model"] == "fake-generator" and recipe["prompt"] == "a red cat"
        again = list(studio.run(request_from_record(recipe["request"])))[-1].entry
        (picture,) = again.pictures
        assert picture.picture.tobytes() == drawn.picture.tobytes()
        assert (picture.arm, picture.seed) == (drawn.arm, drawn.seed)


def test_an_unchanged_prompt_is_drawn_once(make_studio):
    events = list(make_studio(rewriter="none").run(ASKED))
    assert {e.arm for e in seen(events, Drawn)} == {"original"}
    assert not seen(events, Rewritten)[0].rewrite.changed
    events = list(make_studio().run(CompareRequest("a cat", num=1, rewrite=False)))
    assert not seen(events, Rewritten) and len(seen(events, Drawn)) == 1


def test_a_text_of_the_users_own_is_drawn_in_place_of_the_rewrite(make_studio):
    events = list(make_studio().run(CompareRequest("a cat", num=1, text="a fine cat")))
    (rewritten,) = seen(events, Rewritten)
    assert rewritten.rewrite.text == "a fine cat" and rewritten.rewrite.model_id == "given"
    assert [d.recipe["text"] for d in seen(events, Drawn)] == ["a cat", "a fine cat"]


def test_best_of_sorts_by_any_reward(make_studio):
    studio = make_studio(rewards=[FakeReward()])
    studio.offer_reward("green", lambda user: FakeReward(1))
    asked = BestOfRequest("a cat", num=6, rewards=("fake-reward", "green"))
    entry = list(studio.run(asked))[-1].entry
    for channel, reward in enumerate(("fake-reward", "green")):
        order = entry.best_first(reward, "rewritten")
        values = [entry.arm("rewritten")[i].picture.getpixel((0, 0))[channel] for i in order]
        assert values == sorted(values, reverse=True) and len(set(values)) > 1
    with pytest.raises(KeyError):
        entry.best_first("clip", "rewritten")


def test_what_was_not_measured_is_sorted_last(make_studio):
    class Moody(FakeReward):
        def score(self, prompts, media, *, context=None):
            found = super().score(prompts, media, context=context)
            return found.masked_fill(found < 0.5, math.nan)

    entry = list(make_studio(rewards=[Moody()]).run(BestOfRequest("a cat", num=8)))[-1].entry
    values = entry.scores[0].values["rewritten"]
    order = entry.best_first("fake-reward", "rewritten")
    known = sum(value == value for value in values)
    assert 0 < known < 8
    assert all(values[i] == values[i] for i in order[:known])
    assert not any(values[i] == values[i] for i in order[known:])


# ---- users side by side --------------------------------------------------------------------------


def test_two_users_at_once_each_get_their_own(make_studio):
    studio, told = make_studio(), {}

    def use(user, prompt):
        told[user] = [list(studio.run(CompareRequest(prompt, num=2), user=user)) for _ in "12"]

    threads = [
        threading.Thread(target=use, args=pair) for pair in (("ada", "a cat"), ("ben", "a dog"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for user, prompt in (("ada", "a cat"), ("ben", "a dog")):
        for events in told[user]:
            entry = events[-1].entry
            assert entry.user == user and {d.recipe["prompt"] for d in entry.pictures} == {prompt}
        one, two = (events[-1].entry.pictures for events in told[user])
        assert [d.picture.tobytes() for d in one] == [d.picture.tobytes() for d in two]


def test_one_user_cannot_cancel_anothers_job(make_studio, held):
    studio = make_studio(generator=held)
    events = studio.run(ASKED, user="ada")
    job = next(events).job
    held.began.wait(60)
    assert not studio.cancel(job, user="ben")
    assert studio.cancel(job, user="ada")
    held.gate.set()
    assert list(events)[-1] == Cancelled(0)


def test_a_queue_that_is_full_refuses_clearly(make_studio, held):
    studio = make_studio(generator=held, limits=Limits(queue=2))
    waiting = [studio.run(ASKED, user=user) for user in ("ada", "ben")]
    (refused,) = studio.run(ASKED, user="cleo")
    assert isinstance(refused, Failed) and refused.cause == "queue"
    assert "limit" in refused.message and studio.state().waiting == 2
    held.gate.set()
    assert [type(list(events)[-1]) for events in waiting] == [Finished, Finished]


def test_bad_requests_fail_at_once_and_never_wait(make_studio):
    studio = make_studio()
    (failed,) = studio.run(CompareRequest("", num=10**6))
    assert failed == Failed("the prompt is empty; say what the picture should show", "request")
    assert studio.state().waiting == 0


class Held(FakeGenerator):
    """Draws when the gate is open."""

    def __init__(self):
        super().__init__()
        self.gate, self.began = threading.Event(), threading.Event()

    def generate(self, prompts, **given):
        self.began.set()
        assert self.gate.wait(60)
        return super().generate(prompts, **given)


@pytest.fixture
def held():
    generator = Held()
    yield generator
    generator.gate.set()


def test_a_generator_without_steps_stops_between_pictures(make_studio, held):
    studio = make_studio(generator=held)
    events = studio.run(BestOfRequest("a cat", num=8, rewrite=False))
    job = next(events).job
    held.began.wait(60)
    studio.cancel(job)
    held.gate.set()
    rest = list(events)
    assert rest[-1] == Cancelled(0) and not seen(rest, Drawn)
    assert isinstance(list(studio.run(ASKED))[-1], Finished)


def test_watchers_hear_how_each_job_ended_once(make_studio, held):
    studio = make_studio(generator=held)
    heard: dict[str, list[type]] = {}
    studio.listen(lambda job, user, request, event: heard.setdefault(user, []).append(type(event)))

    def fails(work):
        raise T2XError("it can't be done")

    running = studio.run(ASKED, user="running")
    stopped, left = studio.run(ASKED, user="stopped"), studio.run(ASKED, user="left")
    next(left)
    failing = studio.run(TaskRequest("fail", fails), user="failing")
    held.began.wait(60)
    studio.cancel(next(stopped).job)
    left.close()
    assert heard["stopped"] == heard["left"] == [Cancelled]  # before the first job is done
    held.gate.set()
    last = [type(list(events)[-1]) for events in (running, failing)]
    assert last == [Finished, Failed] == [heard["running"][-1], heard["failing"][-1]]
    assert all(sum(kind in LAST for kind in kinds) == 1 for kinds in heard.values())


def test_a_watcher_that_fails_at_the_end_takes_nothing_along(make_studio):
    studio = make_studio()

    def full(job, user, request, event):
        raise OSError("the disk is full")

    studio.listen(full)
    events = list(studio.run(ASKED))
    assert isinstance(events[-1], Finished) and "the disk is full" in events[-1].entry.notes


# ---- models that are missing ---------------------------------------------------------------------


def test_a_generator_that_fails_is_tried_once_a_job(make_studio, monkeypatch):
    tried = []

    def fails():
        tried.append(1)
        raise OSError("the disk is gone")

    monkeypatch.setattr("t2x.testing.failing", fails, raising=False)
    studio = make_studio(generator="t2x.testing:failing")
    for count in (1, 2):
        events = list(studio.run(ASKED))
        assert len(tried) == count and seen(events, Rewritten)
        assert events[-1].cause == "model" and "the disk is gone" in events[-1].message


def test_without_a_generator_the_prompt_is_still_rewritten(make_studio):
    studio = make_studio(generator="no-such-generator")
    events = list(studio.run(ASKED))
    assert seen(events, Rewritten)[0].rewrite.status == "accepted"
    assert events[-1].cause == "model" and "no-such-generator" in events[-1].message
    state = studio.state().generator
    assert state.readiness == "failed" and "no-such-generator" in state.problem


def test_without_a_rewriter_the_users_words_are_drawn(make_studio):
    studio = make_studio(rewriter="no-such-rewriter")
    events = list(studio.run(ASKED))
    entry = events[-1].entry
    assert {d.arm for d in entry.pictures} == {"original"} and len(entry.pictures) == 2
    assert any("no-such-rewriter" in note for note in entry.notes)
    assert studio.state().rewriter.readiness == "failed"


def test_a_studio_may_have_neither(make_studio):
    studio = make_studio(generator=None, rewriter=None)
    last = list(studio.run(ASKED))[-1]
    assert isinstance(last, Failed) and last.cause == "model"
    assert studio.state().generator.readiness == "none"


def test_a_reward_that_fails_is_nan_with_its_reason(make_studio):
    class Broken(FakeReward):
        name = "broken"

        def score(self, prompts, media, *, context=None):
            raise RuntimeError("the scorer is dead")

    def mine(user):
        raise T2XError(f"{user} has no taste yet; choose between some pictures first")

    studio = make_studio(rewards=[Broken(), FakeReward()])
    studio.offer_reward("my taste", mine)
    asked = CompareRequest("a cat", num=1, rewards=("broken", "my taste", "fake-reward"))
    broken, taste, good = seen(list(studio.run(asked, user="ada")), Scored)
    assert all(math.isnan(v) for row in broken.values.values() for v in row)
    assert "the scorer is dead" in broken.problem
    assert taste.problem == "ada has no taste yet; choose between some pictures first"
    assert not good.problem and good.values["original"][0] >= 0


def test_rewards_of_their_own_are_each_users(make_studio):
    studio = make_studio(rewards=())
    studio.offer_reward("mine", lambda user: FakeReward({"ada": 0, "ben": 1}[user]))
    asked = CompareRequest("a cat", num=1, rewrite=False, rewards=("mine",))
    for channel, user in enumerate(("ada", "ben")):
        entry = list(studio.run(asked, user=user))[-1].entry
        pixel = entry.pictures[0].picture.getpixel((0, 0))
        assert entry.scores[0].values["original"][0] == pytest.approx(pixel[channel] / 255)


def test_rewards_hear_the_user_and_the_words(make_studio):
    heard = []

    class Listens(FakeReward):
        def score(self, prompts, media, *, context=None):
            heard.append((list(prompts), list(context.user)))
            return super().score(prompts, media, context=context)

    list(make_studio(rewards=[Listens()]).run(ASKED, user="ada"))
    assert heard == [(["a red cat"], ["ada"])] * 4


def test_video_rewards_and_picture_rewards_meet_what_is_drawn(make_studio):
    studio = make_studio(
        generator=FakeGenerator("video"), rewards=[FakeReward(modality="video")], rewriter=None
    )
    studio.offer_reward("still", lambda user: FakeReward())
    asked = CompareRequest(
        "a cat", num=1, rewrite=False, rewards=("fake-reward", "still"),
        sampling=Sampling(num_frames=3),
    )  # fmt: skip
    entry = list(studio.run(asked))[-1].entry
    (drawn,) = entry.pictures
    assert len(drawn.frames) == 3 and drawn.fps > 0 and drawn.picture == drawn.frames[1]
    assert [s.problem for s in entry.scores] == ["", ""]
    still = make_studio(rewards=[FakeReward(modality="video")])
    (scored,) = seen(list(still.run(CompareRequest("a", num=1, rewrite=False))), Scored)
    assert "scores videos" in scored.problem


@pytest.mark.parametrize("request_", [GuideRequest("a", {"fake-reward": 1.0}), EditRequest])
def test_what_a_generator_cannot_do_is_said(make_studio, request_):
    if request_ is EditRequest:
        request_ = EditRequest(Image.new("RGB", (64, 64)), "make it blue")
    last = list(make_studio().run(request_))[-1]
    assert isinstance(last, Failed) and last.cause == "request" and "diffusers" in last.message


# ---- memory and faults ---------------------------------------------------------------------------


class Hungry(FakeGenerator):
    """Memory runs out in some of its calls."""

    def __init__(self, *errors):
        super().__init__()
        self.errors = list(errors)

    def generate(self, prompts, **given):
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return super().generate(prompts, **given)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()], ids=["cuda", "host"]
)
def test_lack_of_memory_ends_the_job_and_nothing_else(make_studio, error):
    studio = make_studio(generator=Hungry(error))
    events = list(studio.run(ASKED))
    assert events[-1].cause == "memory" and "smaller" in events[-1].message
    assert isinstance(list(studio.run(ASKED))[-1], Finished)


def test_what_does_not_draw_is_freed_and_the_picture_tried_again(make_studio):
    studio = make_studio(
        generator=Hungry(None, MemoryError()), rewriter="none", rewards=["quality"]
    )
    assert isinstance(list(studio.run(CompareRequest("a cat", num=1)))[-1], Finished)
    last = list(studio.run(CompareRequest("a cat", num=1)))[-1]
    assert any("memory ran out" in note for note in last.entry.notes)
    assert last.entry.scores[0].scale  # it was loaded again


def test_a_fault_of_the_program_is_told_without_a_traceback(make_studio):
    studio = make_studio(generator=Hungry(ZeroDivisionError("oh")))
    failed = list(studio.run(ASKED))[-1]
    assert failed.cause == "internal" and "oh" in failed.message and "\n" not in failed.message
    assert isinstance(list(studio.run(ASKED))[-1], Finished)


# ---- tasks, swapping, loading ahead --------------------------------------------------------------


def test_a_task_uses_the_models_and_can_be_stopped(make_studio):
    studio = make_studio()

    def task(work):
        work.progress("asking", 0, 1)
        return work.models.generator().model_id, work.user

    events = list(studio.run(TaskRequest("ask", task), user="ada"))
    assert events[-2:-1] == [Answered(("fake-generator", "ada"))]
    assert events[-1].entry.answer == ("fake-generator", "ada")
    began = threading.Event()

    def endless(work):
        began.set()
        while True:
            work.check()

    events = studio.run(TaskRequest("wait", endless))
    job = next(events).job
    began.wait(60)
    studio.cancel(job)
    assert list(events)[-1] == Cancelled()


def test_swapping_frees_the_old_generator_and_draws_with_the_new(make_studio, monkeypatch):
    made = []

    class Named(FakeGenerator):
        def __init__(self):
            super().__init__()
            self.model_id = f"made-{len(made)}"
            made.append(weakref.ref(self))

    monkeypatch.setattr("t2x.testing.NamedGenerator", Named, raising=False)
    monkeypatch.setitem(registry.GENERATORS, "named", "t2x.testing:NamedGenerator")
    studio = make_studio(generator="named")
    entry = list(studio.run(ASKED))[-1].entry
    assert entry.pictures[0].recipe["model"] == "made-0"
    del entry
    events = list(studio.load(generator="named", rewriter="none"))
    assert events[-2].state.generator.facts["model_id"] == "made-1"
    assert isinstance(events[-1], Finished)
    gc.collect()
    assert made[0]() is None
    assert {d.recipe["model"] for d in list(studio.run(ASKED))[-1].entry.pictures} == {"made-1"}


def test_a_swap_that_fails_leaves_the_old_one(make_studio):
    studio = make_studio()
    for source, cause in (
        ("no-such-rewriter", "request"),
        ("./none", "request"),
        ("vllm:a/b", "model"),
    ):
        events = list(studio.load(rewriter=source))
        assert events[-1].cause == cause and not seen(events, Loaded)
    assert {d.arm for d in list(studio.run(ASKED))[-1].entry.pictures} == {"original", "rewritten"}


@pytest.fixture
def endless(monkeypatch):
    """A generator "endless" that gets layers for as long as nobody stops it; an event says that it
    has begun."""
    began = threading.Event()

    def load():
        for _ in range(6000):
            torch.nn.Sequential(torch.nn.Linear(1, 1))
            began.set()
            time.sleep(0.01)
        pytest.fail("it was loaded to its end")

    monkeypatch.setattr("t2x.testing.endless", load, raising=False)
    monkeypatch.setitem(registry.GENERATORS, "endless", "t2x.testing:endless")
    return began


def test_a_model_that_takes_too_long_is_not_waited_for(make_studio, endless):
    """And the one that was there draws on."""
    studio = make_studio()
    events = studio.load(generator="endless")
    job = next(events).job
    assert endless.wait(60) and studio.state().generator.readiness == "loading"
    studio.cancel(job)
    assert list(events)[-1] == Cancelled()
    state = studio.state().generator
    assert state.readiness == "unloaded" and not state.problem and state.name == "fake-generator"
    assert isinstance(list(studio.run(ASKED))[-1], Finished)


def test_a_job_is_stopped_while_its_model_loads(make_studio, endless):
    studio = make_studio(generator="endless")
    events = studio.run(CompareRequest("a cat", rewrite=False))
    job = next(events).job
    assert endless.wait(60)
    studio.cancel(job)
    assert list(events)[-1] == Cancelled()
    assert studio.state().generator.readiness == "unloaded"


@pytest.mark.parametrize("name", ["os:abort", "t2x.testing:FakeReward", "builtins:exit"])
def test_users_can_not_call_code_by_its_name(make_studio, name):
    studio = make_studio()
    asked = [
        CompareRequest("a cat", rewards=(name,)),
        GuideRequest("a cat", {name: 1.0}),
        EditRequest(Image.new("RGB", (8, 8)), "make it blue", weights={name: 1.0}),
    ]
    failed = [list(studio.run(request)) for request in asked]
    failed += [list(studio.load(generator=name)), list(studio.load(rewriter=name))]
    for (event,) in failed:
        assert isinstance(event, Failed) and "names code" in event.message


def test_models_can_be_made_to_stay(make_studio):
    studio = make_studio(limits=Limits(swaps=False))
    (failed,) = studio.load(rewriter="none")
    assert failed.cause == "request" and "keeps its models" in failed.message


def test_the_rewriter_writes_for_the_generator_that_is_there(make_studio):
    studio = make_studio()
    list(studio.run(ASKED))
    before = studio.models.rewriter()
    list(studio.load(generator=FakeGenerator()))
    assert studio.models.rewriter() is not before
    assert studio.models.rewriter().rewriter is before.rewriter


def test_models_are_loaded_ahead_in_the_order_of_need(make_studio, monkeypatch):
    order, ready = [], threading.Event()

    def loader(name, made):
        def load():
            order.append(name)
            if name == "reward":
                ready.set()
            return made()

        return load

    for name, made in (("g", FakeGenerator), ("w", FakeRewriter), ("r", FakeReward)):
        word = {"g": "generator", "w": "rewriter", "r": "reward"}[name]
        monkeypatch.setattr(f"t2x.testing.ahead_{name}", loader(word, made), raising=False)
    studio = make_studio(
        generator="t2x.testing:ahead_g",
        rewriter="t2x.testing:ahead_w",
        rewards=["t2x.testing:ahead_r"],
    )
    assert studio.state().generator.readiness == "unloaded" and not order
    studio.start()
    assert ready.wait(60)
    assert order == ["generator", "rewriter", "reward"]
    assert isinstance(list(studio.run(ASKED))[-1], Finished) and len(order) == 3


def test_under_a_limit_models_take_turns(make_studio, monkeypatch):
    monkeypatch.setattr("t2x.testing.one_generator", FakeGenerator, raising=False)
    monkeypatch.setitem(registry.GENERATORS, "one", "t2x.testing:one_generator")
    monkeypatch.setattr("t2x.testing.one_rewriter", FakeRewriter, raising=False)
    studio = make_studio(
        generator="t2x.testing:one_generator",
        rewriter="t2x.testing:one_rewriter",
        rewards=(),
        limits=Limits(memory="1GB"),
    )
    sizes = {"generator": 7 * 10**8, "rewriter": 6 * 10**8}
    monkeypatch.setattr(studio.models, "_planned", lambda source, role: (sizes[role], sizes[role]))
    assert isinstance(list(studio.run(ASKED))[-1], Finished)
    state = studio.state()
    assert {state.generator.readiness, state.rewriter.readiness} == {"ready", "unloaded"}
    sizes["generator"] = 2 * 10**9
    list(studio.load(generator=None))
    events = list(studio.load(generator="one"))
    assert events[-1].cause == "model" and "2 GB" in events[-1].message


def test_closing_cancels_and_refuses(make_studio):
    studio = make_studio()
    studio.close()
    (failed,) = studio.run(ASKED)
    assert failed.cause == "queue" and "closed" in failed.message
