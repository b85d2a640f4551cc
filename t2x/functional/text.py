"""Measures of texts: how much of a wanted one stands in another, how varied several are."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

__all__ = ["contained_ratio", "distinct_n"]


def contained_ratio(target: str, text: str) -> float:
    """1 - d / len(target), d the edits that turn ``target`` into the most similar piece of ``text``
    (Sellers 1980, Journal of Algorithms 1, on Levenshtein distance): in [0, 1].

    Both are compared without white space, case and compatibility forms (NFKC). 1 if the target
    stands in the text, whatever else does. Raises ``ValueError`` for a target without a character.
    """
    wanted, found = _plain(target), _plain(text)
    if not wanted:
        raise ValueError(f"the text to look for has no character: {target!r}")
    # Row i: fewest edits from wanted[:i] to a piece of found that ends at each place.
    row = [0] * (len(found) + 1)
    for i, char in enumerate(wanted, 1):
        above, row = row, [i]
        for j, other in enumerate(found, 1):
            row.append(min(above[j - 1] + (char != other), above[j] + 1, row[j - 1] + 1))
    return 1 - min(row) / len(wanted)


def distinct_n(texts: Sequence[str], n: int) -> float:
    """Different runs of ``n`` words divided by all of them, over all texts together (Li et al.
    2016, arXiv 1510.03055): in (0, 1], NaN if no text has ``n`` words.

    1 if no run comes twice; 1 / M for M copies of one text without a repetition. Words stand
    between white space, case does not count. Falls with the amount of text: compare equal amounts.
    """
    runs = []
    for text in texts:
        words = text.casefold().split()
        runs += [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return len(set(runs)) / len(runs) if runs else float("nan")


def _plain(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())
