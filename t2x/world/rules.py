"""The rule-based arm: a synonym table and a parser, what one would write before training anything.

Words become tokens, slips are mended by edit distance, and a small grammar reads the tokens into a
scene. Words in front of and behind the content are small talk; an unknown word *between* content
words means that the sentence was not understood, and the user's words are given back.
"""

from __future__ import annotations

import difflib
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from t2x.rewriters.domain import domain_named
from t2x.types import Rewrite
from t2x.world import lexicon
from t2x.world.captions import NUMBER_WORDS, dense_prompt
from t2x.world.scene import CLASSES, COLORS, INVERSE, Group, Scene

__all__ = ["RulesRewriter", "parse"]

Token = tuple[str, str]  # kind: name, color, number, relation, not, with, break, link, or "?"
_SIDES = {
    "left of": ("to the left", "on the left", "on left", "at left", "left"),
    "right of": ("to the right", "on the right", "on right", "at right", "right"),
    "above": ("on top", "at top", "top", "overhead"),
    "below": ("on bottom", "at bottom", "bottom"),
}
_LINKS = """
the is are of in sits sit stands stand placed can be seen has have been put there coloured next to
beside near along together exactly definitely all any like just but
"""
_BREAKS = "a an and , . ; : / + | ( )"
_NOT = ("no", "not", "never", "without", "nothing")
_SMALL_TALK = """
photo picture image drawing illustration could would please draw paint make give show create
generate love like see want need here there what that this with have today think thanks card work
cheer long something simple sticker sister keeps talking about goes newsletter should nothing
fancy idea poster keep clean sure imagine school page things homework dream last night know nice
picture clear friendly everyday niece greeting them both each which whose their first other
former latter five seven eight nine several many
"""
_THINGS = "|".join(thing for things in lexicon.COLOR_THINGS.values() for thing in things)
_MIN_SLIP = 4
_CONTENT = ("name", "color", "number", "relation")
_MANY = ("five", "six", "seven", "eight", "nine", "ten", "many", "5", "6", "7")


@lru_cache(maxsize=1)
def _phrases() -> dict[str, Token]:
    """Every phrase that the parser knows, lower case."""
    table: dict[str, Token] = {word: ("link", word) for word in _LINKS.split()}
    table |= {word: ("break", word) for word in _BREAKS.split()}
    table |= {word: ("not", word) for word in _NOT}
    table |= {"with": ("with", "with"), **dict.fromkeys(_MANY, ("number", "99"))}
    for cls in CLASSES:
        for name in (cls, *lexicon.SYNONYMS[cls]):
            table |= {name: ("name", cls), lexicon.plural_of(name): ("name", cls)}
        table |= {riddle: ("name", cls) for riddle in lexicon.RIDDLES[cls]}
    for color in COLORS:
        table |= {word: ("color", color) for word in (color, *lexicon.COLOR_SYNONYMS[color])}
    for count in range(1, len(NUMBER_WORDS)):
        words = (NUMBER_WORDS[count], str(count), f"{count}x", f"x{count}")
        table |= {
            word: ("number", str(count)) for word in (*words, *lexicon.COUNT_NOUNS.get(count, ()))
        }
    for relation, phrases in lexicon.RELATION_PHRASES.items():
        table |= {words: ("relation", relation) for words in (*phrases, *_SIDES[relation])}
    return table


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    phrases = sorted(_phrases(), key=len, reverse=True)
    words = [re.escape(p) for p in phrases if p[0].isalnum()]
    signs = [re.escape(p) for p in phrases if not p[0].isalnum()]
    return re.compile(rf"(?:{'|'.join(words)})(?![\w'-])|[{''.join(signs)}]|[\w'-]+|\S")


@lru_cache(maxsize=1)
def _vocabulary() -> tuple[list[str], frozenset[str]]:
    """Words that a slip may have been, and words that are no slips."""
    words = {word for phrase in _phrases() for word in phrase.split() if len(word) >= _MIN_SLIP}
    return sorted(words), frozenset((*words, *_SMALL_TALK.split()))


def _mend(text: str) -> str:
    """Put the closest known word in the place of each unknown one, where one is close."""

    def closest(match: re.Match[str]) -> str:
        word = match.group()
        words, known = _vocabulary()
        close = [] if word in known else difflib.get_close_matches(word, words, 1, 0.75)
        return close[0] if close else word

    return re.sub(rf"[a-z][a-z'-]{{{_MIN_SLIP - 1},}}", closest, text)


