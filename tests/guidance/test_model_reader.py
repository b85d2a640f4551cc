"""A language model as reader: its lines, what it may not say, and what is left to the rules."""

from __future__ import annotations

import json

import pytest

from t2x.errors import T2XError
from t2x.guidance.model_reader import ModelReader, parse_lines
from t2x.guidance.primitives import Primitive, read_prompt
from t2x.rewriters.language_model import LanguageModelRewriter
from t2x.testing import FakeRewriter, tiny_causal_lm

PROMPT = 'two red cats on a mat, no dog, sign "HI"'


def test_lines_become_primitives_and_inventions_are_left_out() -> None:
    answer = """Here you are:
    - object | cat
    object | mat
    object | unicorn
    count | cat | two
    count | mat | 7
    attribute | cat | red
    attribute | cat | fluffy
    relation | cat | on | mat
    relation | cat | on
    negation | dog
    text | HI
    text | BYE
    object | cat
    """
    assert parse_lines(answer, PROMPT) == (
        Primitive("object", "cat"),
        Primitive("object", "mat"),
        Primitive("count", "cat", "2"),
        Primitive("attribute", "cat", "red"),
        Primitive("relation", "cat", "on", "mat"),
        Primitive("text", "", "HI"),
        Primitive("negation", "dog"),
    )
    assert parse_lines("", PROMPT) == ()


def test_a_model_that_says_nothing_useful_leaves_it_to_the_rules() -> None:
    """A real class with random weights: whatever it writes names no thing of the prompt."""
    model, tokenizer = tiny_causal_lm()
    read = ModelReader(LanguageModelRewriter(model, tokenizer))
    assert read(PROMPT) == read_prompt(PROMPT)
    assert read(PROMPT) is read(PROMPT)
    assert read("make the car red").intent.action == "attribute"


def test_a_rewriter_of_one_task_is_refused() -> None:
    with pytest.raises(T2XError, match="takes no instructions"):
        ModelReader(FakeRewriter())
    assert json.dumps(read_prompt("a cat").describe())
