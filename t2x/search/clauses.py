"""Operators on prompts that need no language model: they move, drop, mix and swap clauses.

A clause is what stands between commas, semicolons and the ends of sentences, outside brackets and
quotes, as ``t2x.prompts.shorten`` cuts. So
"exactly two cats on a sofa, soft light" has two, and "two objects. left: a cat. right: a dog." has
three. Clauses that share no content word with the user's prompt are its *trimmings* (style,
quality, surroundings), the others its *body*. What an operator gives is checked like any other
rewrite before a picture is spent on it.

After the operators of EvoPrompt (Guo et al. 2024, arXiv 2309.08532: crossover and mutation of a
genetic algorithm, differences of donors in differential evolution) and Promptbreeder (Fernando et
al. 2023, arXiv 2309.16797). Differs from the papers: there a language model carries them out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from t2x.prompts import shorten
from t2x.prompts.constraints import content_words

__all__ = [
    "TRIMMINGS",
    "Clauses",
    "add_trimming",
    "cross",
    "differential",
    "drop",
    "front",
    "is_trimming",
    "repeat",
    "shuffle",
    "swap_trimmings",
]

# Words for quality and setting that nearly every caption set knows.
TRIMMINGS = (
    "high quality",
    "plain background",
    "clean illustration",
    "sharp focus",
    "studio light",
    "simple composition",
)
_MARKS = re.compile(r"[,;.!?\s\u3001\u3002\uff0c\uff1b\uff01\uff1f]*$")


@dataclass(frozen=True)
class Clauses:
    """A text in clauses, each without the mark behind it; ``marks`` has as many entries."""

    clauses: tuple[str, ...]
    marks: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Clauses:
        """Cut a text; ``str`` of the result is the text again, but for blanks at the ends."""
        found = []
        for clause in shorten.clauses(text.strip()):
            end = _end(clause.text)
            found.append((clause.text[:end], clause.text[end:]))
        return cls(tuple(c for c, _ in found), tuple(m for _, m in found))

    def __str__(self) -> str:
        return "".join(c + m for c, m in zip(self.clauses, self.marks, strict=True)).strip()

    def __len__(self) -> int:
        return len(self.clauses)

    def with_clauses(self, clauses: Sequence[str]) -> str:
        """Other clauses with the marks of these: the commonest between them, the last at the
        end."""
        kept = [c for c in clauses if c]
        inner = self.marks[:-1] or (", ",)
        between = max(dict.fromkeys(inner), key=list(inner).count)
        end = self.marks[-1].strip() if self.marks else ""
        return (between if between[-1:].isspace() else f"{between} ").join(kept) + end


def _end(clause: str) -> int:
    """Where the marks at the end of a clause begin."""
    found = _MARKS.search(clause)
    return found.start() if found else len(clause)


def is_trimming(clause: str, asked: frozenset[str]) -> bool:
    """Whether a clause says nothing of ``asked``, the content words of the prompt."""
    return not asked & frozenset(content_words(clause))


# ---- one parent ---------------------------------------------------------------------------------


def drop(text: str, rng: random.Random) -> str:
    """Leave one clause out."""
    cut = Clauses.of(text)
    if len(cut) < 2:
        return text
    gone = rng.randrange(len(cut))
    return cut.with_clauses([c for i, c in enumerate(cut.clauses) if i != gone])


def shuffle(text: str, rng: random.Random) -> str:
    """Put the clauses in another order (Promptbreeder's context shuffling): two change places."""
    cut = Clauses.of(text)
    if len(cut) < 2:
        return text
    a, b = rng.sample(range(len(cut)), 2)
    order = list(cut.clauses)
    order[a], order[b] = order[b], order[a]
    return cut.with_clauses(order)


def front(text: str, words: frozenset[str]) -> str:
    """Bring the clauses that speak of ``words`` to the front: encoders heed what comes first."""
    cut = Clauses.of(text)
    hit = [not is_trimming(c, words) for c in cut.clauses]
    order = [c for c, h in zip(cut.clauses, hit, strict=True) if h]
    order += [c for c, h in zip(cut.clauses, hit, strict=True) if not h]
    return cut.with_clauses(order)


def repeat(text: str, clause: str) -> str:
    """Say a clause once more at the end."""
    cut = Clauses.of(text)
    return text if clause in cut.clauses[-1:] else cut.with_clauses([*cut.clauses, clause])


def add_trimming(text: str, trimming: str) -> str:
    """Put a trimming behind a text that doesn't have it."""
    if trimming.casefold() in text.casefold():
        return text
    return f"{text.rstrip(' .,;')}, {trimming}"


# ---- several parents ----------------------------------------------------------------------------


def cross(first: str, second: str, rng: random.Random) -> str:
    """Crossover: the clauses of the first up to a cut, those of the second from a cut on, none
    twice."""
    a, b = Clauses.of(first), Clauses.of(second)
    if not len(a) or not len(b):
        return first
    head = a.clauses[: rng.randint(1, len(a))]
    tail = b.clauses[rng.randint(0, len(b) - 1) :]
    return a.with_clauses(list(dict.fromkeys((*head, *tail))))


def swap_trimmings(first: str, second: str, asked: frozenset[str]) -> str:
    """Style swap: the body of the first with the trimmings of the second."""
    a, b = Clauses.of(first), Clauses.of(second)
    body = [c for c in a.clauses if not is_trimming(c, asked)]
    style = [c for c in b.clauses if is_trimming(c, asked)]
    return a.with_clauses([*body, *style]) if body else first


def differential(
    base: str, best: str, donors: tuple[str, str], asked: frozenset[str], rng: random.Random
) -> str:
    """EvoPrompt's differential evolution: what the first donor has and the second has not is
    mutated and put into the best prompt, and the outcome is crossed with the base.

    Mutation is another trimming for a trimming; clauses of the body stay, since nothing here knows
    other words for them.
    """
    one, two = (Clauses.of(donor).clauses for donor in donors)
    target = Clauses.of(best)
    merged = list(target.clauses)
    for clause in (c for c in one if c not in two):
        changed = rng.choice(TRIMMINGS) if is_trimming(clause, asked) else clause
        if changed not in merged:
            merged.insert(rng.randrange(len(merged) + 1), changed)
    return cross(target.with_clauses(merged), base, rng)
