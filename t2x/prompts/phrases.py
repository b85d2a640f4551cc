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
from t2x.prompts.numerals import in_digits
from t2x.prompts.synonyms import PARTS

__all__ = ["Phrase", "Text", "read"]

_TOKEN = re.compile(r"[<@]?\d+(?:\.\d+)?(?![\w-])|[<@]?[^\W_]+(?:['\u2019-][^\W_]+)*|[^\w\s]")
_QUOTED = re.compile(r"\"[^\"]*\"|\u201c[^\u201d]*\u201d|\u201e[^\u201c\u201d]*[\u201c\u201d]|\u00ab[^\u00bb]*\u00bb")
_FIXED = re.compile(
    r"golden (?:retriever|hour|gate|age|ratio|eagle|light|glow|sunlight|sun|rays?|sunset|sunrise)"
    r"|silver (?:lining|screen)|(?:red|giant) panda|white house|black hole|white noise|green ?house"
    r"|(?:red|white) wine|orange (?:juice|tree|peel|blossom)|green tea|blue ?print|black ?board"
    r"|white ?board|blue ?berr\w+|black ?berr\w+|polar bear|black and white|black-and-white"
    r"|olive (?:oil|tree|branch)|rose (?:garden|bush|petals?)|cherry (?:blossoms?|tree)"
    r"|lemon tree|coral reef|jade plant|peach tree|gold(?:en)? (?:coins?|fish|medal)|red cross"
    r"|yellow stone|greenland|blue ?bird|black ?bird|red ?wood|red carpet|brown sugar|black tie"
)
_PAIRED = frozenset("glasses scissors trousers pants jeans shorts binoculars headphones tongs".split())
_NUMBERED = re.compile(r"(\d+|[^\W\d_]+)-([^\W\d_]+)(?:-[^\W\d_]+)?$")
_STOPS = frozenset(".;!?\n:")


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: its words in lower case, its ``head`` in the singular ("" if it only tells a
    colour), the range of its number, its colour families, and where it stands among the tokens.

    ``kind``: definite, indefinite, bare, pronoun, or other ("another cat"). ``owned`` says that it
    begins with "its" or "whose".
    """

    words: tuple[str, ...]
    head: str
    start: int
    end: int
    sentence: int
    number: tuple[float, float] | None = None
    plural: bool = False
    colours: tuple[tuple[str, frozenset[str]], ...] = ()
    kind: str = "bare"
    owned: bool = False


@dataclass(frozen=True)
class Text:
    """A text in tokens and phrases. Each phrase's colours hold those told by "the car is red"."""

    tokens: tuple[str, ...]
    phrases: tuple[Phrase, ...]
    grammar: Grammar = field(repr=False)


@lru_cache(maxsize=512)
def read(text: str, grammar: Grammar) -> Text:
    """Read the phrases of ``text``; what is quoted is left out."""
    plain = _QUOTED.sub(" ", text)
    tokens, cased = _tokens(plain, grammar)
    found = _Chunker(tokens, cased, grammar).chunk()
    return Text(tuple(tokens), _with_predicates(found, tokens, grammar), grammar)


def _tokens(text: str, grammar: Grammar) -> tuple[list[str], list[bool]]:
    """Tokens in lower case, relations as one token each, and whether each began with a capital."""
    marked = re.sub(r"\s+", " ", text.replace("\u2019", "'")).strip()
    capitals = {w.lower() for w in re.findall(r"(?<![.!?:] )(?<!^)\b[^\W\d_]\w+", marked) if w[0].isupper()}
    lower = in_digits(marked.lower(), grammar.name)
    if grammar.name == "en":
        lower = _FIXED.sub(lambda m: m.group().replace(" ", "\u00b7"), lower)
    for pattern, name in grammar.relations:
        lower = pattern.sub(f" {_token_of(name)} ", lower)
    tokens = [t.replace("\u00b7", "-") for t in _TOKEN.findall(lower.replace("\u00b7", "-"))]
    return tokens, [t in capitals for t in tokens]


