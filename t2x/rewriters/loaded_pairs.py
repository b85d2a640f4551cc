"""What a rewriter's source may be that is loaded already."""

from __future__ import annotations

from copy import copy
from typing import Any

from t2x.errors import T2XError

__all__ = ["loaded_pair"]


def loaded_pair(source: Any) -> tuple[Any, Any]:
    """Give (model, tokenizer) of a loaded pair; of a processor, which also prepares pictures, its
    tokenizer, with the chat template of the processor if it has none. Raises T2XError for anything
    else."""
    pair = tuple(source) if isinstance(source, (tuple, list)) else ()
    if len(pair) != 2 or not hasattr(pair[0], "generate") or not callable(pair[1]):
        raise T2XError(
            f"{type(source).__name__} is no language model; give a hub id, a folder, or a loaded "
            "(model, tokenizer) or (model, processor)"
        )
    model, words = pair
    tokenizer = getattr(words, "tokenizer", words)
    if tokenizer is not words and not tokenizer.chat_template:
        tokenizer = copy(tokenizer)  # what is loaded stays as it is
        tokenizer.chat_template = getattr(words, "chat_template", None)
    return model, tokenizer
