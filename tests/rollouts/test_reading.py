"""Completions are read as use reads them, and what use would revert is a failure here."""

from __future__ import annotations

import pytest

from t2x.errors import T2XError
from t2x.rewriters.completion import Completion
from t2x.rewriters.templates import Template
from t2x.rollouts.reading import CompletionReader, policy_text, readable_text

EMOJI = Template(require_answer=True, domain="emoji")


def wrapped(text: str, plan: str = "plan") -> Completion:
    return Completion(f"<think>{plan}</think><answer>{text}</answer>")


@pytest.fixture(scope="module")
def reader() -> CompletionReader:
    return CompletionReader(EMOJI)


@pytest.mark.parametrize(
    ("completion", "kind", "reason"),
    [
        (wrapped("one object. center: a red dog."), "rewrite", ""),
        (wrapped("a red dog"), "rewrite", ""),  # the user's own words are something to draw
        (wrapped("one object.\ncenter: a red dog.", "two\nlines"), "rewrite", ""),
        (Completion("<think>plan</think><answer>a red dog, big"), "failed", "no closed answer"),
        (Completion("<think>plan a red dog"), "failed", "not closed"),
        (Completion("a big red dog"), "failed", "no closed answer"),
        (wrapped(""), "failed", "empty"),
        (Completion(""), "failed", ""),
        (wrapped("one object. center: a blue dog."), "broken", ""),
        (wrapped("two objects. left: a red dog. right: a red dog."), "broken", ""),
        (wrapped("a photo of a cat"), "broken", ""),
        (Completion("<think>plan</think><answer>a red", truncated=True), "truncated", ""),
    ],
)
def test_kinds(reader: CompletionReader, completion: Completion, kind: str, reason: str) -> None:
    found, rewrite = reader.read("a red dog", completion)
    assert found == kind
    if kind in ("broken", "failed"):
        assert rewrite.text == "a red dog"  # what use gives back, and what is never scored
        failed = [c.reason for c in rewrite.checks if not c.passed]
        assert failed
        assert reason in "; ".join(failed)


def test_positions_are_guarded_though_rewards_do_not_see_them(reader: CompletionReader) -> None:
    prompt = "a cat to the left of a dog"
    right = wrapped("two objects. left: a cat. right: a dog.")
    wrong = wrapped("two objects. left: a dog. right: a cat.")
    assert reader.read(prompt, right)[0] == "rewrite"
    assert reader.read(prompt, wrong)[0] == "broken"


def test_syntax_comes_back_byte_for_byte() -> None:
    reader = CompletionReader(Template(require_answer=True))
    prompt = 'a shop sign that says "Open 24h" <lora:neon:0.8>'
    seen = policy_text(prompt)
    assert "lora" not in seen
    assert "Open 24h" not in seen
    kind, rewrite = reader.read(prompt, wrapped(f"{seen}, at night"))
    assert kind == "rewrite"
    assert '"Open 24h"' in rewrite.text
    assert "<lora:neon:0.8>" in rewrite.text
    lost, _ = reader.read(prompt, wrapped("a shop sign, at night"))
    assert lost == "broken"


def test_a_prompt_in_pieces_cannot_be_answered_by_one_completion() -> None:
    with pytest.raises(T2XError, match="has 2 parts to rewrite"):
        policy_text("a cat BREAK a dog")
    with pytest.raises(T2XError, match="has 0 parts"):
        policy_text("")


def test_the_guard_is_that_of_use() -> None:
    """The same texts are accepted and reverted as by the rewriter in use."""
    from t2x.rewriters.loading import load_guarded
    from t2x.testing import FakeRewriter

    guard = load_guarded(FakeRewriter(), generator="emoji-flow-turbo")
    assert guard.budget is not None
    reader = CompletionReader(EMOJI, generator="emoji-flow-turbo")
    assert reader.guard.budget is not None
    long = "a red dog on a sofa, " * 20
    assert reader.guard.budget.count(long) == guard.budget.count(long)
    assert reader.guard.negatives == guard.negatives


def test_a_text_that_one_completion_can_answer() -> None:
    assert readable_text("a cat (in rain:1.2)") == policy_text("a cat (in rain:1.2)")
    assert readable_text("a cat BREAK a dog") is None
    assert readable_text("  ") is None