def _token_of(name: str) -> str:
    """A relation as a token that no word is: "left" as "<0left", "@left" as "@left"."""
    flat = name.replace(" ", "\u00d7")
    if flat[0] == "@":
        return flat
    turned = "\u00d8" if flat[0] == "<" else ""
    return f"<{flat.removeprefix('<')}{turned}"


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
        if token in g.conjunctions and self.run and self._only_modifiers() and self._continues(at):
            return
        value = self._value(token)
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
            return (float(token), float(token)) if re.fullmatch(r"\d{1,15}(?:\.\d+)?", token) else None
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
        return after in self.g.colours or (self.g.name == "en" and is_english_adjective(after))

    def _only_modifiers(self) -> bool:
        words = [self.tokens[i] for i in self.run]
        if self.g.head != "last":
            return words[-1] in self.g.colours
        return all(self._modifies(word) for word in words)

    def _modifies(self, word: str) -> bool:
        return (
            word in self.g.colours or word in self.g.shades or is_english_adjective(word)
        )

    def _ends(self, at: int, token: str) -> bool:
        """Whether ``token`` can't be in the phrase that is open."""
        g = self.g
        if token[0] in "<@" or not (token[0].isalnum()):
            return True
        if token in g.boundaries or token in g.conjunctions:
            return True
        if not self.run:
            return False
        named = not self._only_modifiers()
        if token in g.verbs:
            return named
        if g.name == "en" and re.search(r"(?:ing|ed)$", token) and is_english_adjective(token):
            return named and "-" not in token
        return False

    def _flush(self, at: int) -> None:
        if self.run or (self.number is not None and self.begun is not None):
            self.found += self._phrases(at)
        self._reset()

    def _phrases(self, at: int) -> list[Phrase]:
        words = [self.tokens[i] for i in self.run]
        begun = self.begun if self.begun is not None else at
        head = self._head(words)
        colours = [(w, self.g.colours[w]) for w in words if w in self.g.colours and w != head]
        parts = [p for i, w in zip(self.run, words, strict=True) if (p := self._part(i, w))]
        number = self.number
        if self.paired and head in {noun_of(w) for w in _PAIRED}:
            number = (1, 1)
        main = Phrase(
            words=tuple(words),
            head=self._lemma(head),
            start=begun,
            end=(self.run[-1] + 1) if self.run else at,
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
        if found is None:
            return None
        first, second = found.groups()
        noun = self._lemma(second.removesuffix("ed") if second.endswith("ed") else second)
        noun = noun[:-1] if len(noun) > 3 and noun[-1] == noun[-2:-1] and second.endswith("ed") else noun
        value = self._value(first)
        made = Phrase((second,), noun, at, at + 1, self.sentence, kind="part")
        if value is not None:
            return replace(made, number=value)
        if first in self.g.colours:
            return replace(made, colours=((first, self.g.colours[first]),))
        return None

    def _head(self, words: list[str]) -> str:
        g = self.g
        if g.head == "first":
            return next((w for w in words if w not in g.colours and w not in g.shades), "")
        if g.head == "capital":
            named = [w for i, w in zip(self.run, words, strict=True) if self.cased[i] and w not in g.colours]
            plain = [w for w in words if w not in g.colours and w not in g.shades]
            return (named or plain or [""])[-1]
        if self.number is not None and self.number[0] > 1:
            plural = [w for w in words if is_plural(w) and w not in g.colours]
            if plural:
                return plural[0]
        nouns = [w for w in words if not self._modifies(w)]
        if nouns:
            return nouns[-1]
        if words and (words[-1] in g.colours or words[-1] in g.shades):
            soft = self.kind != "bare" and len(words) == 1 and words[-1] in g.colours
            return words[-1] if soft else ""
        return words[-1] if words else ""

    def _lemma(self, word: str) -> str:
        return noun_of(word) if self.g.name == "en" else _rough(word)

    def _is_plural(self, word: str) -> bool:
        return is_plural(word) if self.g.name == "en" else False


def _rough(word: str) -> str:
    """A German or Spanish noun without the ending of its number or case, roughly."""
    for ending in ("innen", "nen", "es", "en", "er", "as", "os", "s", "n", "e", "a", "o"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    return word.replace("ä", "a").replace("ö", "o").replace("ü", "u")


def _with_predicates(
    found: list[Phrase], tokens: list[str], grammar: Grammar
) -> tuple[Phrase, ...]:
    """Give what only tells a colour to the thing that it is told of."""
    out: list[Phrase] = []
    for phrase in found:
        if phrase.head or phrase.kind == "pronoun" or not phrase.colours:
            out.append(phrase)
            continue
        owner = next((i for i in reversed(range(len(out))) if out[i].head), None)
        if owner is None or out[owner].sentence != phrase.sentence:
            out.append(phrase)
            continue
        out[owner] = _coloured(out[owner], phrase)
        for i in range(owner):
            if out[owner].owned and out[i].head and out[i].sentence == phrase.sentence:
                out[i] = _coloured(out[i], phrase)
    return tuple(_share_parts(out, tokens, grammar))


def _coloured(phrase: Phrase, told: Phrase) -> Phrase:
    return replace(phrase, colours=(*phrase.colours, *told.colours))


def _share_parts(found: list[Phrase], tokens: list[str], grammar: Grammar) -> list[Phrase]:
    """"A sweater with red stripes", "a car, its paint red": the colour of a part is the thing's."""
    out = list(found)
    for i, phrase in enumerate(found):
        if not phrase.colours or phrase.head not in PARTS:
            continue
        before = [j for j in range(i) if out[j].head and out[j].sentence == phrase.sentence]
        marked = tuple((f"~{word}", families) for word, families in phrase.colours)
        for j in before if phrase.owned else before[-1:]:
            out[j] = replace(out[j], colours=(*out[j].colours, *marked))
    return out
