"""Templates: what a checkpoint may say in its t2x.json, and what it may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.rewriters.templates import STYLE, Template, is_tag_list, read_template


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; it must be 0 for greedy, or positive"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"temperature": "hot"}, "'temperature' must be float, got 'hot'"),
        ({"top_p": 0}, "top_p is 0.0; it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0; it must be at least 1"),
        ({"max_new_tokens": 2.5}, "'max_new_tokens' must be int"),
        ({"top_k": -1}, "top_k is -1; it must be 0 for all tokens, or positive"),
        ({"min_p": 1}, "min_p is 1.0; it must be at least 0 and below 1"),
        ({"num_beams": 0}, "num_beams is 0; it must be at least 1"),
        ({"length_penalty": float("inf")}, "length_penalty is inf; it must be a number"),
        ({"reader": "odd"}, "reader is odd; it must be one of prompt, items"),
        ({"variants": [["fr", {}]]}, "it must be for one of zh, tags"),
        ({"variants": [["zh", {"user": "no"}]]}, "must hold {prompt} once"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0.0; it must be positive"),
        ({"examples": [["alone"]]}, "must have 2 entries"),
        ({"user": "no place"}, "must hold {prompt} once"),
        ({"sytem": ""}, "unknown key 'sytem': did you mean 'system'"),
        ([], "must hold keys and values"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path: Path, values: Any, message: str) -> None:
    (tmp_path / "t2x.json").write_text(json.dumps({"rewriter": values}))
    with pytest.raises(T2XError) as caught:
        read_template(tmp_path)
    assert message in str(caught.value) and str(tmp_path / "t2x.json") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is no valid JSON"), ("[1]", "must hold one JSON object"), ("[" * 100_000, "no valid")],
)
def test_a_file_that_is_no_object_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t2x.json").write_text(text)
    with pytest.raises(T2XError, match=message):
        read_template(tmp_path)


@pytest.mark.parametrize(
    ("prompt", "tags"),
    [
        ("1girl, solo, long hair", True),
        ("1girl, solo,long_hair,", True),
        ("masterpiece, best quality, cat ears", True),
        ("a cat, a dog, a bus", False),
        ("cat, dog", False),
        ("a cat sits on the mat, warm light, dusk", False),
        ("Sunset. Waves, boats, birds", False),
        ("one very long phrase of words, b, c", False),
        ("", False),
        (",,,", False),
    ],
)
def test_a_list_of_tags_is_told_from_a_sentence(prompt: str, tags: bool) -> None:
    assert is_tag_list(prompt) is tags


def test_a_variant_is_chosen_by_the_prompt() -> None:
    values = {"system": "S {style}", "variants": [["zh", {"system": "Z {style}", "style": "z"}]]}
    template = Template.from_dict(values)
    assert template.for_prompt("a cat").instructions == f"S {STYLE}"
    assert template.for_prompt("一只猫").instructions == "Z z"
    styled = template.in_style("tags", chinese="标签")
    assert styled.for_prompt("a cat").instructions == "S tags"
    assert styled.for_prompt("一只猫").instructions == "Z 标签"
    assert hash(template) == hash(Template.from_dict(values))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_template(tmp_path) is None
    (tmp_path / "t2x.json").write_text('{"base": "other"}')
    assert read_template(tmp_path) is None
    values = {"examples": [["a", "b"]], "temperature": 0, "top_p": 1, "max_new_tokens": 1}
    (tmp_path / "t2x.json").write_text(json.dumps({"rewriter": values}))
    expected = Template(examples=(("a", "b"),), temperature=0.0, top_p=1.0, max_new_tokens=1)
    assert read_template(tmp_path) == expected
