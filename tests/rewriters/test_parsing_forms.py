"""Answers in other forms than tags: JSON, fences, labels of four languages, negative prompts, and
what stays refused. Rows that stand for a defect of a
published rewriter name it."""

from __future__ import annotations

import pytest

from t2x.rewriters.parsing import Parsed, parse_completion


@pytest.mark.parametrize(
    ("completion", "text", "negative"),
    [
        ('{"prompt": "a cat", "negative_prompt": "people, cars"}', "a cat", "people, cars"),
        ('{"prompt": "a cat", "negative_prompt": ""}', "a cat", ""),
        ('{"Prompt": "a cat", "negative": ["people", "cars"]}', "a cat", "people, cars"),
        ('```json\n{"rewritten_prompt": "a cat"}\n```', "a cat", ""),
        ('```\na cat\non a mat\n```', "a cat\non a mat", ""),
        ("```a cat```", "a cat", ""),
        ('{"prompt": "a sign \\"A\\nB\\""}', 'a sign "A\nB"', ""),  # Qwen-Image
        ('{"prompt": "a sign A\nB"}', "a sign A\nB", ""),
        ('{"prompt": "a ```box``` of nails"}', "a ```box``` of nails", ""),  # Qwen-Image
        ("a cat\nNegative prompt: people, cars.", "a cat", "people, cars"),
        ("a cat\n\n**Negative prompt:** none", "a cat", ""),
        ("一只猫\n负面提示词：人物", "一只猫", "人物"),
        ("改写后的提示词：一只猫", "一只猫", ""),
        ("提示词：一只猫", "一只猫", ""),
        ("Prompt mejorado: un gato", "un gato", ""),
        ("Descripción de la imagen: un gato", "un gato", ""),
        ("Überarbeiteter Prompt: eine Katze", "eine Katze", ""),
        ("Bildbeschreibung: eine Katze", "eine Katze", ""),
        ("**Improved Prompt:** a cat", "a cat", ""),
        ("\u300c一只猫\u300d", "一只猫", ""),
        ("'a cat'", "a cat", ""),
        ("'a' and 'b'", "'a' and 'b'", ""),
        # PromptEnhancer: apostrophes are no quotation marks, straight or curly
        ("the children\u2019s kite, don\u2019t", "the children\u2019s kite, don\u2019t", ""),
        ("a cat's bowl", "a cat's bowl", ""),
        ("a 1.5 m tall sign of St. Mark's", "a 1.5 m tall sign of St. Mark's", ""),
        ("a menu with 1. soup and 2. fish", "a menu with 1. soup and 2. fish", ""),
        ("{red|blue} cat", "{red|blue} cat", ""),
        ("[a photo] of a cat", "[a photo] of a cat", ""),
    ],
)  # fmt: skip
def test_forms(completion: str, text: str, negative: str) -> None:
    assert parse_completion(completion) == Parsed(text, negative=negative)


@pytest.mark.parametrize(
    ("completion", "problem"),
    [
        ('{"prompt": "a ca', "broken JSON"),
        ('{"title": "a cat"}', "JSON without a text under 'prompt'"),
        ('{"prompt": ["a cat", "a dog"]}', "JSON without a text under 'prompt'"),
        ('{"prompt": 3}', "JSON without a text under 'prompt'"),
        ('{"prompt": " "}', "the answer is empty"),
        ('["a cat", "a dog"]', "several prompts in a list in place of one"),
        ("1. a cat\n2. a dog", "several prompts in a list in place of one"),
        ("Prompt 1: a cat\nPrompt 2: a dog", "several prompts in a list in place of one"),
        ("Prompt 1: a cat\n\nPrompt 2: a dog", "several prompts in a list in place of one"),
        ("提示词1：猫\n提示词2：狗", "several prompts in a list in place of one"),
        ("1、猫\n2、狗", "several prompts in a list in place of one"),
        ("Here it is:\n```\na cat\n```", "a code fence around a part of the answer"),
        ("```a cat```\n```a dog```", "a code fence around a part of the answer"),
        ("```\na cat", "a code fence around a part of the answer"),
        ("{" * 100_000, ""),
        ('{"a":' * 100_000, "broken JSON"),
    ],
)
def test_refused(completion: str, problem: str) -> None:
    parsed = parse_completion(completion)
    assert parsed.problem == problem
    assert not problem or parsed.text == ""


def test_a_list_answers_a_prompt_that_holds_one() -> None:
    menu = "a menu:\n1. soup\n2. fish"
    assert parse_completion(f"{menu}\non slate", source=menu).text == f"{menu}\non slate"


def test_reasoning_is_kept_apart_from_any_form() -> None:
    parsed = parse_completion('<think>plan</think>{"prompt": "a cat", "reasoning": "why"}')
    assert (parsed.text, parsed.reasoning) == ("a cat", "plan")
    assert parse_completion('{"prompt": "a cat", "reasoning": "why"}').reasoning == "why"


@pytest.mark.parametrize("inner", ["a cat\non a mat", "a cat\n\non a mat"])
def test_lines_in_tags_count_alike_in_every_phase(inner: str) -> None:
    """RePrompt: the reward's pattern stopped at a line break, the evaluation's did not."""
    for reason, answer in (("think", "answer"), ("reason", "prompt")):
        text = f"<{reason}>one\ntwo</{reason}>\n<{answer}>{inner}</{answer}>"
        for cut in (False, True):
            found = parse_completion(text, truncated=cut, require_answer=True)
            assert found == Parsed(inner, "one\ntwo")


def test_an_answer_without_tags_is_no_constant_prompt() -> None:
    """RePrompt: "a photo" was drawn in the place of an answer that could not be read."""
    found = parse_completion("Let me see.\n<think>plan</think> a cat", require_answer=True)
    assert (found.text, found.problem) == ("", "no closed answer block")


def test_reasoning_cut_before_its_end_is_no_prompt() -> None:
    """PromptEnhancer: an unclosed <think> was kept as the prompt, reasoning and all."""
    found = parse_completion("<think>the user wants a cat, so", truncated=True)
    assert found.text == "" and found.reasoning == "the user wants a cat, so"
