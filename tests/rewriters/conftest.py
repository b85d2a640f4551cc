"""A Qwen-like chat model of random weights, and a rewriter that says what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from t2x.testing import tiny_byte_tokenizer, tiny_causal_lm
from t2x.types import Check, Rewrite


@pytest.fixture(scope="session")
def chat_tokenizer() -> Any:
    return tiny_byte_tokenizer()


@pytest.fixture(scope="session")
def chat_model(chat_tokenizer: Any) -> Any:
    """The tiny model, whose texts are noise that depends on the whole input."""
    model, _ = tiny_causal_lm(1, tokenizer=chat_tokenizer, tied=False)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    return model


class Scripted:
    """Rewriter whose answers a test gives as a function of what it is shown."""

    model_id = "scripted"

    def __init__(self, answer: Callable[[str], str | None]) -> None:
        self.answer = answer
        self.seen: list[str] = []

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        self.seen += prompts
        return [[self._one(p, seed)] * num_generations for p in prompts]

    def _one(self, prompt: str, seed: int) -> Rewrite:
        text = self.answer(prompt)
        if text is None:
            check = Check("completion", False, "cut off before its end")
            return Rewrite(prompt, prompt, status="failed", checks=(check,), raw="half a senten")
        return Rewrite(prompt, text, seed=seed, raw=text)


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted
