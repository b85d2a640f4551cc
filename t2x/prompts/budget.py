"""Counts a prompt with the tokenizers of the generator that will read it, encoder by encoder.

CLIP reads 77 tokens, start and end included, and drops the rest unseen; pipelines with several
encoders cut each at its own limit.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Count", "TokenBudget", "token_limits"]

_UNLIMITED = 1_000_000  # transformers writes 1e30 where a tokenizer knows no limit
_DEFAULT_LIMIT = 512


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
    def from_pipeline(
        cls, pipeline: Any, sampling: Mapping[str, Any] | None = None
    ) -> TokenBudget | None:
        """Read tokenizers and limits from a diffusers pipeline; None if no tokenizer can be asked.

        ``sampling`` are the arguments of its calls, which may set ``max_sequence_length``.
        """
        from transformers import PreTrainedTokenizerBase

        parts = {
            name: part.tokenizer if _is_processor(name, part) else part
            for name, part in pipeline.components.items()
        }
        tokenizers = {n: p for n, p in parts.items() if isinstance(p, PreTrainedTokenizerBase)}
        if not tokenizers:
            return None
        return cls(token_limits(tokenizers, pipeline=type(pipeline), sampling=sampling or {}))

    def count(self, text: str) -> tuple[Count, ...]:
        """Count ``text`` for every encoder."""
        return tuple(
            _count(name, tok, limit, text) for name, (tok, limit) in self._encoders.items()
        )

    def fits(self, text: str) -> bool:
        """Whether at least one encoder sees the whole of ``text``."""
        counts = self.count(text)
        return not counts or not all(c.truncated for c in counts)

    def lost(self, text: str) -> tuple[str, ...]:
        """What of ``text`` each encoder that cuts it will not see."""
        return tuple(c.lost for c in self.count(text) if c.truncated)


def _is_processor(name: str, part: Any) -> bool:
    """Whether what a pipeline calls its tokenizer holds one and reads pictures, too (FLUX.2)."""
    from transformers import ProcessorMixin

    return name.startswith("tokenizer") and isinstance(part, ProcessorMixin)


def token_limits(
    tokenizers: Mapping[str, Any], *, pipeline: type, sampling: Mapping[str, Any]
) -> dict[str, tuple[Any, int | None]]:
    """Say how many tokens each encoder of a class of pipelines reads, as ``TokenBudget`` takes it.

    CLIP tokenizers know their limit. Others take ``max_sequence_length``: the caller's in
    ``sampling``, or the default of the pipeline's call; without one the limit is their own.
    """
    parameter = inspect.signature(pipeline.__call__).parameters.get("max_sequence_length")
    asked = sampling.get("max_sequence_length") or getattr(parameter, "default", None)
    limit = asked if isinstance(asked, int) else None
    return {
        name: (tokenizer, None if "clip" in type(tokenizer).__name__.lower() else limit)
        for name, tokenizer in tokenizers.items()
    }


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
