"""Noun phrases of a text with the number and the colours that each has: a chunker by small tables.

No parser and no model: a phrase is a run of words between words that can't be in one. What it gets
wrong it mostly gets wrong in prompt and rewrite alike, and the checks built on it compare the two.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache

from t2x.prompts.forms import is_plural, noun_of
from t2x.prompts.grammar import Grammar, is_english_adjective
from t2x.prompts.predicates import Phrase, with_predicates
from t2x.prompts.spelling import is_word
from t2x.prompts.synonyms import MATERIALS, PARTS, is_known
from t2x.prompts.tokens import colour_of, tokens_of, without_quotes
from t2x.prompts.words import SOFT_COLOURS, words

__all__ = ["Phrase", "Text", "read"]

_PAIRED = words(
    """
    glasses scissors trousers pants jeans shorts binoculars headphones tongs
    """
)
_NUMBERED = re.compile(r"(\d+|[^\W\d_]+)-([^\W\d_]+)(?:-[^\W\d_]+)?$")
_MOST = 4000
_STOPS = frozenset(".;!?\n:")
# Things that a colour is named after: "forest green", "sky blue".
_SHADE_NOUNS = words(
    """
    forest sky navy snow coal ink blood midnight ocean sea hunter royal baby electric burnt jet
    fire ruby cherry wine lime lemon apple olive mint moss steel slate ice powder rose hot neon
    """
)
# "A black-robed nun" is a nun in black.
_WORN = words(
    """
    robe clad hair fur skin feather coat paint wall cap hat dress gown suit cloak stripe
    plumage jacket shirt uniform roof petal wing scale shell top bearded beard eyed eye
    """
)
_HAIRS = words("curls locks waves")  # verbs as well
_POSTURES = words(
    """
    lies stands sits hangs rises rests floats hovers lie stand sit hang rest float rise is
    looms sprawls crouches perches towers grows stretches flies
    """
)
_LINKS = words(
    """
    of <in all painted dyed glazed lacquered stained enamelled enameled sprayed tinted washed
    liveried is are was were
    """
)


@dataclass(frozen=True)
class Text:
    """A text in tokens and phrases. Each phrase's colours hold those told by "the car is red"."""

    tokens: tuple[str, ...]
    phrases: tuple[Phrase, ...]
    grammar: Grammar = field(repr=False)


@lru_cache(maxsize=512)
def read(text: str, grammar: Grammar) -> Text:
    """Read the phrases of ``text``, of its first 4,000 characters; what is quoted is left out.

    Phrases are compared each with each: longer texts would take minutes.
    """
    tokens, cased = tokens_of(without_quotes(text[:_MOST]), grammar)
    found = _Chunker(tokens, cased, grammar).chunk()
    return Text(tuple(tokens), with_predicates(found, tokens, grammar), grammar)


