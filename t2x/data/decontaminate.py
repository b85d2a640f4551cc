"""Finds prompts of the public benchmarks in training data, by hashes alone.

``benchmarks.safetensors`` holds, for each benchmark, hashes of whole prompts and of spans of
``SPAN`` words in them; ``benchmarks.json`` says from where they are, how many, and how often
ordinary prompts are taken for a benchmark's. No text of a benchmark is in this package.
``tests/data/make_benchmark_hashes.py`` makes both files.

A text is an *exact* match if it is a prompt, case, punctuation and spacing left aside. It is a
*near* one if it holds a whole prompt of ``SHORTEST`` words, or shares a run of ``SPAN`` + 1 words
with a longer one (a hash is kept of every second run of ``SPAN`` words, so that a run of just so
many is found half of the time). Shorter prompts are matched as a whole only: "a photo of a bear
eating honey" is not GenEval's, though it begins with one of its prompts. A paraphrase is not found,
and neither is a translation.

Spans of words against test sets, as is usual for language models (Brown et al. 2020, arXiv
2005.14165, appendix C). Differs: 8 words in place of 13, since prompts are short.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

__all__ = [
    "SHORTEST",
    "SPAN",
    "Match",
    "find_benchmark",
    "hash_prompts",
    "prompt_key",
    "prompt_words",
    "sources",
    "span_hashes",
    "whole_hash",
]

SPAN = 8
SHORTEST = 7
STRIDE = 2
_FILE = Path(__file__).with_name("benchmarks.safetensors")
_CARD = Path(__file__).with_name("benchmarks.json")
_WORD = re.compile(r"[^\W_]+")
_QUOTES = str.maketrans("", "", "'’")


@dataclass(frozen=True)
class Match:
    """A benchmark whose prompt a text is (*exact*) or holds (*near*)."""

    benchmark: str
    kind: Literal["exact", "near"]


def prompt_words(text: str) -> list[str]:
    """The words of a text as they are compared: letters and digits, case folded."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold().translate(_QUOTES))


def prompt_key(text: str) -> str:
    """What two prompts that differ in case and marks alone have in common."""
    return " ".join(prompt_words(text)) or text


def whole_hash(words: Sequence[str]) -> int:
    """Hash a run of words to 64 bits."""
    digest = blake2b(" ".join(words).encode("utf-8", "replace"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


def span_hashes(words: Sequence[str], size: int = SPAN, *, stride: int = 1) -> list[int]:
    """Hashes of the runs of ``size`` words that begin at every ``stride``-th word, and of the last;
    none if there are fewer words."""
    last = len(words) - size
    starts = sorted({*range(0, last + 1, stride), last}) if last >= 0 else []
    return [whole_hash(words[i : i + size]) for i in starts]


def find_benchmark(text: str) -> Match | None:
    """The benchmark that a text is from: an exact match before a near one, else the first of the
    names' order; None for a text of no benchmark."""
    words = prompt_words(text)
    if not words:
        return None
    wholes, spans = _tables()
    found = wholes.get(whole_hash(words))
    if found is not None:
        return Match(found, "exact")
    near = [spans.get(h) for h in span_hashes(words)]
    near += [wholes.get(h) for h in span_hashes(words, SHORTEST)]
    names = sorted(name for name in near if name is not None)
    return Match(names[0], "near") if names else None


def sources() -> dict[str, Any]:
    """What the hashes were made from: repositories, commits, licences, counts, error rates."""
    card: dict[str, Any] = json.loads(_CARD.read_text("utf-8"))
    return card


@lru_cache(maxsize=1)
def _tables() -> tuple[dict[int, str], dict[int, str]]:
    """Name of the benchmark by hash: of whole prompts, and of spans."""
    from safetensors.numpy import load_file

    arrays = load_file(_FILE)
    wholes: dict[int, str] = {}
    spans: dict[int, str] = {}
    for key in sorted(arrays, reverse=True):  # of a prompt in two benchmarks the first name stays
        name, _, part = key.partition("/")
        table = wholes if part == "wholes" else spans
        table.update(dict.fromkeys(arrays[key].tolist(), name))
    return wholes, spans


def hash_prompts(prompts: Iterable[str]) -> tuple[list[int], list[int]]:
    """Hashes of whole prompts and of their spans, as the file keeps them, sorted."""
    rows = [words for prompt in prompts if (words := prompt_words(prompt))]
    wholes = {whole_hash(words) for words in rows}
    spans = {h for words in rows for h in span_hashes(words, stride=STRIDE)}
    return sorted(wholes), sorted(spans)
