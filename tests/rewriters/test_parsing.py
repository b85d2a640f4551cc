"""One parser for every phase: tags over lines, both pairs, and no reasoning in the prompt."""

from __future__ import annotations

import pytest

from t2x.rewriters.parsing import parse_completion


@pytest.mark.parametrize(
    ("completion", "text", "reasoning"),
    [
        ("<think>plan</think><answer>a cat</answer>", "a cat", "plan"),
        ("<reason>plan</reason>\n<prompt>a cat</prompt>", "a cat", "plan"),
        ("<think>\nline one\nline two\n</think>\n<answer>\na cat\n</answer>\n", "a cat",
         "line one\nline two"),
        ("plan</think><answer>a cat</answer>", "a cat", "plan"),
        ("<think>not <answer>this</answer></think><answer>a cat</answer>", "a cat",
         "not <answer>this</answer>"),
        ("<answer>draft</answer> better: <answer>a cat</answer>", "a cat", ""),
        ("<think>plan</think>a cat", "a cat", "plan"),
        ("a cat", "a cat", ""),
        ('"a cat"', "a cat", ""),
        ('"a" and "b"', '"a" and "b"', ""),
        ('"TEXT1"', '"TEXT1"', ""),
        ("Rewritten prompt: a cat", "a cat", ""),
    ],
)  # fmt: skip
def test_good(completion: str, text: str, reasoning: str) -> None:
    parsed = parse_completion(completion)
    assert (parsed.text, parsed.reasoning, parsed.problem) == (text, reasoning, "")


@pytest.mark.parametrize(
    ("completion", "truncated", "problem"),
    [
        ("<think>a long plan about a cat", True, "cut off inside its reasoning"),
        ("<think>a long plan about a cat", False, "reasoning is not closed"),
        ("<think>plan</think><answer>a ca", True, "cut off before its end"),
        ("<think>plan</think><answer>a ca", False, "no closed answer block"),
        ("<think>plan</think><answer> </answer>", False, "the answer is empty"),
        ("a cat on a", True, "cut off before its end"),
        ("", False, "the answer is empty"),
    ],
)
def test_bad(completion: str, truncated: bool, problem: str) -> None:
    parsed = parse_completion(completion, truncated=truncated)
    assert (parsed.text, parsed.problem) == ("", problem)


def test_a_closed_answer_survives_truncation() -> None:
    assert parse_completion("<answer>a cat</answer> and then", truncated=True).text == "a cat"


def test_tags_can_be_required() -> None:
    assert parse_completion("a cat", require_answer=True).problem == "no closed answer block"
