"""Where things stand: relations between noun phrases, and whether a rewrite keeps them.

A relation is kept by a paraphrase ("beneath" for "under") or by its inverse ("the dog is to the
right of the cat"); it is lost if it is told otherwise, of other things, or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from t2x.prompts import chinese
from t2x.prompts.counts import matches
from t2x.prompts.forms import stem
from t2x.prompts.grammar import Grammar
from t2x.prompts.grammars import GRAMMARS
from t2x.prompts.languages import grammar_name
from t2x.prompts.phrases import Phrase, Text, read
from t2x.prompts.spelling import root
from t2x.prompts.synonyms import CLOTHES, NO_PLACES, SETTINGS, is_known
from t2x.prompts.words import words

__all__ = ["Relation", "lost_relations", "relations"]

_VERB_FORMS = {
    "fed": "feed", "rode": "ride", "ridden": "ride", "led": "lead", "held": "hold",
    "caught": "catch", "taught": "teach", "bit": "bite", "bitten": "bite", "ate": "eat",
    "eaten": "eat", "gave": "give", "given": "give", "threw": "throw", "thrown": "throw",
    "drove": "drive", "driven": "drive", "drew": "draw", "drawn": "draw", "fought": "fight",
    "struck": "strike", "wore": "wear", "worn": "wear", "seen": "see", "stole": "steal",
    "stolen": "steal", "shot": "shoot", "hid": "hide", "hidden": "hide", "hung": "hang",
    "riding": "ride", "biting": "bite",
}  # fmt: skip
_DEED = "does "
_LONGEST_DEED = 4  # words between who does it and to whom
_PARTICIPLE = re.compile(r"(?:ed|en|wn|ght|ung|uck|old|eft)$")
_LONGEST_LINK = 8
_CUTS = words(", ; . ! ? : and or &")
_NEAREST = 4  # phrases before a relation of which it may be told
# By which relations of the same things, and of the same the other way round, each is kept.
_DIRECT = {
    "on": {"on", "over", "hold"}, "over": {"on", "over", "above"}, "above": {"above", "over"},
    "below": {"below"}, "left": {"left"}, "right": {"right"}, "behind": {"behind"},
    "front": {"front"}, "in": {"in", "hold"}, "hold": {"hold", "on", "in"}, "near": {"near", "left", "right", "facing"},
    "between": {"between"}, "around": {"around"}, "out": {"out"}, "facing": {"facing"},
}  # fmt: skip
_INVERSE = {
    "on": {"below"}, "over": {"below"}, "above": {"below"}, "below": {"on", "over", "above"},
    "left": {"right"}, "right": {"left"}, "behind": {"front"}, "front": {"behind"},
    "near": {"near", "left", "right", "facing"}, "facing": {"facing"},
}  # fmt: skip
_SIDES = {"left": "right", "right": "left"}


@dataclass(frozen=True)
class Relation:
    """``name`` of a place, what may stand there (``things``) and in relation to what (``to``; none
    for a side of the whole picture). All ``to`` are needed where the name is "between".
    """

    name: str
    things: tuple[Phrase, ...]
    to: tuple[Phrase, ...] = ()
    every: bool = False
    soft: bool = False  # keeps a relation, and asks for none


def _is_deed(token: str, grammar: Grammar) -> bool:
    if grammar.name != "en" or token in grammar.boundaries - grammar.verbs:
        return False
    return (
        token in grammar.verbs
        or token in _VERB_FORMS
        or re.search(r"(?:ing|ed|s)$", token) is not None
    )


def _verb(form: str) -> str:
    """What the forms of a verb have in common: "chases", "chasing" and "chased"."""
    form = _VERB_FORMS.get(form, form)
    return root(stem(f"{form[:-3]}y" if form.endswith("ied") else form))


def relations(text: Text) -> tuple[Relation, ...]:
    """Read every relation of ``text``."""
    return tuple(_Reader(text).read())


class _Reader:
    def __init__(self, text: Text) -> None:
        self.text, self.tokens = text, text.tokens
        self.phrases = [p for p in text.phrases if p.kind != "part"]
        self.things = [p for p in self.phrases if p.head]

    def read(self) -> Iterator[Relation]:
        for at, token in enumerate(self.tokens):
            if token[0] == "@":
                yield from self._side(at, token[1:])
            elif token == "<by" and self._passive(at):
                continue
            elif token[0] == "<":
                yield from self._relation(at, token[1:].replace("by", "near"))
        yield from self._deeds()

    def _before(self, at: int) -> list[Phrase]:
        """Things of the same sentence before ``at``, nearest first."""
        found = [p for p in self.things if p.end <= at and self._same(p, at)]
        return found[::-1][:_NEAREST]

    def _earlier(self, at: int) -> list[Phrase]:
        return [p for p in self.things if p.end <= at][::-1][: 2 * _NEAREST]

    def _same(self, phrase: Phrase, at: int) -> bool:
        return not any(t in ".;!?" for t in self.tokens[phrase.end : at])

    def _next(self, at: int) -> Phrase | None:
        return next((p for p in self.phrases if p.start >= at), None)

    def _opens(self, at: int) -> bool:
        """Whether no thing stands between ``at`` and the mark, "and" or "with" before it."""
        start = next((i for i in reversed(range(at)) if self._breaks(self.tokens[i])), -1)
        return not any(start < p.end <= at for p in self.things)

    @staticmethod
    def _breaks(token: str) -> bool:
        return token in ("and", "while", "und", "y", "with") or (
            not token[-1].isalnum() and token[0] not in "<@"
        )

    def _passive(self, at: int) -> bool:
        return at > 0 and _PARTICIPLE.search(self.tokens[at - 1]) is not None

    def _deeds(self) -> Iterator[Relation]:
        """Who does what to whom: "a goose chasing a postman", "a postman chased by a goose"."""
        for one, two in pairwise(self.things):
            gap = self.tokens[one.end : two.start]
            if not gap or len(gap) > _LONGEST_DEED or any(not t[-1].isalnum() for t in gap):
                continue
            if any(t in ("and", "or", "while", "with") for t in gap):
                continue
            verbs = [t for t in gap if t[0] not in "<@" and _is_deed(t, self.text.grammar)]
            if not verbs or any(t[0] in "<@" and t != "<by" for t in gap):
                continue
            passive = "<by" in gap and _PARTICIPLE.search(verbs[-1]) is not None
            if "being" in gap and not passive:
                by = next(
                    (i for i in range(two.end, len(self.tokens)) if self.tokens[i] == "<by"), 0
                )
                two, passive = (self._next(by) or two, True) if by else (two, False)
            doer, other = (two, one) if passive else (one, two)
            yield Relation(f"{_DEED}{_verb(verbs[-1])}", (doer,), (other,))

    def _side(self, at: int, name: str) -> Iterator[Relation]:
        after = self._next(at + 1)
        before = self._before(at)
        starts = self._opens(at) and after is not None
        things = [after] if starts and after is not None else before[:2]
        if starts and before and self.tokens[at - 1] == ",":
            things = [*things, before[0]]
        yield Relation(name, tuple(t for t in things if t.head))

    def _relation(self, at: int, name: str) -> Iterator[Relation]:
        inverse = name.endswith("\u00d8") or name == "hold"
        base, _, how = name.removesuffix("\u00d8").partition("\u01c0")
        before = self._before(at)
        if how == "each":
            yield from self._each(base, before)
            return
        target = self._target(at) if how != "it" else None
        opens = self._opens(at)
        if target is None or target.kind == "pronoun":
            yield from self._of_told(at, base, target, inverse=inverse)
            return
        to, things = self._targets(target, base), list(before)
        after = self._following(to[-1].end) if opens else []
        if target.owned and base != "between" and (after or before):  # "against its side"
            things = after[:1] or before[:1]
            to += [p for p in self._earlier(at) if p.start < things[0].start]
        elif opens:
            things = [*before[:2], *after]
        if not things:
            return
        if inverse:
            yield Relation(base, tuple(to), tuple(things), soft=how == "soft" or base == "hold")
        else:
            yield Relation(base, tuple(things), tuple(to), every=base == "between")

    def _of_told(
        self, at: int, base: str, target: Phrase | None, *, inverse: bool
    ) -> Iterator[Relation]:
        """In relation to something told before: "a table, and under it a ball", "a ball below"."""
        relative = target is not None and target.words[0] in ("which", "whom")
        end = at + 1 if target is None else target.end
        things = self._following(end) if relative or self._opens(at) else self._before(at)[:3]
        for thing in things:
            to = tuple(p for p in self._earlier(at) if p.start < thing.start)
            if to:
                yield Relation(base, to, (thing,)) if inverse else Relation(base, (thing,), to)

    def _following(self, end: int) -> list[Phrase]:
        """The next thing, and what it is of: "eyes of a cat"."""
        first = next((p for p in self.things if p.start >= end), None)
        return [] if first is None else [first, *self._of(first)]

    def _of(self, phrase: Phrase) -> list[Phrase]:
        if self.tokens[phrase.end : phrase.end + 1] and (
            self.tokens[phrase.end] in self.text.grammar.of
        ):
            after = self._next(phrase.end)
            return [after] if after is not None and after.head else []
        return []

    def _target(self, at: int) -> Phrase | None:
        """The phrase right after a relation, if nothing but "the" and the like is in between."""
        nearest = self._next(at + 1)
        if nearest is None or nearest.start - at > 2:
            return None
        between = self.tokens[at + 1 : nearest.start]
        if any(t in self.text.grammar.verbs for t in between):  # "within stands a rocket"
            return None
        return None if any(not t.isalnum() or t[0] in "<@" for t in between) else nearest

    def _targets(self, target: Phrase, base: str) -> list[Phrase]:
        """The phrase, what it is of, and with "between" the one after "and"."""
        found = [target] if base == "between" else [target, *self._of(target)]
        joined = self.tokens[target.end : target.end + 1]
        if base == "between" and joined and joined[0] in ("and", "und", "y", "e"):
            after = self._next(target.end)
            if after is not None and after.head and target.number in (None, (1, 1)):
                found.append(after)
        return found

    @staticmethod
    def _each(base: str, before: Sequence[Phrase]) -> Iterator[Relation]:
        if len(before) > 1:
            yield Relation(base, (before[1],), (before[0],))
        elif before:
            yield Relation(base, (before[0],), (before[0],))


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
    if wanted.name.startswith(_DEED):
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
        and not r.name.startswith(_DEED)
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
    sides = [
        r for r in have if r.name in ("left", "right") and r.to and _fits_turned(wanted, r, grammar)
    ]
    return len({r.name for r in sides}) > 1


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
        if r.to and r.name in _INVERSE.get(wanted.name, set()):
            if _any_match(wanted.things[:1], r.to, grammar):
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
    return all(
        _any_match(part, told.phrases, grammar) or any(p.head in set(told.tokens) for p in part)
        for part in (wanted.things, wanted.to)
    )
