"""Rows in TRL's conversational formats, with the user's own words beside them.

``prompt`` holds what the policy sees of the user's words (syntax and quoted text taken out, as
``Guarded`` does); the policy's template goes around it when it is trained
(``t2x.training.data.templated``).
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["pair_row", "prompt_row", "sft_row", "text_length"]

_PIECE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+|[^\w\s]")


def _message(role: str, content: str) -> list[dict[str, str]]:
    return [{"role": role, "content": content}]


def prompt_row(original: str, seen: str | None = None, **extra: Any) -> dict[str, Any]:
    """A prompt to roll out from; ``extra`` columns reach the reward."""
    seen = original if seen is None else seen
    return {"prompt": _message("user", seen), "original_prompt": original, **extra}


def sft_row(
    original: str, completion: str, seen: str | None = None, **extra: Any
) -> dict[str, Any]:
    """A prompt and what to answer."""
    row = prompt_row(original, seen)
    return {**row, "completion": _message("assistant", completion), **extra}


def pair_row(
    original: str, chosen: str, rejected: str, seen: str | None = None, **extra: Any
) -> dict[str, Any]:
    """A prompt with a better and a worse answer."""
    row = prompt_row(original, seen)
    answers = {"chosen": _message("assistant", chosen), "rejected": _message("assistant", rejected)}
    return {**row, **answers, **extra}


def text_length(text: str) -> int:
    """How long a text is in words, punctuation marks and Chinese or Japanese characters: near
    enough to tokens to compare two answers, and the same for every policy.
    """
    return len(_PIECE.findall(text))
