"""Checks that a rewrite keeps what the prompt fixes: numbers, colours, places, names, negations,
style, language, and that it stays harmless.

In free text they read both by ``t2x.prompts.preserved``. Where the rewriter's domain reads whole
scenes itself, its reading stands in, and only the bare values are compared beside it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from t2x.prompts import constraints as rules
from t2x.prompts.colours import lost_colours
from t2x.prompts.counts import lost_counts
from t2x.prompts.forms import content_words, stem
from t2x.prompts.harm import new_harm
from t2x.prompts.languages import language
from t2x.prompts.names import lost_names
from t2x.prompts.negations import affirmed, by_family, lost_negations, mentions, without_idioms
from t2x.prompts.numerals import numbers
from t2x.prompts.places import lost_relations
from t2x.prompts.proposal import Proposal, verdict
from t2x.types import Check

__all__ = [
    "colours_kept",
    "harmless",
    "language_kept",
    "names_kept",
    "negation_kept",
    "negative_apart",
    "nothing_added",
    "numbers_kept",
    "relations_kept",
    "scene_kept",
    "style_kept",
    "things_kept",
]

_SIDES = frozenset(("left", "right", "top", "bottom", "center", "centre", "middle", "side"))
_NOTHING_ELSE = re.compile(
    r"(?<!\w)(?:only|just|nothing (?:else|more|but)|no (?:other|more) (?:things?|objects?))(?!\w)"
)


def numbers_kept(p: Proposal) -> Check:
    """Every number is kept of its thing: as a number, or as that many things told one by one ("a
    cat on the left, a cat on the right").
    """
    lost = _values_lost(p) if p.closed_world else lost_counts(p.source, p.answer)
    return verdict("numbers_kept", lost)


def _values_lost(p: Proposal) -> list[str]:
    """Values that are neither told nor shown by as many mentions of one thing; sides are none."""
    told = affirmed(p.answer)
    have = set(numbers(told))
    said = Counter(stem(w) for w in re.findall(r"[^\W\d_]+", told.lower()))
    things = set(content_words(told)) - _SIDES
    times = {float(n) for word, n in said.items() if word in things}
    lost = [n for n in p.constraints.numbers if n not in have and n not in times]
    return [f"the number {n:g} is lost" for n in lost]


def colours_kept(p: Proposal) -> Check:
    """Every colour is kept of its thing, by its own or a related name."""
    if not p.closed_world:
        return verdict("colours_kept", lost_colours(p.source, p.answer))
    have = rules.colour_families(affirmed(p.answer))
    lost = [c for c in p.constraints.colours if not c & have]
    return verdict("colours_kept", (f"the colour {'/'.join(sorted(c))} is lost" for c in lost))


def relations_kept(p: Proposal) -> Check:
    """Every place is kept: the same relation of the same things, a paraphrase or its inverse."""
    lost = [] if p.closed_world else lost_relations(p.source, p.answer)
    return verdict("relations_kept", lost)


def names_kept(p: Proposal) -> Check:
    """Every proper name is kept."""
    return verdict("names_kept", [] if p.closed_world else lost_names(p.source, p.answer))


def negation_kept(p: Proposal) -> Check:
    """What the user ruled out is not asked for, and is still ruled out: in the text or in the
    negative prompt.
    """
    if not p.closed_world:
        return verdict("negation_kept", lost_negations(p.source, p.answer, negative=p.negative))
    told = (p.answer, p.domain.canonical(p.answer))
    back = [head for head in p.constraints.negated if any(mentions(text, head) for text in told)]
    return verdict("negation_kept", (f"{head!r} was ruled out and is asked for" for head in back))


def negative_apart(p: Proposal) -> Check:
    """The negative prompt rules out nothing that the user asked for."""

    def words(text: str) -> set[str]:
        return set(map(by_family, content_words(text)))

    asked = words(affirmed(p.source)) | words(affirmed(p.meant))
    items = (item.strip() for item in re.split(r"[,.;\n]", p.negative))
    bad = (
        item
        for item in items
        if any(
            (ruled := words(text)) and ruled <= asked for text in (item, p.domain.canonical(item))
        )
    )
    return verdict("negative_apart", (f"{item!r} is asked for and ruled out" for item in bad))


def style_kept(p: Proposal) -> Check:
    """Style words of the user are kept and not contradicted."""

    def reasons() -> Iterable[str]:
        styles = p.constraints.styles
        yield from (
            f"the style {s!r} is lost" for s in styles if not rules.keeps_style(s, p.answer)
        )
        if other := rules.style_conflict(styles, p.source, answer=p.answer):
            yield f"{other!r} contradicts the style {styles[0]!r}"

    return verdict("style_kept", reasons())


def things_kept(p: Proposal) -> Check:
    """Every thing that the prompt names in words of its domain comes back."""
    named = p.domain.things(affirmed(p.meant))
    told = (p.answer, p.domain.canonical(p.answer)) if named else ()
    have = {name for text in told for name in p.domain.things(affirmed(text))}
    return verdict("things_kept", (f"{name!r} is gone" for name in named if name not in have))


def nothing_added(p: Proposal) -> Check:
    """Where the prompt asks for nothing else, the answer names nothing else."""
    told = without_idioms(p.source.lower())
    new: Iterable[str] = ()
    if _NOTHING_ELSE.search(told):
        named = p.domain.things(p.meant)
        new = (n for n in p.domain.things(affirmed(p.answer)) if n not in named)
    return verdict(
        "nothing_added", (f"{name!r} is added, though nothing else may be" for name in new)
    )


def scene_kept(p: Proposal) -> Check:
    """Count, colour and place belong to the same things, as the domain reads both."""
    differs = p.domain.differs
    return verdict("scene_kept", filter(None, (differs(p.source, p.answer),)) if differs else ())


def language_kept(p: Proposal) -> Check:
    """The rewrite is written in the language of the prompt, where both are clear."""
    had, has = (language(p.protected.nameless(text)) for text in (p.source, p.answer))
    return verdict("language_kept", [f"{had} became {has}"] if had and has and had != has else [])


def harmless(p: Proposal) -> Check:
    """The rewrite brings in no kind of harm that the prompt has not."""
    found = new_harm(f"{p.original} {p.source}", p.answer)
    return verdict("harmless", [f"{found[0]}: {found[1]!r} is added"] if found else [])
