"""Rows in TRL's formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from t2x.errors import T2XError
from t2x.rewriters.encoding import PromptEncoder
from t2x.rewriters.templates import Template
from t2x.training.data import load_prompts

pytestmark = pytest.mark.extra("train")


def rows(folder: Path, *prompts: str) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps({"original_prompt": p}) + "\n" for p in prompts))
    return path


def test_prompts_that_one_completion_can_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = rows(tmp_path, "a cat", "a cat BREAK a dog", "()", "a dog", "a hen")
    assert load_prompts(path, limit=4) == ["a cat", "a dog"]
    assert "2 of 4 prompts left out" in caplog.text
    with pytest.raises(T2XError, match=r"no prompt of .*rows.jsonl.* can be trained on"):
        load_prompts(rows(tmp_path, "()", "a BREAK b"))


class Tokenizer:
    """Knows whether there is a chat template, and no more."""

    def __init__(self, chat_template: str | None) -> None:
        self.chat_template = chat_template


def test_an_answer_is_a_message_where_there_is_a_chat_template() -> None:
    chat, plain = (PromptEncoder(Tokenizer(t), Template()) for t in ("{{ messages }}", None))
    assert chat.answer("a cat") == [{"role": "assistant", "content": "a cat"}]
    assert plain.answer("a cat") == "a cat"
