"""What is written for a model to learn is read back as it was."""

from __future__ import annotations

import pytest

from t2x.rewriters.parsing import parse_completion, replace_answer, write_completion


@pytest.mark.parametrize("reasoning", ["", "a plan", "two\nlines"])
@pytest.mark.parametrize("text", ["a cat", 'a sign "TEXT1", ITEM2', "two\nlines", "don’t"])
@pytest.mark.parametrize("negative", ["", "rain, people"])
def test_a_written_completion_is_read_back(text: str, reasoning: str, negative: str):
    parsed = parse_completion(write_completion(text, reasoning, negative), require_answer=True)
    assert (parsed.text, parsed.reasoning, parsed.negative) == (text, reasoning, negative)
    assert not parsed.problem


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think><answer>b</answer>", "<think>a</think><answer>new</answer>"),
        ("<reason>a</reason> <prompt>b</prompt>", "<reason>a</reason> <prompt>new</prompt>"),
        ("<answer>a</answer><answer>b</answer>", "<answer>a</answer><answer>new</answer>"),
        ("<think>a</think>b", "<think>a</think>new"),
        ("b", "new"),
        ("<think><answer>x</answer></think>b", "<think><answer>x</answer></think>new"),
    ],
)
def test_an_answer_is_replaced_and_the_rest_stays(completion: str, expected: str):
    assert replace_answer(completion, "new") == expected
    assert parse_completion(expected).text == "new"
