"""Candidates are written, drawn and scored once; a run that stopped ends as one that did not."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.data import collect as module
from t2x.data.collect import Policy, Search, Teacher, collect, load_writer, measured
from t2x.data.records import Candidate, Scored, history_record, read_histories, read_scored
from t2x.data.sources import Sourced
from t2x.errors import T2XError
from t2x.registry import load_rewriter
from t2x.rewriters.guarded import Guarded
from t2x.rewriters.parsing import parse_completion
from t2x.rollouts.measuring import Measurer
from t2x.rollouts.reading import CompletionReader
from t2x.rollouts.rendering import Renderer
from t2x.scoring.ensemble import RewardEnsemble
from t2x.search.evaluator import Order
from t2x.search.loading import load_search
from t2x.testing import BadRewriter, FakeGenerator, FakeReward, FakeRewriter
from t2x.types import Rewrite

SETTINGS = {"input": "digest"}
PROMPTS = [Sourced(f"a heron number {i}", {"kind": "plain"}) for i in range(7)]


class Spy(Measurer):
    """Counts orders, and stops after so many calls."""

    def __init__(self, calls: int = 99) -> None:
        super().__init__(Renderer(FakeGenerator()), RewardEnsemble([FakeReward()]))
        self.orders: list[Order] = []
        self.calls = calls

    def measure(self, orders: Sequence[Order]) -> torch.Tensor:
        if not self.calls:
            raise KeyboardInterrupt
        self.calls -= 1
        self.orders += orders
        return super().measure(orders)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 2)


def teacher(**options: Any) -> Teacher:
    return Teacher(Guarded(FakeRewriter(**options)), 3)


def run(measurer: Spy, out: str = "a.jsonl", **options: Any) -> list[Scored]:
    return collect(
        PROMPTS, teacher(), Path(out), settings=SETTINGS, measurer=measurer, pictures=2, **options
    )


def test_every_candidate_is_scored_against_the_users_own_prompt():
    """Trap 1, and common seeds for all texts of a prompt, the prompt as it is among them."""
    spy = Spy()
    (one, *_) = run(spy)
    assert len(one.candidates) == 3
    own = [o for o in spy.orders if o.prompt == one.prompt]
    assert {o.text for o in own} == {one.prompt, *(c.text for c in one.candidates)}
    by_text = [
        [o.seed for o in own if o.text == text] for text in dict.fromkeys(o.text for o in own)
    ]
    assert all(seeds == [*one.seeds] for seeds in by_text)
    assert len(set(one.seeds)) == 2
    picture = FakeGenerator().generate([one.candidates[0].text], seeds=[one.seeds[1]])
    assert one.candidates[0].scores["fake-reward"][1] == pytest.approx(float(picture[0, 0].mean()))


def test_a_run_that_was_stopped_ends_with_the_same_bytes():
    whole = run(Spy(), "whole.jsonl")
    with pytest.raises(KeyboardInterrupt):
        run(Spy(calls=2))
    assert len(read_scored(Path("a.jsonl"))) == 4
    with Path("a.jsonl").open("ab") as file:
        file.write(b'{"index": 4, "pro')  # what a kill leaves
    spy = Spy()
    assert run(spy) == whole
    assert Path("a.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert {o.prompt for o in spy.orders} == {p.text for p in PROMPTS[4:]}
    again = Spy()
    assert run(again) == whole
    assert not again.orders


def test_another_run_in_the_same_file_is_refused():
    run(Spy())
    with pytest.raises(T2XError, match="begun with something else"):
        collect(PROMPTS, teacher(), Path("a.jsonl"), settings={"input": "other"})


def test_progress_counts_prompts():
    heard: list[tuple[int, int | None]] = []
    run(Spy(), progress=lambda done, total: heard.append((done, total)))
    assert heard == [(0, 7), (2, 7), (4, 7), (6, 7), (7, 7)]


def test_a_score_that_is_missing_stays_missing():
    out = Path("a.jsonl")
    one = Scored(0, "p", "p", (Candidate("c", "t", scores={"r": (math.nan, 1.0)}),), (1, 2))
    out.write_text(json.dumps(one.record()).replace("NaN", "null") + "\n")
    (back,) = read_scored(out)
    assert math.isnan(back.candidates[0].scores["r"][0])
    out.write_text('{"index": 0}\n')
    with pytest.raises(T2XError, match="no file of scored candidates"):
        read_scored(out)


# ---- who writes ---------------------------------------------------------------------------------


class Reasoning(FakeRewriter):
    """Says why, and repeats what it is shown."""

    def _rewrite(self, prompt: str, seed: int, index: int) -> Rewrite:
        return Rewrite(prompt, f"{prompt}, tall, in soft light {index}", reasoning="because")


def test_a_teacher_answers_in_the_words_that_a_policy_sees():
    prompt = Sourced('a sign that says "OPEN" <lora:x:0.8>')
    (one,) = Teacher(Guarded(Reasoning()), 1).write([prompt], 5)
    (made,) = one.candidates
    assert (one.index, one.prompt) == (5, prompt.text)
    parsed = parse_completion(made.completion, require_answer=True)
    assert parsed.reasoning == "because"
    assert parsed.text == f"{one.seen}, tall, in soft light 0"
    assert "TEXT1" in one.seen and "OPEN" not in made.completion
    assert '"OPEN"' in made.text and "<lora:x:0.8>" in made.text  # what is drawn
    assert made.kind == "rewrite"


def test_a_teacher_that_breaks_a_check_gives_no_answer_to_learn():
    for name in ("refusal", "preamble", "translator"):
        (one,) = Teacher(Guarded(BadRewriter(name)), 1).write([Sourced("two red kayaks")], 0)
        assert [(c.kind, bool(c.reason)) for c in one.candidates] == [("broken", True)], name


class Broken(FakeRewriter):
    """Can't take one prompt."""

    def rewrite(self, prompts: Sequence[str], **options: Any) -> list[list[Rewrite]]:
        if any("bad" in prompt for prompt in prompts):
            raise RuntimeError("no")
        return super().rewrite(prompts, **options)


