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
from t2x.registry import SOURCES, import_attr, loading
from t2x.rewriters.encoding import PromptEncoder
from t2x.rollouts.reading import policy_text, readable_text
from t2x.training.policy import Policy

__all__ = ["answer_text", "check_rows", "load_prompts", "load_rows", "templated"]

log = logging.getLogger(__name__)

_READERS = {".jsonl": "json", ".json": "json", ".parquet": "parquet", ".csv": "csv"}
_MANY = 2000  # rows, which take seconds
_ORDINARY = "a cat"  # a prompt without anything special
_ANSWERS = ("completion", "chosen", "rejected")


def load_rows(source: str | Path, *, limit: int | None = None, split: str = "train") -> Any:
    """Load a ``datasets.Dataset``: a JSONL, parquet or CSV file, a folder or hub id, or a source by
    name, ``NAME:KIND?key=value&...`` (``world:prompts?n=2000&seed=0``).

    ``split``: of a folder or hub id; a file or a named source is one. ``limit`` keeps the first
    rows. Rows whose ``original_prompt`` is no text are left out, and how many is logged.

    Raises T2XError for a source that is not there, can't be read or has no such split, and for rows
    without ``original_prompt``.
    """
    name, colon, rest = str(source).partition(":")
    rows = import_attr(SOURCES[name])(rest) if colon and name in SOURCES else _stored(source, split)
    if "original_prompt" not in rows.column_names:
        raise T2XError(
            f"{str(source)!r} has the columns {', '.join(rows.column_names)} and no "
            "original_prompt; `t2x data` writes files that have it"
        )
    rows = _with_prompts(rows, str(source))
    return rows if limit is None else rows.select(range(min(limit, len(rows))))


def check_rows(source: str | Path) -> None:
    """Raise T2XError for a file of rows that is not there."""
    path = Path(source)
    if path.suffix in _READERS and not path.is_file():
        raise T2XError(f"there is no file {str(source)!r}; `t2x data` makes one")


def load_prompts(
    source: str | Path, *, limit: int | None = None, split: str = "train"
) -> list[str]:
    """Load the users' own words that one completion can answer; how many were left out is logged.

    Raises T2XError as ``load_rows`` does, and where no prompt is left.
    """
    found = [str(row["original_prompt"]) for row in load_rows(source, limit=limit, split=split)]
    kept = [prompt for prompt in found if readable_text(prompt) is not None]
    if lost := len(found) - len(kept):
        log.warning("%d of %d prompts left out: a completion can't answer them", lost, len(found))
    if not kept:
        raise T2XError(
            f"no prompt of {str(source)!r} can be trained on: all are in several parts, or in none"
        )
    return kept


def _stored(source: str | Path, split: str) -> Any:
    from datasets import load_dataset

    check_rows(source)
    path = Path(source)
    try:
        if path.suffix in _READERS:
            return load_dataset(_READERS[path.suffix], data_files=str(path), split="train")
        return load_dataset(str(source), split=split)
    except Exception as error:  # of a dozen kinds: what datasets, pyarrow, pandas and the hub raise
        where = "" if path.suffix in _READERS else f" (split {split!r})"
        reason = " ".join(str(error.__cause__ or error).split()) or type(error).__name__
        raise T2XError(
            f"the rows of {str(source)!r}{where} can't be read: {reason}; give a whole file of "
            f"{', '.join(_READERS)}, or a folder or hub id with a split of that name "
            "(data.train_split, data.validation_split)"
        ) from error


def _with_prompts(rows: Any, source: str) -> Any:
    """The rows with words to rewrite; T2XError if there is none."""
    kept = [i for i, prompt in enumerate(rows["original_prompt"]) if _is_text(prompt)]
    if not kept:
        raise T2XError(
            f"none of the {len(rows)} rows of {source!r} has a text as original_prompt; numbers in "
            "a CSV file are none"
        )
    if len(kept) == len(rows):
        return rows
    log.warning(
        "%d of %d rows of %r left out: their original_prompt is empty or no text",
        len(rows) - len(kept),
        len(rows),
        source,
    )
    return rows.select(kept)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def templated(rows: Any, policy: Policy) -> Any:
    """Put the policy's template around what a rewriter sees of every ``original_prompt``
    (``policy_text``), as column ``prompt``, and make completions one assistant message, or plain
    text for a model without a chat template.

    A row is left out, and how many were is logged, whose answers are no text, whose prompt a
    trainer would tokenise otherwise than ``PromptEncoder`` (one that holds control tokens of the
    chat template, say), or a rewriter would see in none or several pieces.
    """
    encoder = policy.encoder
    if len(rows) >= _MANY:
        loading.info("putting the policy's template around %s rows ...", f"{len(rows):,}")
    answers = [name for name in _ANSWERS if name in rows.column_names]
    answered = rows.filter(
        lambda row: all(_is_answer(row[name]) for name in answers), **_unhashed()
    )
    if dropped := len(rows) - len(answered):
        log.warning("%d of %d rows left out: an answer of theirs is no text", dropped, len(rows))
    rows = answered
    kept = rows.filter(lambda row: _is_readable(row["original_prompt"], encoder), **_unhashed())
    if len(kept) == 0 and not encoder.reads_alike(_ORDINARY):
        raise T2XError(
            "the policy's template does not fit its tokenizer: no prompt is read as it would be in "
            "use; give policy.template_of, the rewriter whose template it is (emoji-rewriter for "
            "emoji-lm), or policy.template"
        )
    if dropped := len(rows) - len(kept):
        log.warning(
            "%d of %d rows left out: their prompts hold control tokens, or are not in one piece",
            dropped,
            len(rows),
        )
    if len(kept) == 0:
        raise T2XError("no row is left to train on; see the warnings before this")
    return kept.map(_row_writer(policy, kept.column_names), desc="template", **_unhashed())


def _unhashed() -> dict[str, str]:
    """What keeps ``datasets`` from naming its result by a hash of the function: through the policy
    it would hash a whole model."""
    from datasets.fingerprint import generate_random_fingerprint

    return {"new_fingerprint": generate_random_fingerprint()}


def _is_readable(prompt: str, encoder: PromptEncoder) -> bool:
    seen = readable_text(prompt)
    return seen is not None and encoder.reads_alike(seen)


def _is_answer(answer: Any) -> bool:
    """Whether ``answer_text`` can read it."""
    if isinstance(answer, list) and answer and isinstance(answer[-1], Mapping):
        answer = answer[-1].get("content")
    return isinstance(answer, str)


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
