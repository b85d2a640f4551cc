"""Makes a rewrite fit by leaving out whole clauses, what the rewriter added before what the user
said, and puts the user's content first where an encoder will cut the rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from t2x.prompts.forms import content_words

__all__ = ["Clause", "clauses", "shortened", "user_first"]

_OPEN, _CLOSE = "([{<\u201c\u00ab\u300c\u201e", ")]}>\u201d\u00bb\u300d\u201d"
_MARK = re.compile(r"[,;.!?\u3001\u3002\uff0c\uff1b\uff01\uff1f\n]+(?=\s|$|[\u3400-\u9fff])")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(.])(?:[A-Za-z]|mr|mrs|ms|dr|st|mt|vs|no|prof|jr|sr|approx)\.$|^\d+\.$", re.I
)
_SENTENCE_END = ".!?\u3002\uff01\uff1f\n"


@dataclass(frozen=True)
class Clause:
    """A piece of a text up to a mark, with that mark and the blanks after it, and whether it ends a
    sentence.
    """

    text: str
    ends_sentence: bool


def clauses(text: str) -> list[Clause]:
    """Cut ``text`` after commas and ends of sentences, not inside quotes and brackets; joined the
    clauses are the text.
    """
    found: list[Clause] = []
    at = 0
    for mark in _MARK.finditer(text):
        end = mark.end() + len(text[mark.end() :]) - len(text[mark.end() :].lstrip())
        if _inside(text[at : mark.start()], text[end:]) or _ABBREVIATION.search(
            text[at : mark.end()]
        ):
            continue
        found.append(Clause(text[at:end], mark.group()[0] in _SENTENCE_END))
        at = end
    if at < len(text):
        found.append(Clause(text[at:], True))
    return found


def _inside(piece: str, rest: str) -> bool:
    """Whether a quotation or bracket is open at the end of ``piece`` that ``rest`` closes: a smiley
    or an inch mark opens none.
    """
    depth = sum(piece.count(c) for c in _OPEN) - sum(piece.count(c) for c in _CLOSE)
    closed = any(c in rest for c in _CLOSE)
    return (depth > 0 and closed) or (piece.count('"') % 2 == 1 and '"' in rest)


def shortened(text: str, source: str, fits: Callable[[str], bool]) -> tuple[str, tuple[str, ...]]:
    """Leave out clauses of ``text`` until it ``fits``: (what is left, what was left out in order).

    First those that have no word of ``source``, the user's prompt, from the last on; then those
    whose words of it other clauses have too. The user's only mention of anything stays, so that
    the result may still not fit.
    """
    kept, out = clauses(text), []
    wanted = set(content_words(source))
    for only_added in (True, False):
        while len(kept) > 1 and not fits(_joined(kept)):
            at = _least(kept, wanted, only_added=only_added)
            if at is None:
                break
            out.append(kept.pop(at).text.strip(" ,;.\n"))
    result = _joined(kept)
    return (result, tuple(out)) if out else (text, ())


def _least(kept: Sequence[Clause], wanted: set[str], *, only_added: bool) -> int | None:
    """The last clause that can be missed; None if none can."""
    said = [wanted & set(content_words(c.text)) for c in kept]
    for at in reversed(range(len(kept))):
        others = set().union(*(words for i, words in enumerate(said) if i != at))
        if not said[at] or (not only_added and said[at] <= others):
            return at
    return None


def _joined(kept: Sequence[Clause]) -> str:
    """Join clauses; a comma at the end goes."""
    joined = "".join(c.text for c in kept).strip()
    return joined.rstrip(" ,;") if kept and not kept[-1].ends_sentence else joined


def user_first(text: str, source: str) -> str:
    """Put what has words of ``source``, the user's prompt, before what the rewriter added.

    Sentences are moved as wholes; in a text of one sentence, its clauses.
    """
    pieces = _sentences(clauses(text))
    if len(pieces) < 2:
        pieces = [[clause] for clause in clauses(text)]
    wanted = set(content_words(source))

    def added(piece: Sequence[Clause]) -> bool:
        return not wanted & set(content_words("".join(c.text for c in piece)))

    ordered = sorted(pieces, key=added)
    if ordered == pieces:
        return text
    return _glued(["".join(c.text for c in piece) for piece in ordered])


def _sentences(found: Sequence[Clause]) -> list[list[Clause]]:
    out: list[list[Clause]] = [[]]
    for clause in found:
        out[-1].append(clause)
        if clause.ends_sentence:
            out.append([])
    return [piece for piece in out if piece]


def _glued(parts: Sequence[str]) -> str:
    """Join pieces in a new order, each with a mark of its own."""
    trimmed = [part.strip() for part in parts if part.strip()]
    marked = [
        part if part[-1] in f",;{_SENTENCE_END}" or i == len(trimmed) - 1 else f"{part},"
        for i, part in enumerate(trimmed)
    ]
    return " ".join(marked).rstrip(" ,;")
