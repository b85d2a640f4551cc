"""Which words are English, and which two words are forms of one.

A word of the prompt is looked for with another spelling only if it is misspelt: "horse" and
"house", "parrot" and "carrot" are as close as a slip and its correction. What is English is read
from the vocabulary of CLIP's tokenizer, some 15,000 words, the most frequent ones of the texts that
it was made from; it comes with open_clip, whose code is not imported for it.
"""

from __future__ import annotations

import difflib
import gzip
import logging
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise, takewhile
from pathlib import Path

from t2x.prompts.forms import stem

log = logging.getLogger(__name__)

__all__ = ["closest", "is_part", "is_word", "rank_of", "root"]

_VOCABULARY = "bpe_simple_vocab_16e6.txt.gz"
_MERGES = 25_000  # lines of the file that are read, most frequent first; slips are among the rest
_SHORTEST_PART = 3
_SHORTEST_ROOT = 4
_ENDINGS = ("ness", "less", "ful", "ish", "ly", "er", "en", "y", "e")


def is_word(word: str) -> bool:
    """Whether ``word``, lower case, is English in some form; rare words are not known."""
    whole, stems = _words()
    return word in whole or stem(word) in stems


def rank_of(word: str) -> int | None:
    """Place of a lower-case ``word`` among CLIP's, the most frequent first; None if it has none."""
    return _ranks().get(word)


def closest(word: str, known: Sequence[str], *, similar: float) -> str | None:
    """Give the one of ``known`` that a misspelt ``word`` is closest to: one slip away, if any is.

    None if ``word`` is English, or if the closest one is less ``similar`` (ratio of difflib, 1 for
    equal).
    """
    if is_word(word):
        return None
    found = difflib.get_close_matches(word, known, n=5, cutoff=similar)
    return next((other for other in found if _is_slip(word, other)), found[0] if found else None)


def _is_slip(word: str, other: str) -> bool:
    """Whether one letter is left out, added or another, or two neighbours are swapped."""
    one, two = _without_start(word, other)
    one, two = _without_start(one[::-1], two[::-1])
    return max(len(one), len(two)) <= 1 or (len(one) == 2 and one == two[::-1])


def _without_start(one: str, two: str) -> tuple[str, str]:
    """Cut off the letters that both begin with."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, two, strict=False)))
    return one[same:], two[same:]


def is_part(word: str, longer: str) -> bool:
    """Whether ``longer`` is ``word`` and another word in one: "boat" and "sailboat"."""
    if len(longer) < len(word) + _SHORTEST_PART:
        return False
    at_start = longer.startswith(word) and is_word(longer[len(word) :])
    return at_start or (longer.endswith(word) and is_word(longer[: -len(word)]))


@lru_cache(maxsize=4096)
def root(word: str) -> str:
    """What forms and spellings of a stem have in common, only good for comparing two of them:
    "sunny" and "sun", "dancer" and "danc", "theatre" and "theater" have the same.
    """
    word = word.replace("our", "or")
    if word.endswith("re"):
        word = f"{word[:-2]}er"
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST_ROOT:
            word = word.removesuffix(ending)
            break
    doubled = len(word) >= _SHORTEST_ROOT and word[-1] == word[-2]
    return word[:-1] if doubled else word


@lru_cache(maxsize=1)
def _pairs() -> list[list[str]]:
    """Pieces that CLIP's tokenizer joins, most frequent first; none without its vocabulary."""
    spec = find_spec("open_clip")
    path = Path(spec.origin or "").parent / _VOCABULARY if spec is not None else None
    if path is None or not path.is_file():
        message = "the installed open_clip has no %s: any word of a prompt may count as misspelt"
        log.warning(message, _VOCABULARY)
        return []
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.split() for line in file.read().split("\n")[1 : _MERGES + 1]]


@lru_cache(maxsize=1)
def _ranks() -> dict[str, int]:
    found: dict[str, int] = {}
    for rank, (first, last) in enumerate(_pairs()):
        if last.endswith("</w>"):
            found.setdefault(first + last.removesuffix("</w>"), rank)
    return found


@lru_cache(maxsize=1)
def _words() -> tuple[frozenset[str], frozenset[str]]:
    """Words and their stems; none, with a line in the log, if open_clip no longer brings them."""
    pairs = _pairs()
    found = {first + last.removesuffix("</w>") for first, last in pairs if last.endswith("</w>")}
    whole = frozenset(_without_endings(sorted(filter(str.isalpha, found)), pairs))
    return whole, frozenset(map(stem, whole))


def _without_endings(words: list[str], pairs: list[list[str]]) -> Iterator[str]:
    """Leave out what only ends longer words, as "tise" ends "prac" and "exper": a piece."""
    known = frozenset(words)
    before: dict[str, set[str]] = {}
    for first, last in pairs:
        before.setdefault(last.removesuffix("</w>"), set()).add(first)
    for word, following in pairwise([*words, ""]):
        first_parts = before.get(word, set())
        if not first_parts or first_parts & known or following.startswith(word):
            yield word
