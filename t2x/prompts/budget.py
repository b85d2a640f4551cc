"""Counts a prompt with the tokenizers of the generator that will read it, encoder by encoder.

CLIP reads 77 tokens, start and end included, and drops the rest unseen; pipelines with several
encoders cut each at its own limit. Without a tokenizer there is only ``estimate``, which says that
it is one.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Count", "TokenBudget", "estimate"]

_UNLIMITED = 1_000_000  # transformers writes 1e30 where a tokenizer knows no limit
_DEFAULT_LIMIT = 512
_TOKENS_PER_WORD = 1.3


@dataclass(frozen=True)
class Count:
    """Tokens of one text for one encoder, special ones included; ``lost`` is the text that the
    encoder will not see.
    """

    encoder: str
    used: int
    limit: int
    lost: str = ""

    @property
    def truncated(self) -> bool:
        """Whether the encoder cuts the text."""
        return self.used > self.limit

    def __str__(self) -> str:
        cut = f", cut: {self.lost[:60]!r}" if self.truncated else ""
        return f"{self.encoder} {self.used}/{self.limit} tokens{cut}"


class TokenBudget:
    """Token limits of a generator: one tokenizer and one limit for each text encoder.

    Args:
        encoders: name -> (tokenizer, limit in tokens with special ones); a limit of None is the
            tokenizer's own.
    """

    def __init__(self, encoders: Mapping[str, tuple[Any, int | None]]) -> None:
        self._encoders = {
            name: (tok, _limit(tok, limit)) for name, (tok, limit) in encoders.items()
        }

    @classmethod
    def from_pipeline(cls, pipeline: Any) -> TokenBudget:
        """Read tokenizers and limits from a diffusers pipeline.

        CLIP tokenizers know their limit; others take the pipeline's own default of
        ``max_sequence_length``.
        """
        parameter = inspect.signature(type(pipeline).__call__).parameters.get("max_sequence_length")
        default = parameter.default if parameter is not None else None
        encoders: dict[str, tuple[Any, int | None]] = {}
        for name in ("tokenizer", "tokenizer_2", "tokenizer_3", "tokenizer_4"):
            tokenizer = getattr(pipeline, name, None)
            if tokenizer is None:
                continue
            own = "clip" in type(tokenizer).__name__.lower()
            encoders[name] = (tokenizer, None if own or not isinstance(default, int) else default)
        return cls(encoders)

    def count(self, text: str) -> tuple[Count, ...]:
        """Count ``text`` for every encoder."""
        return tuple(
            _count(name, tok, limit, text) for name, (tok, limit) in self._encoders.items()
        )


def _limit(tokenizer: Any, limit: int | None) -> int:
    if limit is not None:
        return limit
    own = getattr(tokenizer, "model_max_length", None)
    return int(own) if own is not None and own < _UNLIMITED else _DEFAULT_LIMIT


def _count(name: str, tokenizer: Any, limit: int, text: str) -> Count:
    ids = tokenizer(text, truncation=False, verbose=False)["input_ids"]
    if len(ids) <= limit:
        return Count(name, len(ids), limit)
    inner = tokenizer(text, truncation=False, verbose=False, add_special_tokens=False)["input_ids"]
    room = max(limit - (len(ids) - len(inner)), 0)
    return Count(name, len(ids), limit, str(tokenizer.decode(inner[room:])).strip())


def estimate(text: str, *, limit: int = 77) -> Count:
    """Guess at CLIP tokens without a tokenizer: 1.3 a word, one for each mark, two for each
    ideograph, two for the ends.
    """
    ideographs = len(re.findall(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]", text))
    words = len(re.findall(r"[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+", text))
    marks = len(re.findall(r"[^\w\s]", text))
    return Count(
        "estimate", math.ceil(_TOKENS_PER_WORD * words) + marks + 2 * ideographs + 2, limit
    )
