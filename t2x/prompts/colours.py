"""Colours bound to things: "a red car and a blue house" is not kept by a blue car."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from t2x.prompts import chinese
from t2x.prompts.counts import matches
from t2x.prompts.grammar import Grammar
from t2x.prompts.grammars import GRAMMARS
from t2x.prompts.languages import grammar_name
from t2x.prompts.negations import affirmed
from t2x.prompts.phrases import Phrase, read
from t2x.prompts.synonyms import CLOTHES, SETTINGS, share_group
from t2x.prompts.words import SOFT_COLOURS, TELLING_COLOURS, words

__all__ = ["lost_colours"]

_HAIR_COLOURS = words("blonde blond brunette brunet redhead ginger auburn raven flaxen towheaded")


def lost_colours(original: str, rewrite: str) -> list[str]:
    """Say which colours of ``original`` are not told of the same things in ``rewrite``.

    Any name of the same family keeps a colour (the table is ``t2x.prompts.words``).
    """
    name = grammar_name(original, rewrite)
    if name == "zh":
        return chinese.lost_colours(original, rewrite)
    grammar = GRAMMARS[name]
    source = read(affirmed(original, name), grammar).phrases
    told = read(affirmed(rewrite, name), grammar).phrases
    return list(dict.fromkeys(_lost(source, told, grammar)))


def _demanded(phrase: Phrase) -> list[tuple[str, frozenset[str]]]:
    return [
        (word, families)
        for word, families in phrase.colours
        if word[0] != "~" and (word not in SOFT_COLOURS or word in TELLING_COLOURS)
    ]


def _lost(source: Sequence[Phrase], told: Sequence[Phrase], grammar: Grammar) -> Iterator[str]:
    for phrase in source:
        for word, families in _demanded(phrase):
            if phrase.head and not _kept(phrase, word, families, source, told, grammar):
                yield f"the colour {word!r} of {phrase.head!r} is lost"
            elif not phrase.head and not any(_has(p, word, families) for p in told):
                yield f"the colour {word!r} is lost"


def _has(phrase: Phrase, word: str, families: frozenset[str]) -> bool:
    return any(families & own or w.lstrip("~") == word for w, own in phrase.colours)


def _kept(
    phrase: Phrase,
    word: str,
    families: frozenset[str],
    source: Sequence[Phrase],
    told: Sequence[Phrase],
    grammar: Grammar,
) -> bool:
    if phrase.head == "hair":
        if "red" in families:  # ginger and copper hair is called red
            families = families | {"orange"}
        if any(_is_haired(p, families) for p in told):
            return True
    same = [p for p in told if p.head and matches(phrase, p, grammar)]
    coloured = [p for p in same if _has(p, word, families)]
    if coloured:
        return not _mixed(phrase, families, coloured)
    others = [p for p in source if p is not phrase and p.head]
    if same:
        return len(_demanded(phrase)) > 1 and any(
            _has(p, word, families)
            and p.sentence == same[0].sentence
            and p.start > same[0].start
            and p.head not in SETTINGS
            and not any(p.head and matches(q, p, grammar) for q in others)
            for p in told
        )
    if phrase.head in CLOTHES and any(  # "a girl cloaked in scarlet"
        _has(p, word, families) and share_group("person", p.head) for p in told
    ):
        return True
    # The thing has a name that no table knows: the colour must not be that of another thing.
    return any(
        _has(p, word, families) and not any(p.head and matches(q, p, grammar) for q in others)
        for p in told
    )


def _is_haired(phrase: Phrase, families: frozenset[str]) -> bool:
    """Whether a person is called by the colour of the hair: "a blonde girl", "the redhead"."""
    return any(families & own and word in _HAIR_COLOURS for word, own in phrase.colours) and (
        share_group("person", phrase.head)
    )


def _mixed(phrase: Phrase, families: frozenset[str], coloured: Sequence[Phrase]) -> bool:
    """Whether a thing of one colour is told in two: "a red and blue car" for "a red car"."""
    if len(phrase.colours) != 1:
        return False
    return all(
        any(
            not own & families and word not in SOFT_COLOURS and word in p.words
            for word, own in p.colours
        )
        for p in coloured
    )
