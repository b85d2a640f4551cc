"""What a prompt of the emoji world says, and what it leaves open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from t2x.asking.kinds import category_pattern, category_words
from t2x.prompts.negations import affirmed
from t2x.rewriters.domain import domain_named
from t2x.world import lexicon
from t2x.world.captions import plural
from t2x.world.rules import parse
from t2x.world.scene import CLASSES, MAX_OBJECTS, Group, Scene

__all__ = ["ANYTHING", "Reading", "Thing", "read_prompt"]

_COUNTS = frozenset(range(1, MAX_OBJECTS + 1))


@dataclass(frozen=True)
class Thing:
    """One group of alike objects: the classes and counts that the words allow, and its colour if
    they say one."""

    kinds: frozenset[str] = frozenset(CLASSES)
    counts: frozenset[int] = _COUNTS
    color: str | None = None


ANYTHING = Thing()


@dataclass(frozen=True)
class Reading:
    """One way to understand a prompt: its things in order, and how the first two are placed."""

    things: tuple[Thing, ...]
    relation: str | None = None


def read_prompt(text: str) -> tuple[Reading, ...]:
    """Ways to understand a prompt, the first as it stands: "two pets" may be two alike, or one each
    of two kinds. No reading if it names nothing of the world.

    The rules of ``t2x.world.rules`` read it, each word for several classes ("an animal") put as a
    class that the prompt does not name. Where they fail, only the things count that it names.
    """
    lower, stands_for = _placeholders(text.casefold())
    scene = parse(lower)
    if scene is None:
        return _named_only(lower, stands_for)
    words = f" {affirmed(domain_named('emoji').canonical(lower))} "
    room = MAX_OBJECTS - (len(scene.groups) - 1)
    things = []
    for group in scene.groups:
        kinds = stands_for.get(group.cls, frozenset((group.cls,)))
        things.append(Thing(kinds, _counts(group, words, room), group.color))
    whole = Reading(tuple(things), scene.relation)
    return (whole, *_apart(whole, scene))


def _counts(group: Group, words: str, room: int) -> frozenset[int]:
    """Counts that the words allow: of "cats" two or more, of "sheep" any."""
    if group.count > 1:
        return frozenset((group.count,))
    one = re.search(rf" (?:an?|one|1) (?:\w+ )?{group.cls} ", words)
    if one is None and plural(group.cls) == group.cls:
        return frozenset(range(1, room + 1))
    if f" {plural(group.cls)} " in words and one is None:
        return frozenset(range(2, room + 1)) or frozenset((1,))
    return frozenset((1,))


def _apart(reading: Reading, scene: Scene) -> Iterator[Reading]:
    """The reading in which several of a kind are of different kinds, where it is about nothing
    else and there are enough kinds."""
    if len(reading.things) > 1 or scene.relation is not None:
        return
    (thing,) = reading.things
    if len(thing.counts) == 1 and len(thing.kinds) >= (count := min(thing.counts)) > 1:
        each = replace(thing, counts=frozenset((1,)))
        if count <= 3:  # no scene of the prior has four groups
            yield Reading((each,) * count)


def _placeholders(text: str) -> tuple[str, dict[str, frozenset[str]]]:
    """Put a class that is not named in the place of each word for several; one that has no plural,
    "sheep", for a word that has none, "food"."""
    things = domain_named("emoji").things
    named = set(things(domain_named("emoji").canonical(text))) if text.strip() else set()
    left = [c for c in CLASSES if c not in named]
    free = {bare: iter([c for c in left if (plural(c) == c) == bare]) for bare in (False, True)}
    stands_for: dict[str, frozenset[str]] = {}

    def put(match: re.Match[str]) -> str:
        word = match.group()
        if word not in category_words():
            return word
        kinds, number = category_words()[word]
        if (name := next(free[number == "any"], None)) is None:
            return word
        stands_for[name] = kinds
        return plural(name) if number == "many" else name

    return _either().sub(put, text), stands_for


@lru_cache(maxsize=1)
def _either() -> re.Pattern[str]:
    """Words for several classes, and longer phrases of the world that contain one ("animal that
    barks"), which stay."""
    words = category_pattern()
    known = [p for c in CLASSES for p in (c, *lexicon.SYNONYMS[c], *lexicon.RIDDLES[c])]
    longer = [p for phrase in known for p in (phrase, lexicon.plural_of(phrase)) if words.search(p)]
    alternatives = "|".join(re.escape(p) for p in sorted(longer, key=len, reverse=True))
    return re.compile(rf"(?<![\w'-])(?:{alternatives})(?![\w'-])|{words.pattern}")


def _named_only(text: str, stands_for: dict[str, frozenset[str]]) -> tuple[Reading, ...]:
    domain = domain_named("emoji")
    names = domain.things(domain.canonical(text))[:3]
    if not names:
        return ()
    room = MAX_OBJECTS - len(names) + 1
    counts = frozenset(range(1, room + 1))
    things = (Thing(stands_for.get(n, frozenset((n,))), counts) for n in names)
    return (Reading(tuple(things)),)
