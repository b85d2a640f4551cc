"""Where things stand and who does what to whom: relations between the noun phrases of a text.

Read from the words between phrases, with what "it" may mean; a relation has all phrases that it may
be told of, nearest first. ``t2x.prompts.places`` compares those of two texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from t2x.prompts.forms import stem
from t2x.prompts.grammar import Grammar
from t2x.prompts.phrases import Phrase, Text
from t2x.prompts.spelling import root

__all__ = ["DEED", "Relation", "other_deed", "relations"]

_VERB_FORMS = {
    "fed": "feed", "rode": "ride", "ridden": "ride", "led": "lead", "held": "hold",
    "caught": "catch", "taught": "teach", "bit": "bite", "bitten": "bite", "ate": "eat",
    "eaten": "eat", "gave": "give", "given": "give", "threw": "throw", "thrown": "throw",
    "drove": "drive", "driven": "drive", "drew": "draw", "drawn": "draw", "fought": "fight",
    "struck": "strike", "wore": "wear", "worn": "wear", "seen": "see", "stole": "steal",
    "stolen": "steal", "shot": "shoot", "hid": "hide", "hidden": "hide", "hung": "hang",
    "riding": "ride", "biting": "bite",
}  # fmt: skip
DEED = "does "
_LONGEST_GAP = 4  # words between who does it and to whom
_PARTICIPLE = re.compile(r"(?:ed|en|wn|ght|ung|uck|old|eft)$")
_SPOTS = frozenset(("shadow", "shade", "darkness", "gloom", "space", "gap", "shelter", "dark"))
_NEAREST = 4  # phrases before a relation of which it may be told


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


# Deeds that are no words for each other.
_DEEDS = """
ride
feed
fight attack battle duel slay strike stab
hug embrace cuddle cradle hold carry clutch grip grasp lift
chase pursue hunt follow trail stalk
pull drag tow haul draw lead
push shove
wash bathe scrub
kiss
paint draw sketch portray
eat bite devour gnaw nibble munch
kick
"""


@lru_cache(maxsize=1)
def _deeds() -> dict[str, frozenset[int]]:
    groups: dict[str, set[int]] = {}
    for number, line in enumerate(_DEEDS.strip().splitlines()):
        for verb in line.split():
            groups.setdefault(_verb(verb), set()).add(number)
    return {verb: frozenset(numbers) for verb, numbers in groups.items()}


def other_deed(one: str, two: str) -> bool:
    """Whether two names of deeds are known and no words for each other: "ride" and "feed"."""
    own, other = (_deeds().get(name.removeprefix(DEED)) for name in (one, two))
    return own is not None and other is not None and not own & other


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
        """Whether no sentence ends between a phrase and ``at``, before it or after."""
        between = self.tokens[min(phrase.end, at) : max(phrase.start, at)]
        return not any(t in ".;!?" for t in between)

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
            if not gap or len(gap) > _LONGEST_GAP or any(not t[-1].isalnum() for t in gap):
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
            yield Relation(f"{DEED}{_verb(verbs[-1])}", (doer,), (other,))

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
            soft = how == "soft"
            yield Relation(base, tuple(things), tuple(to), every=base == "between", soft=soft)

    def _of_told(
        self, at: int, base: str, target: Phrase | None, *, inverse: bool
    ) -> Iterator[Relation]:
        """In relation to something told before: "a table, and under it a ball", "a ball below"."""
        relative = target is not None and target.words[0] in ("which", "whom")
        end = at + 1 if target is None else target.end
        things = self._before(at)[:3]
        if relative or self._opens(at):  # the second for "beside it, on a stool, a candle burns"
            things = [p for p in self.things if p.start >= end and self._same(p, at)][:2]
            things = list(dict.fromkeys((*self._following(end), *things)))
        if things and things[0].head in _SPOTS:  # "in the shadows beneath it crouches a cat"
            things = [*things, *self._following(end)]
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