class _Chunker:
    """Walks over tokens and closes a phrase wherever one ends."""

    def __init__(self, tokens: list[str], cased: list[bool], grammar: Grammar) -> None:
        self.tokens, self.cased, self.g = tokens, cased, grammar
        self.found: list[Phrase] = []
        self.sentence = 0
        self._reset()

    def _reset(self) -> None:
        self.run: list[int] = []
        self.number: tuple[float, float] | None = None
        self.kind = "bare"
        self.owned = False
        self.begun: int | None = None
        self.paired = False

    def chunk(self) -> list[Phrase]:
        for at, token in enumerate(self.tokens):
            self._step(at, token)
        self._flush(len(self.tokens))
        return self.found

    def _step(self, at: int, token: str) -> None:
        g = self.g
        if token in g.conjunctions and self.run and self._goes_on(at, token):
            return
        value = self._value(token)
        if token in ("one", "ones") and self.run and (self.kind != "bare" or self.number):
            self._stand_in(at)
            return
        if token in g.pronouns and not (token == "one" and self._noun_follows(at)):
            self._flush(at)
            self.found.append(Phrase((token,), "", at, at + 1, self.sentence, kind="pronoun"))
        elif token in g.possessives or token in g.determiners or token in g.others:
            self._flush(at)
            self._begin(at, token)
        elif value is not None:
            if self.run:
                self._flush(at)
            self.begun = at if self.begun is None else self.begun
            self.number = value
        elif self.number is not None and not self.run and token in g.of:
            self.paired = self.tokens[at - 1] in ("pair", "paar", "par")
        elif self._ends(at, token):
            self._flush(at)
            self.sentence += token in _STOPS
        else:
            self.begun = at if self.begun is None else self.begun
            self.run.append(at)

    def _stand_in(self, at: int) -> None:
        """ "A green door and a blue one": the one is a door."""
        named = [p for p in reversed(self.found) if p.head and p.kind != "part"]
        counted = [p for p in named if p.plural and p.number and p.sentence == self.sentence]
        last = next(iter(counted or named), None)
        words, kind, begun = [self.tokens[i] for i in self.run], self.kind, self.begun or at
        several = self.tokens[at] == "ones"
        number = self.number if several else (1.0, 1.0)
        self._reset()
        if last is not None:
            colours = tuple((w, f) for w in words if (f := colour_of(w, self.g)))
            self.found.append(
                Phrase(
                    (*words, last.head),
                    last.head,
                    begun,
                    at + 1,
                    self.sentence,
                    number,
                    plural=several,
                    colours=colours,
                    kind=kind,
                )
            )

    def _begin(self, at: int, token: str) -> None:
        self.begun = at
        self.owned = token in self.g.possessives
        if token in self.g.others:
            self.kind, self.number = "other", (1, 1)
        elif token in self.g.ones:
            self.kind, self.number = "indefinite", (1, 1)
        else:
            self.kind = "definite"

    def _value(self, token: str) -> tuple[float, float] | None:
        g = self.g
        if token[0].isdigit():
            return (
                (float(token), float(token)) if re.fullmatch(r"\d{1,15}(?:\.\d+)?", token) else None
            )
        if token in g.ranges:
            return g.ranges[token]
        if token in g.ones and token not in g.determiners:
            return (1, 1)
        value = g.numbers.get(token)
        return None if value is None else (float(value), float(value))

    def _noun_follows(self, at: int) -> bool:
        return at + 1 < len(self.tokens) and not self._ends(at + 1, self.tokens[at + 1])

    def _continues(self, at: int) -> bool:
        """Whether the run goes on after "and": "red and white shirt"."""
        if at + 1 >= len(self.tokens):
            return False
        after = self.tokens[at + 1]
        return bool(colour_of(after, self.g)) or (
            self.g.name == "en" and is_english_adjective(after)
        )

    def _goes_on(self, at: int, token: str) -> bool:
        """Whether the open run is not closed by a comma or "and"."""
        listed = self._only_modifiers() and self._continues(at)
        named = self.tokens[self.run[-1]] in MATERIALS  # "in ebony silk, chalk marks"
        told = self.kind == "bare" and self.run[0] > 0
        named = named or (told and self.tokens[self.run[-1]].endswith("-coloured"))
        return listed and (token != "," or not (named or self._is_predicate()))

    def _is_predicate(self) -> bool:
        """Whether the open run tells of what stands before it: "a flame of violet", "her eyes a
        startling violet".
        """
        if self.kind == "bare":
            return self.run[0] > 0 and self.tokens[self.run[0] - 1] in self.g.of
        return bool(self.found) and self.found[-1].end == self.begun

    def _only_modifiers(self) -> bool:
        words = [self.tokens[i] for i in self.run]
        if self.g.head != "last":
            return bool(colour_of(words[-1], self.g))
        return all(map(self._modifies, words)) and not self._named_after(words)

    def _modifies(self, word: str) -> bool:
        return bool(colour_of(word, self.g)) or word in self.g.shades or is_english_adjective(word)

    def _named_after(self, words: list[str]) -> bool:
        """Whether the last word is a thing that a colour is named after: "a raven", "a rose"."""
        if self._is_colourful_thing(words) or (words == ["orange"] and self.kind == "indefinite"):
            return True
        one = self.begun is not None and self.tokens[self.begun] == "one"
        told = (self.kind != "bare" or self.number is not None) and not one
        return words[-1] in SOFT_COLOURS and told and not (words[1:] and self._is_apposed())

    def _is_colourful_thing(self, words: list[str]) -> bool:
        """Whether a bare run names a thing of another colour: "pink flamingo", "white rose"."""
        if self.kind != "bare" or not words or words[-1] not in SOFT_COLOURS:
            return False
        if len(words) == 1:  # "Flamingo wading", "salmon on ice" at the start
            after = next(iter(self.tokens[self.run[0] + 1 :]), "")
            first = self.run[0] == 0 or self.tokens[self.run[0] - 1] in _STOPS
            return first and is_known(words[0]) and (after[:1] == "<" or after.endswith("ing"))
        linked = self.run[0] > 0 and self.tokens[self.run[0] - 1] in _LINKS
        hard = bool(colour_of(words[-2], self.g)) and words[-2] not in SOFT_COLOURS
        return hard and is_known(words[-1]) and not linked

    def _is_apposed(self) -> bool:
        """Whether the open run tells of the phrase right before it: "her eyes a startling jade"."""
        before = self.tokens[self.begun - 1] if self.begun else ""
        apposed = bool(self.found) and self.found[-1].end == self.begun
        return apposed or before in ("is", "are", "was", "were")

    def _ends(self, at: int, token: str) -> bool:
        """Whether ``token`` can't be in the phrase that is open."""
        g = self.g
        if token[0] in "<@" or not (token[0].isalnum()):
            return True
        if token in g.boundaries or token in g.conjunctions:
            return True
        if not self.run:
            return token in _POSTURES and self.kind == "bare" and self.number is None
        named = not self._only_modifiers() or self._is_colour_told()
        if token in g.verbs:
            return named and not (token in _HAIRS and bool(colour_of(self.tokens[at - 1], g)))
        if g.name == "en" and re.search(r"(?:ing|ed)$", token) and is_english_adjective(token):
            thing = [self.tokens[i] for i in self.run]
            return (named or self._is_colourful_thing(thing)) and "-" not in token
        return False

    def _is_colour_told(self) -> bool:
        """Whether the open run is a whole predicate: "a boat in blazing orange"."""
        before = self.tokens[self.run[0] - 1] if self.run[0] else ""
        last = self.tokens[self.run[-1]]
        return self.kind == "bare" and before in _LINKS and bool(colour_of(last, self.g))

    def _flush(self, at: int) -> None:
        if self.run or (self.number is not None and self.begun is not None):
            self.found += self._phrases(at)
        self._reset()

    def _phrases(self, at: int) -> list[Phrase]:
        words = [self.tokens[i] for i in self.run]
        last = self._head(words)
        parts = [p for i, w in zip(self.run, words, strict=True) if (p := self._part(i, w))]
        colours = [(w, f) for i, w in enumerate(words) if i != last and (f := colour_of(w, self.g))]
        colours += [(f"~{w}", f) for p in parts if p.head in _WORN for w, f in p.colours]
        number = self.number
        if last is None and not colours and number is None:
            return parts
        head = "" if last is None else words[last]
        if self.paired and head in _PAIRED:
            number = (1, 1)
        end = at if not self.run else self.run[-1 if last is None else last] + 1
        main = Phrase(
            words=tuple(words if last is None else words[: last + 1]),
            head=self._lemma(head),
            start=at if self.begun is None else self.begun,
            end=end,
            sentence=self.sentence,
            number=number,
            plural=bool(head) and self._is_plural(head),
            colours=tuple(colours),
            kind=self.kind if self.kind != "bare" or number != (1, 1) else "indefinite",
            owned=self.owned,
        )
        return [*parts, main]

    def _part(self, at: int, word: str) -> Phrase | None:
        """What a word such as "blue-eyed" or "three-legged" tells of a part."""
        found = _NUMBERED.match(word)
        if found is None or colour_of(word, self.g):
            return None
        first, second = found.groups()
        noun = self._lemma(_without_ed(second) if second.endswith("ed") else second)
        value = self._value(first)
        made = Phrase((second,), noun, at, at + 1, self.sentence, kind="part")
        if value is not None:
            return replace(made, number=value)
        if first in self.g.colours and (second.endswith("ed") or noun in _WORN | PARTS):
            return replace(made, colours=((first, self.g.colours[first]),))
        return None

    def _head(self, words: list[str]) -> int | None:
        """Which of ``words`` names the thing; None if none does, only a colour or number."""
        g, every = self.g, range(len(words))
        if g.head != "last":
            plain = [i for i in every if not colour_of(words[i], g) and words[i] not in g.shades]
            if g.head == "first":
                named_after = words and (self.kind != "bare" or self.number is not None)
                return plain[0] if plain else (0 if named_after else None)
            named = [i for i in plain if self.cased[self.run[i]]]
            return named[0] if named else (plain[-1] if plain else None)
        if self.number is not None and self.number[0] > 1:
            plural = [i for i in every if is_plural(words[i]) and not colour_of(words[i], g)]
            if plural:
                return plural[0]
        nouns = [i for i in every if not self._modifies(words[i])]
        if words and self._named_after(words):
            return len(words) - 1
        if self._tells_colour(words):
            return None
        if self.kind == "bare" and self.number is None:
            nouns = [i for i in nouns if words[i] not in g.verbs - _HAIRS]
        if nouns and nouns[-1] < len(words) - 1 and bool(colour_of(words[-1], g)):
            known = [i for i in nouns if words[i] in PARTS or is_known(words[i])]
            return (known or nouns[-1:])[0]  # "its coat pristine white"
        if nouns:
            return self._before_verb(nouns, words)
        described = any(colour_of(w, g) for w in words) or self.kind == "bare"
        if self.kind != "bare" and words and words[-1] == "glass":  # "a green glass"
            return len(words) - 1
        return None if described or not words else len(words) - 1

    def _tells_colour(self, words: list[str]) -> bool:
        """Whether a run is no thing but its colour: "leaf green", "emerald green share a"."""
        if self.kind != "bare" or self.number is not None or not words:
            return False
        after = self.tokens[self.run[-1] + 1] if self.run[-1] + 1 < len(self.tokens) else ""
        if len(words) > 1 and after in self.g.determiners and not is_plural(words[-1]):
            words = words[:-1] if all(colour_of(w, self.g) for w in words[:-1]) else words
        before = self.tokens[self.run[0] - 1] if self.run[0] else ""
        linked = before in _LINKS
        if words[-1].endswith("-coloured") and not all(map(self._modifies, words)):
            return False  # "lilies milk-coloured"
        if (
            before in ("of", "painted")
            and len(words) > 1
            and colour_of(words[-2], self.g)
            and _is_deed(words[-1])
        ):
            words = words[:-1]  # "a flag of scarlet snaps in the wind"
        soft = words[-1] in SOFT_COLOURS and not linked
        hard = bool(colour_of(words[-1], self.g)) and not soft
        return (hard and len(words) < 4) or (
            len(words) > 1 and bool(colour_of(words[-1], self.g)) and words[-2] in _SHADE_NOUNS
        )

    def _before_verb(self, nouns: list[int], words: list[str]) -> int:
        """The last noun, unless it is a verb: "a dog chases", "the queen bows to"."""
        last = nouns[-1]
        if len(nouns) < 2 or last != len(words) - 1 or not is_plural(words[last]):
            return last
        after = self.tokens[self.run[-1] + 1] if self.run[-1] + 1 < len(self.tokens) else ""
        follows = (
            after in self.g.determiners or after in self.g.possessives or after in ("to", "at")
        )
        single = self.number == (1, 1)
        return nouns[-2] if single or (self.kind == "definite" and follows) else last

    def _lemma(self, word: str) -> str:
        return noun_of(word) if self.g.name == "en" else _rough(word)

    def _is_plural(self, word: str) -> bool:
        return is_plural(word) if self.g.name == "en" else False


def _is_deed(word: str) -> bool:
    """Whether a word in -s is rather a verb than a plural: no table knows its noun."""
    return word.endswith("s") and not is_known(noun_of(word))


def _without_ed(word: str) -> str:
    """The noun of "eyed", "legged", "haired"."""
    if is_word(word[:-1]):
        return word[:-1]
    noun = word[:-2]
    return noun[:-1] if len(noun) > 3 and noun[-1] == noun[-2] else noun


def _rough(word: str) -> str:
    """A German or Spanish noun without the ending of its number or case, roughly."""
    for ending in ("innen", "nen", "es", "en", "er", "as", "os", "s", "n", "e", "a", "o"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word.replace("ä", "a").replace("ö", "o").replace("ü", "u")