def _tokens(text: str) -> list[Token]:
    """Tokens from the first to the last word of content."""
    text = re.sub(rf",? (?:as|like) (?:{_THINGS})\b", "", text.casefold())
    text = re.sub(rf"\bas (?={'|'.join(COLORS)})", "", text)
    found = [_phrases().get(word, ("?", word)) for word in _pattern().findall(_mend(text))]
    content = [i for i, (kind, _) in enumerate(found) if kind in _CONTENT]
    if not content:
        return []
    start = content[0]
    while start >= 1 and found[start - 1][0] == "not":
        start -= 1
    return [t for t in found[start : content[-1] + 1] if t[0] != "link"]


def _without_negated(tokens: list[Token]) -> Iterator[Token]:
    """Drop every negation together with the one thing that it denies."""
    skip = False
    for kind, value in tokens:
        if kind == "not":
            skip = True
        elif skip and kind in ("name", "color", "number"):
            skip = False
            yield "break", ","
        elif not (skip and kind == "break"):
            yield kind, value


@dataclass
class _Thing:
    cls: str
    color: str | None = None
    count: int | None = None


@dataclass
class _Reader:
    """State of reading: things in order of first mention, all mentions, and relations with the
    mentions before them.
    """

    things: dict[str, _Thing] = field(default_factory=dict)
    mentions: list[str] = field(default_factory=list)
    relations: list[tuple[int, str]] = field(default_factory=list)
    pending: dict[str, str] = field(default_factory=dict)
    saw_with: bool = False

    def read(self, tokens: list[Token]) -> bool:
        """Take all tokens in; False if one of them does not fit."""
        for (kind, value), following in pairwise([*tokens, ("break", "")]):
            if kind == "name":
                thing = self.things.setdefault(value, _Thing(value))
                self.mentions.append(value)
                self._describe(thing)
            elif kind in ("color", "number"):
                self.pending[kind] = value
                if following[0] not in ("name", "color", "number"):
                    if not self.mentions:
                        return False
                    self._describe(self.things[self.mentions[-1]])
            elif kind == "relation":
                self.relations.append((len(self.mentions), value))
            elif kind == "with":
                self.saw_with = True
            elif kind != "break":
                return False
        return not self.pending

    def _describe(self, thing: _Thing) -> None:
        thing.color = self.pending.pop("color", thing.color)
        if "number" in self.pending:
            thing.count = int(self.pending.pop("number"))

    def placed(self) -> tuple[str, str, str] | None:
        """(first class, relation, second class), or None if the relations make no sense."""
        if len(self.things) != 2:
            return None
        first, second = self.things
        before, relation = self.relations[0]
        if len(self.relations) == 2:  # "cat left, dog right"
            fits = [n for n, _ in self.relations] == [1, 2] and self.relations[1][1] == INVERSE[
                relation
            ]
            return (first, relation, second) if fits else None
        if len(self.relations) > 2:
            return None
        if before == 0:  # "above a dog, a cat"
            return second, relation, first
        if before < len(self.mentions):
            return self.mentions[before - 1], relation, self.mentions[before]
        return (
            (second, relation, first) if self.saw_with else None
        )  # "a cat with a dog on the left"


def parse(text: str) -> Scene | None:
    """Read a user's prompt; None where the rules do not understand it."""
    reader = _Reader()
    if not reader.read(list(_without_negated(_tokens(text)))) or not reader.things:
        return None
    groups = {t.cls: (t.cls, t.color, t.count or 1) for t in reader.things.values()}
    try:
        if not reader.relations:
            return Scene(tuple(Group(*g) for g in groups.values()))
        if (placed := reader.placed()) is None or placed[0] == placed[2]:
            return None
        return Scene((Group(*groups[placed[0]]), Group(*groups[placed[2]])), placed[1])
    except ValueError:  # more objects than a scene holds
        return None


class RulesRewriter:
    """Rewriter that writes what it can parse in the dense style and leaves the rest unchanged."""

    model_id = "rules"
    domain = domain_named("emoji")

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """B lists of ``num_generations`` rewrites; they differ in free choices of layout."""
        return [[self._one(p, seed + g) for g in range(num_generations)] for p in prompts]

    def _one(self, prompt: str, seed: int) -> Rewrite:
        scene = parse(prompt)
        if scene is None:
            return Rewrite(prompt, prompt, status="unchanged", seed=seed, model_id=self.model_id)
        text = dense_prompt(scene, zlib.crc32(prompt.encode()) + seed)
        return Rewrite(prompt, text, seed=seed, model_id=self.model_id)
