"""Whether a rewrite keeps where things stand and who does what to whom.

A relation is kept by a paraphrase ("beneath" for "under") or by its inverse ("the dog is to the
right of the cat"); it is lost if it is told otherwise, of other things, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from t2x.prompts import chinese
from t2x.prompts.counts import matches
from t2x.prompts.grammar import Grammar
from t2x.prompts.grammars import GRAMMARS
from t2x.prompts.languages import grammar_name
from t2x.prompts.phrases import Phrase, Text, read
from t2x.prompts.relations import DEED, Relation, other_deed, relations
from t2x.prompts.synonyms import CLOTHES, NO_PLACES, SETTINGS, is_known
from t2x.prompts.words import words

__all__ = ["lost_relations"]

_LONGEST_LINK = 8
_CUTS = words(", ; . ! ? : and or &")
# By which relations of the same things, and of the same the other way round, each is kept.
_DIRECT = {
    "on": {"on", "over", "hold"}, "over": {"on", "over", "above"}, "above": {"above", "over"},
    "below": {"below"}, "left": {"left"}, "right": {"right"}, "behind": {"behind"},
    "front": {"front"}, "in": {"in", "hold"}, "hold": {"hold", "on", "in"},
    "near": {"near", "left", "right", "facing"},
    "between": {"between"}, "around": {"around"}, "out": {"out"}, "facing": {"facing"},
}  # fmt: skip
_INVERSE = {
    "on": {"below"}, "over": {"below"}, "above": {"below"}, "below": {"on", "over", "above"},
    "left": {"right"}, "right": {"left"}, "behind": {"front"}, "front": {"behind"},
    "near": {"near", "left", "right", "facing"}, "facing": {"facing"},
}  # fmt: skip
_SIDES = {"left": "right", "right": "left"}


def lost_relations(original: str, rewrite: str) -> list[str]:
    """Say which relations of ``original`` the rewrite does not keep."""
    name = grammar_name(original, rewrite)
    if name == "zh":
        return chinese.lost_relations(original, rewrite)
    grammar = GRAMMARS[name]
    source, told = read(original, grammar), read(rewrite, grammar)
    have = relations(told)
    wanted = [r for r in relations(source) if _is_place(r)]
    return list(
        dict.fromkeys(_shown(r) for r in wanted if not _kept(r, have, told, grammar, wanted))
    )


def _is_place(relation: Relation) -> bool:
    """Whether a relation tells of a place: not "in the rain", "in red", "in a dress"."""
    if relation.soft:
        return False
    if not relation.to:
        return bool(relation.things)
    heads = {p.head for p in relation.to}
    if relation.name in ("in", "on", "over", "near", "out", "around") and heads & NO_PLACES:
        return False
    return not (relation.name == "in" and heads & CLOTHES)


def _shown(relation: Relation) -> str:
    things = "/".join(dict.fromkeys(p.head for p in relation.things)) or "it"
    to = " and ".join(dict.fromkeys(p.head for p in relation.to))
    where = f"{relation.name} {to}" if to else f"on the {relation.name} side"
    return f"that {things!r} is {where} is lost"


def _kept(
    wanted: Relation,
    have: Sequence[Relation],
    told: Text,
    grammar: Grammar,
    all_wanted: Sequence[Relation],
) -> bool:
    if not wanted.to:
        return _side_kept(wanted, have, grammar)
    if wanted.name.startswith(DEED):
        return _deed_kept(wanted, have, told, grammar)
    direct, inverse = _DIRECT.get(wanted.name, {wanted.name}), _INVERSE.get(wanted.name, set())
    if wanted.name == "on" and any(p.head in CLOTHES for p in wanted.things):
        inverse = inverse | {"in"}
    for relation in have:
        if relation.name in direct and _fits(wanted, relation, grammar):
            return True
        if relation.name in inverse and relation.to and _fits_turned(wanted, relation, grammar):
            return True
    if wanted.name == "between":
        return _between_kept(wanted, have, grammar)
    if wanted.name in ("left", "right") and _by_sides(wanted, have, grammar):
        return True
    if wanted.name in ("behind", "front") and _by_ground(wanted, have, grammar):
        return True
    return (
        _setting_kept(wanted, have, told, grammar)
        or _renamed(wanted, have, told, grammar)
        or _linked_otherwise(wanted, have, told, grammar)
    )


def _renamed(wanted: Relation, have: Sequence[Relation], told: Text, grammar: Grammar) -> bool:
    """Whether the relation is told of one of the things and of a word that no table knows, which
    may be another name of the other: "over the felt" for "above the pool table".
    """
    direct, inverse = _DIRECT.get(wanted.name, {wanted.name}), _INVERSE.get(wanted.name, set())
    for gone, there in ((wanted.things, wanted.to), (wanted.to, wanted.things)):
        if grammar.name == "en" and _any_match(gone, told.phrases, grammar):
            continue
        for r in have:
            ends = [r.things, r.to] if gone is wanted.things else [r.to, r.things]
            if r.name in inverse and r.name not in direct:
                ends.reverse()
            elif r.name not in direct:
                continue
            if _any_match(there, ends[1], grammar) and any(
                not (is_known(p.head) and all(is_known(q.head) for q in gone)) for p in ends[0][:1]
            ):
                return True
    return False


def _linked_otherwise(
    wanted: Relation, have: Sequence[Relation], told: Text, grammar: Grammar
) -> bool:
    """Whether both things are tied by words that no table knows, and nothing told of the two
    contradicts: "a coin frozen deep in the ice".
    """
    if wanted.every or any(
        r.to
        and not r.name.startswith(DEED)
        and not r.soft
        and (_fits(wanted, r, grammar) or _fits_turned(wanted, r, grammar))
        for r in have
    ):
        return False
    things = [p for p in told.phrases if p.head and _any_match(wanted.things, [p], grammar)]
    to = [p for p in told.phrases if p.head and _any_match(wanted.to, [p], grammar)]
    for a in things:
        for b in to:
            first, second = sorted((a, b), key=lambda p: p.start)
            gap = told.tokens[first.end : second.start]
            if any(p.head and first.end <= p.start < second.start for p in told.phrases):
                continue
            if set(gap) <= {"with"} or (first is a and set(gap) <= {"of"}):  # "a picture of a"
                continue
            if a is not b and gap and len(gap) < _LONGEST_LINK and not set(gap) & _CUTS:
                return True
    return False


def _any_match(ones: Sequence[Phrase], others: Sequence[Phrase], grammar: Grammar) -> bool:
    return any(matches(a, b, grammar) for a in ones for b in others)


def _fits(wanted: Relation, relation: Relation, grammar: Grammar) -> bool:
    if not relation.to or not _any_match(wanted.things, relation.things, grammar):
        return False
    if wanted.every:
        return all(_any_match([p], relation.to, grammar) for p in wanted.to)
    return _any_match(wanted.to, relation.to, grammar)


def _fits_turned(wanted: Relation, relation: Relation, grammar: Grammar) -> bool:
    return _any_match(wanted.things, relation.to, grammar) and _any_match(
        wanted.to, relation.things, grammar
    )


def _deed_kept(wanted: Relation, have: Sequence[Relation], told: Text, grammar: Grammar) -> bool:
    """Whether the deed is not turned round, nor both only listed; its words may be others."""
    if any(r.name == wanted.name and _fits(wanted, r, grammar) for r in have):
        return True
    if any(r.name == wanted.name and _fits_turned(wanted, r, grammar) for r in have):
        return False
    if any(other_deed(wanted.name, r.name) and _fits(wanted, r, grammar) for r in have):
        return False
    return not _merely_listed(wanted, told, grammar)


def _merely_listed(wanted: Relation, told: Text, grammar: Grammar) -> bool:
    """ "A scarecrow and a windmill": nothing but "and" or a comma stands between the two."""
    for one, two in pairwise(p for p in told.phrases if p.head):
        pair = Relation("", (one,), (two,))
        if (_fits(wanted, pair, grammar) or _fits_turned(wanted, pair, grammar)) and set(
            told.tokens[one.end : two.start]
        ) <= {"and", ",", "&"}:
            return True
    return False


def _between_kept(wanted: Relation, have: Sequence[Relation], grammar: Grammar) -> bool:
    """ "A dog, on its left one cat, on its right another"; "cats on either side of a dog"."""
    if any(r.name == "between" and _fits(replace(wanted, every=False), r, grammar) for r in have):
        return True
    if any(r.name == "sides" for r in have):  # "a child with a dog on either side"
        return True
    sides = [
        r for r in have if r.name in ("left", "right") and r.to and _fits_turned(wanted, r, grammar)
    ]
    told = _sides_of(wanted.to, have, grammar)  # "a dog on the left, a dog on the right"
    return len({r.name for r in sides}) > 1 or (
        told >= {"left", "right"} and not _sides_of(wanted.things, have, grammar)
    )


def _sides_of(things: Sequence[Phrase], have: Sequence[Relation], grammar: Grammar) -> set[str]:
    return {r.name for r in have if not r.to and _any_match(things, r.things[:1], grammar)}


def _by_sides(wanted: Relation, have: Sequence[Relation], grammar: Grammar) -> bool:
    """ "On the left a cat, on the right a dog"."""
    other = _SIDES[wanted.name]
    things, to = _sides_of(wanted.things, have, grammar), _sides_of(wanted.to, have, grammar)
    return wanted.name in things and (other in to or not to)


def _by_ground(wanted: Relation, have: Sequence[Relation], grammar: Grammar) -> bool:
    """ "A house in front, a mountain in the background"."""
    back, front = (
        (wanted.things, wanted.to) if wanted.name == "behind" else (wanted.to, wanted.things)
    )
    return "behind" in _sides_of(back, have, grammar) or "front" in _sides_of(front, have, grammar)


def _side_kept(wanted: Relation, have: Sequence[Relation], grammar: Grammar) -> bool:
    """A side of the picture: told of the same thing, or by a relation that implies it."""
    for r in have:
        if r.name == wanted.name and _any_match(wanted.things[:1], r.things, grammar):
            return True
        turned = r.to and r.name in _INVERSE.get(wanted.name, set())
        if turned and _any_match(wanted.things[:1], r.to, grammar):
            return True
    return False


def _setting_kept(wanted: Relation, have: Sequence[Relation], told: Text, grammar: Grammar) -> bool:
    """A scene such as "in a forest" needs no preposition, as long as nothing else is told."""
    if wanted.name not in ("in", "on", "over", "around") or not any(
        p.head in SETTINGS for p in wanted.to
    ):
        return False
    if any(
        r.to and (_fits(wanted, r, grammar) or _fits_turned(wanted, r, grammar))
        for r in have
        if r.name in ("out", "above", "below", "behind", "front", "near")
    ):
        return False
    if wanted.name != "in" and _merely_listed(wanted, told, grammar):
        return False
    return all(
        _any_match(part, told.phrases, grammar) or any(p.head in set(told.tokens) for p in part)
        for part in (wanted.things, wanted.to)
    )
