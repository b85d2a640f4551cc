"""Targeted edits: what to change in a text whose picture got something wrong.

A rewriter that follows instructions is told the fault. With one that only rewrites, the edit is on
clauses: what the fault is about comes first or is said twice, or comes from a text whose picture
got it right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from t2x.prompts.constraints import content_words
from t2x.prompts.words import NUMBER_WORDS
from t2x.search import clauses, instructions
from t2x.search.records import Candidate, Proposal, Track
from t2x.search.writer import Ask, Writer

__all__ = ["WRONG", "fault_words", "mending_ask", "mends"]

WRONG = 0.5  # probability of a key point below which it counts as wrong
_PLACES = frozenset(("left", "right", "above", "below", "top", "bottom", "under", "over", "behind"))


def failing(candidate: Candidate) -> dict[str, float]:
    """Key points that are likely wrong, the worst first; the worst one if none is."""
    ordered = dict(sorted(candidate.points.items(), key=lambda pair: (pair[1], pair[0])))
    wrong = {name: p for name, p in ordered.items() if p < WRONG}
    return wrong or dict(list(ordered.items())[:1])


def fault_words(candidate: Candidate, asked: frozenset[str]) -> frozenset[str]:
    """Content words that the fault is about: those that a critique names, else numbers for a wrong
    count and places for a wrong layout, else all that was asked for."""
    said = frozenset(w for remark in candidate.remarks for w in content_words(remark)) & asked
    if said:
        return said
    worst = next(iter(failing(candidate)), "")
    if worst == "counting":
        return frozenset(NUMBER_WORDS) & _words(" ".join(candidate.parts)) or asked
    return _PLACES if worst == "layout" else asked


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.casefold()))


def mending_ask(track: Track, parent: Candidate, number: int) -> Ask:
    """What a rewriter that follows instructions is asked: to mend the parent."""
    wrong = failing(parent)
    bodies = tuple(
        instructions.mended(source, part, wrong, parent.remarks)
        for source, part in zip(track.sources, parent.parts, strict=True)
    )
    return Ask(track, bodies, number, instructions.MEND)


def mends(
    track: Track, writer: Writer, parent: Candidate, donors: Sequence[Candidate]
) -> list[Proposal]:
    """Edits of the parent on clauses, the most targeted first. ``donors`` got right what the parent
    got wrong, the best first."""
    asked = writer.asked(track)
    words = fault_words(parent, asked)
    found: list[Proposal] = []
    for region, own in enumerate(parent.parts):
        texts: list[tuple[str, str, tuple[int, ...]]] = []
        for donor in donors:
            other = donor.parts[region]
            both = tuple(sorted((parent.number, donor.number)))
            right = [c for c in clauses.Clauses.of(other).clauses if words & _stems(c)]
            texts += [(clauses.repeat(own, c), "the donor's clause", both) for c in right[:1]]
            texts.append((clauses.swap_trimmings(own, other, asked), "the donor's style", both))
            texts.append((clauses.swap_trimmings(other, own, asked), "the donor's body", both))
        alone = (parent.number,)
        texts.append((clauses.front(own, words), "fault first", alone))
        wrong = [c for c in clauses.Clauses.of(own).clauses if words & _stems(c)]
        texts += [(clauses.repeat(own, c), "fault said twice", alone) for c in wrong[:1]]
        for text, operator, parents in texts:
            parts = [*parent.parts[:region], text, *parent.parts[region + 1 :]]
            found.append(writer.text(track, parts, operator, *parents))
    return found


def _stems(clause: str) -> frozenset[str]:
    return frozenset(content_words(clause)) | _words(clause)