def test_a_prompt_that_the_teacher_cannot_take_stops_nothing():
    prompts = [Sourced("a bad heron"), Sourced("a heron")]
    found = Teacher(Guarded(Broken()), 2).write(prompts, 0)
    assert [len(one.candidates) for one in found] == [0, 2]


def test_a_policys_completions_are_kept_as_it_wrote_them():
    model: Any = load_rewriter("emoji-rewriter")
    policy = Policy(model, CompletionReader(model.template), 3)
    prompt = Sourced("a photo of two purple cups")
    (one,) = policy.write([prompt], 0)
    assert [c.completion for c in one.candidates] == [
        c.text for c in model.complete([prompt.text], num_generations=3)[0]
    ]
    assert {c.kind for c in one.candidates} <= {"rewrite", "broken"}
    assert all("<answer>" in c.completion and "<answer>" not in c.text for c in one.candidates)


def test_a_prompt_that_is_too_long_for_the_policy_is_none_of_its_failures():
    model: Any = load_rewriter("emoji-rewriter")
    policy = Policy(model, CompletionReader(model.template), 2)
    (one,) = policy.write([Sourced("a very long request " * 200)], 0)
    assert one.candidates == ()


def test_what_a_search_tried_are_candidates():
    searcher = load_search(
        "evolution", rewriter=FakeRewriter(), generator=FakeGenerator(), rewards=FakeReward(),
        budget=8, seeds=2,
    )  # fmt: skip
    (one,) = Search(searcher).write([Sourced("a heron on ice", {"kind": "plain"})], 3)
    assert one.index == 3 and one.fields == {"kind": "plain"}
    assert len(one.seeds) == 2 and len(one.original["fake-reward"]) == 2
    assert len(one.candidates) == 3
    for made in one.candidates:
        picture = FakeGenerator().generate([made.text] * 2, seeds=one.seeds)
        expected = picture[:, 0].mean((1, 2)).tolist()
        assert made.scores["fake-reward"] == pytest.approx(tuple(expected))
        assert parse_completion(made.completion, require_answer=True).text == made.text


def test_histories_of_a_folder_are_read():
    searcher = load_search(
        "best-of-n", rewriter=FakeRewriter(), generator=FakeGenerator(), rewards=FakeReward(),
        budget=4,
    )  # fmt: skip
    histories = [*searcher.search(["a heron", 'a sign "OPEN"'])]
    for i, history in enumerate(histories):
        folder = Path(f"found/{i:04d}")
        folder.mkdir(parents=True)
        (folder / "history.json").write_text(json.dumps(history.record()))
    first, second = read_histories(Path("found"))
    assert first == history_record(histories[0].record(), 0)
    assert first.candidates and not second.candidates  # quoted text is a stand-in to a policy
    with pytest.raises(T2XError, match=r"no history\.json"):
        read_histories(Path("found/0000/nothing"))


def test_what_can_write_what_is_said():
    with pytest.raises(T2XError, match="no language model"):
        load_writer("rules", as_policy=True)
    with pytest.raises(T2XError, match="generator and rewards"):
        load_writer("search:evolution", as_policy=True)
    with pytest.raises(T2XError, match="num is 0"):
        load_writer("rules", as_policy=False, num=0)
    assert isinstance(load_writer("rules", as_policy=False), Teacher)


def test_what_breaks_a_check_is_not_drawn():
    one = Scored(0, "p", "p", (Candidate("c", "p", kind="broken"), Candidate("d", "t")))
    spy = Spy()
    (back,) = measured([one], spy, pictures=2)
    assert {o.text for o in spy.orders} == {"p", "t"}
    assert [bool(c.scores) for c in back.candidates] == [False, True]
