"""Quoted text, byte for byte, whatever the quotation marks."""

from __future__ import annotations

import re
from collections import Counter

from t2x.prompts.forms import content_words

__all__ = ["lost_quotes", "quoted"]

_PAIRS = (
    ('"', '"'), ("\u201c", "\u201d"), ("\u201e", "\u201c\u201d"), ("\u201d", "\u201d"),
    ("\u00ab", "\u00bb"), ("\u00bb", "\u00ab"), ("\u2039", "\u203a"), ("\u300c", "\u300d"),
    ("\u300e", "\u300f"), ("\uff02", "\uff02"), ("`", "`"),
)  # fmt: skip
# An apostrophe opens a quotation only after a blank or a bracket, and closes one only before none
# of a word's letters.
_SINGLE = re.compile(
    r"(?<![^\s(\[,:;\u3002\uff0c])['\u2018](?=\S)((?:[^'\u2018\u2019\n]|['\u2019](?=\w)){1,200}?)(?<=\S)['\u2019](?!\w)"
)
_MAX = 2000


def quoted(text: str) -> list[str]:
    """Texts between quotation marks of any kind, in order, without the marks."""
    found: list[tuple[int, int, str]] = []
    at = 0
    while at < len(text):
        end = _closing(text, at)
        if end is None:
            at += 1
            continue
        found.append((at, end, text[at + 1 : end]))
        at = end + 1
    taken = [(start, end) for start, end, _ in found]
    for match in _SINGLE.finditer(text):
        if not any(start <= match.start() <= end for start, end in taken):
            found.append((match.start(), match.end(), match.group(1)))
    return [inner for _, _, inner in sorted(found) if inner.strip()]


def _closing(text: str, at: int) -> int | None:
    """Where the quotation that opens at ``at`` closes; None if none opens there."""
    for opener, closers in _PAIRS:
        if text[at] != opener or (opener == '"' and at and text[at - 1].isdigit()):  # inches
            continue
        ends = [e for c in closers if (e := text.find(c, at + 1, at + _MAX)) > at]
        if ends:
            return min(ends)
    return None


def lost_quotes(original: str, rewrite: str) -> list[str]:
    """Say which quoted texts of ``original`` are not in ``rewrite`` byte for byte.

    Unquoted they count as kept too, as a whole and with their capitals.
    """
    wanted, told = Counter(quoted(original)), Counter(quoted(rewrite))
    lost = [
        f"the quoted text {text[:60]!r} is lost"
        for text in wanted
        if not told[text] and not _stands_bare(text, rewrite)
    ]
    return lost or [
        f"the quoted text {t[:60]!r} is on another thing" for t in _moved(original, rewrite)
    ]


def _moved(original: str, rewrite: str) -> list[str]:
    """Quoted texts that are told of what the prompt told of another one."""
    had, has = _carriers(original), _carriers(rewrite)
    if len(had) < 2 or set(had) - set(has):
        return []
    every = [set(words) for words in had.values()]
    shared = set.intersection(*every) if every else set()
    own = {text: set(words) - shared for text, words in had.items()}
    return [
        text
        for text, words in own.items()
        if words
        and not words & set(has[text])
        and any(words & set(has[other]) for other in own if other != text)
    ]


def _carriers(text: str) -> dict[str, list[str]]:
    """Of each quoted text the content words of its clause, as far as the next quoted text."""
    found = quoted(text)
    marked = text
    for number, inner in enumerate(found):
        at = marked.find(inner)
        marked = f"{marked[:at]} \0{number}\0 {marked[at + len(inner) :]}" if at >= 0 else marked
    clauses = re.split(r"[,;.\n]| and | und | y ", marked)
    return {
        inner: content_words(re.sub(r"\0\d+\0", " ", clause))
        for number, inner in enumerate(found)
        for clause in clauses
        if f"\0{number}\0" in clause
    }


def _stands_bare(text: str, rewrite: str) -> bool:
    before, after = (
        (r"(?<!\w)" if text[:1].isalnum() else ""),
        (r"(?!\w)" if text[-1:].isalnum() else ""),
    )
    bare = rewrite
    for inner in quoted(rewrite):
        bare = bare.replace(inner, " ")
    return re.search(before + re.escape(text) + after, bare) is not None
