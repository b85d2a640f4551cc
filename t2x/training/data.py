"""Rows in TRL's formats: where they come from, and how a policy's template goes around them.

A row has ``original_prompt``, the user's own words, and what its recipe learns from: ``completion``
(SFT), ``chosen`` and ``rejected`` (preferences), or nothing more (RL). Texts are lists of messages
or plain strings; ``templated`` makes of both what this policy reads in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.registry import SOURCES, import_attr
from t2x.rewriters.encoding import PromptEncoder
from t2x.rollouts.reading import policy_text, readable_text
from t2x.training.policy import Policy

__all__ = ["answer_text", "load_prompts", "load_rows", "templated"]

log = logging.getLogger(__name__)

_READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
_ANSWERS = ("completion", "chosen", "rejected")


def load_rows(source: str | Path, *, limit: int | None = None, split: str = "train") -> Any:
    """Load a ``datasets.Dataset``: a JSONL, parquet or CSV file, a hub id, or a source by name,
    ``NAME:KIND?key=value&...`` (``world:prompts?n=2000&seed=0``).

    Raises T2XError for a file that is not there or of another kind, and for rows without
    ``original_prompt``.
    """
    from datasets import load_dataset

    name, colon, rest = str(source).partition(":")
    path = Path(source)
    if colon and name in SOURCES:
        rows = import_attr(SOURCES[name])(rest)
    elif path.suffix in _READERS:
        if not path.is_file():
            raise T2XError(f"there is no file {str(source)!r}; `t2x data` makes one")
        rows = load_dataset(_READERS[path.suffix], data_files=str(path), split="train")
    else:
        rows = load_dataset(str(source), split=split)
    if "original_prompt" not in rows.column_names:
        raise T2XError(
            f"{str(source)!r} has the columns {', '.join(rows.column_names)} and no "
            "original_prompt; `t2x data` writes files that have it"
        )
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def load_prompts(source: str | Path, *, limit: int | None = None) -> list[str]:
    """Load the users' own words that one completion can answer; how many were left out is logged.

    Raises T2XError as ``load_rows`` does, and where no prompt is left.
    """
    found = [str(row["original_prompt"]) for row in load_rows(source, limit=limit)]
    kept = [prompt for prompt in found if readable_text(prompt) is not None]
    if lost := len(found) - len(kept):
        log.warning("%d of %d prompts left out: a completion can't answer them", lost, len(found))
    if not kept:
        raise T2XError(
            f"no prompt of {str(source)!r} can be trained on: all are in several parts, or in none"
        )
    return kept


def templated(rows: Any, policy: Policy) -> Any:
    """Put the policy's template around what a rewriter sees of every ``original_prompt``
    (``policy_text``), as column ``prompt``, and make completions one assistant message, or plain
    text for a model without a chat template.

    A row is left out, and how many were is logged, whose prompt a trainer would tokenise otherwise
    than ``PromptEncoder`` (one that holds control tokens of the chat template, say), or a rewriter
    would see in none or several pieces.
    """
    encoder = policy.encoder
    kept = rows.filter(lambda row: _is_readable(row["original_prompt"], encoder))
    if dropped := len(rows) - len(kept):
        log.warning(
            "%d of %d rows left out: their prompts hold control tokens, or are not in one piece",
            dropped,
            len(rows),
        )
    if len(kept) == 0:
        raise T2XError("no row is left to train on; see the warnings before this")
    return kept.map(_row_writer(policy, kept.column_names), desc="template")


def _is_readable(prompt: str, encoder: PromptEncoder) -> bool:
    seen = readable_text(prompt)
    return seen is not None and encoder.reads_alike(seen)


def _row_writer(policy: Policy, columns: Sequence[str]) -> Callable[[Mapping[str, Any]], Any]:
    encoder, answers = policy.encoder, [name for name in _ANSWERS if name in columns]

    def write(row: Mapping[str, Any]) -> dict[str, Any]:
        seen = policy_text(row["original_prompt"])
        found: dict[str, Any] = {"prompt": encoder.conversation(seen)}
        if not encoder.is_plain:  # TRL hands it to the chat template
            found["chat_template_kwargs"] = {"enable_thinking": policy.template.thinking}
        for name in answers:
            found[name] = encoder.answer(answer_text(row[name]))
        return found

    return write


def answer_text(answer: Any) -> str:
    """The words of a plain text or of a list with one assistant message."""
    return str(answer) if isinstance(answer, str) else str(answer[-1]["content"])
