"""What a prompt or an edit instruction asks for, in the semantic primitives of RewardFlow's policy
(arXiv 2604.08536): objects, counts, attributes, relations, style, written text, what is ruled out;
and its intent.

    found = read_prompt("two red cats to the left of a dog, no birds, watercolor")
    print(found.describe())

Built on the readers of ``t2x.prompts``: noun phrases, relations, negations, quotations, styles.
``t2x.guidance.model_reader`` lets a language model do the same. Differs from the paper: its parser
was not published, so kinds and intents are those that it names, and the rules are ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from t2x.guidance.intents import Intent, intent_of
from t2x.prompts.constraints import extract
from t2x.prompts.forms import noun_of
from t2x.prompts.grammar import ENGLISH, is_english_adjective
from t2x.prompts.negations import affirmed, dropped
from t2x.prompts.phrases import Phrase, Text, read
from t2x.prompts.quotes import quoted
from t2x.prompts.relations import DEED, Relation, relations
from t2x.prompts.tokens import colour_of, without_quotes
from t2x.prompts.words import words

__all__ = ["KINDS", "Primitive", "Primitives", "read_prompt"]

KINDS = ("object", "count", "attribute", "relation", "style", "text", "negation")
# Names of ``t2x.prompts.relations`` as they are said between two things; others are said as named.
_SAID = {
    "left": "left of",
    "right": "right of",
    "front": "in front of",
    "near": "next to",
    "over": "above",
    "hold": "holding",
    "out": "outside",
}
_SIDES = {
    "left": "on the left",
    "right": "on the right",
    "behind": "in the background",
    "front": "in the foreground",
}
# Two words, one noun, of which a reader of phrases would make an adjective and a noun, or a verb.
_COMPOUNDS = """
hot dog|traffic light|wine glass|potted plant|magnifying glass|hour glass|flying saucer
swimming pool|sleeping bag|living room|dining table|dining room|washing machine|rocking chair
frying pan|shopping cart|shopping bag|ironing board|fishing rod|cutting board|running shoe
walking stick|boxing glove|sewing machine|stained glass|street light|flash light|light bulb
light house|rolling pin|hot air balloon|wooden leg|stop sign|parking meter|teddy bear|ice cream
"""
_COMPOUND = re.compile(
    r"(?<![\w-])("
    + "|".join(re.escape(c.strip()) for c in re.split(r"[|\n]", _COMPOUNDS) if c.strip())
    + r")(s|es)?(?![\w-])",
    re.IGNORECASE,
)
# "A photo of": the picture itself, none of the things in it.
_FRAMES = words(
    """
    photo photograph picture image drawing painting illustration render rendering sketch portrait
    shot snapshot photography scene view depiction artwork art
    """
)
_FRAME_LINKS = frozenset(("of", "that", "which", "where", "showing", "featuring", "with"))
# Told of a picture as a whole, or of nobody: no things in it.
_NO_THINGS = words(
    """
    side left right top bottom background foreground colour color style camera quality detail
    resolution today yesterday tomorrow night day please thanks thing lot middle centre center
    put place say read i you we me us style something dream
    """
)
# Who asks, and for what: "could you paint me", "i'd like to see", "please".
_ASKING = re.compile(
    r"^\s*(?:(?:please|hi|hey|hello|ok|so)[, ]+)*"
    r"(?:(?:i(?:'d| would|'m)? (?:like|love|want|need|think of)|(?:could|can|would|will) you)"
    r"(?: (?:to|please|have|see))*\s*)?"
    r"(?:(?:draw|paint|make|create|generate|show|give|render|picture)(?: me| us)?(?= (?:an?|the|one"
    r"|\w+) ))?",
    re.IGNORECASE,
)
_STYLE_OF = re.compile(
    r"(?:in|with) (?:the )?style of (?P<how>[^,.;]+)|(?P<own>[\w-]+) style(?!\w)"
)
_ONE = words("one 1 single lone solitary sole")


@dataclass(frozen=True)
class Primitive:
    """One thing that can be right or wrong in a picture.

    ``kind`` is one of :data:`KINDS`. ``subject`` is the thing meant, in the singular ("" for style
    and text); ``value`` the colour, number in digits, relation, style word or text; ``other`` the
    second thing of a relation, "" for a side of the whole picture.
    """

    kind: str
    subject: str = ""
    value: str = ""
    other: str = ""

    def describe(self) -> str:
        """The primitive in a few words: ``relation cat left of dog``."""
        parts = (self.subject, self.value, self.other)
        return f"{self.kind} {' '.join(p for p in parts if p)}"


@dataclass(frozen=True)
class Primitives:
    """What ``prompt`` asks for: ``items`` in the order of telling by kind, and its ``intent``."""

    prompt: str
    items: tuple[Primitive, ...]
    intent: Intent
    reader: str = "rules"

    def of(self, *kinds: str) -> tuple[Primitive, ...]:
        """The primitives of some kinds."""
        return tuple(p for p in self.items if p.kind in kinds)

    def describe(self) -> str:
        """One line for the prompt and its intent, one for each kind that occurs."""
        lines = [f"{self.prompt!r} ({self.reader}): {self.intent.describe()}"]
        for kind in KINDS:
            found = [p.describe().removeprefix(f"{kind} ") for p in self.of(kind)]
            lines += [f"  {kind}: {'; '.join(found)}"] if found else []
        return "\n".join(lines)


def read_prompt(prompt: str, *, editing: bool | None = None) -> Primitives:
    """Read an English ``prompt``, or an edit instruction, by rules; what can't be read is no item.

    ``editing`` says that the text is about a picture that is there; None finds out from its verbs.
    Of an edit only what shall be different is a primitive.
    """
    joined = _COMPOUND.sub(lambda m: re.sub(r"\s+", "-", m.group()), prompt)
    intent = intent_of(joined, editing=editing)
    return Primitives(prompt, tuple(dict.fromkeys(_items(joined, intent))), intent.plain())


def _items(text: str, intent: Intent) -> Iterator[Primitive]:
    """Primitives of a prompt, or of what an edit changes."""
    if intent.action == "generate":
        yield from _told(text)
        return
    yield from _told(intent.result) if intent.action in ("add", "replace") else ()
    if intent.action in ("remove", "replace"):
        yield from (Primitive("negation", name) for name in _names(intent.target))
    if intent.action == "attribute":
        wanted = _adjectives(intent.result)
        yield from (
            Primitive("attribute", name, value)
            for name in _names(intent.target)
            for value in wanted
        )
    yield from (Primitive("text", value=t) for t in quoted(text) if intent.action != "remove")
    if intent.action == "style":
        yield from _styles(intent.result, otherwise=intent.result)


def _names(text: str) -> list[str]:
    return [t.name for t in _things(read(affirmed(text), ENGLISH))]


def _adjectives(text: str) -> list[str]:
    """Colours and other adjectives that a short text tells: "bright red", "shiny"."""
    tokens = re.findall(r"[a-z]+(?:-[a-z]+)*", text.lower())
    colours = [t for t in tokens if colour_of(t, ENGLISH)]
    return colours or [t for t in tokens if is_english_adjective(t) and t not in ENGLISH.shades]


def _told(text: str) -> Iterator[Primitive]:
    """Everything that a description tells, kind by kind."""
    text = _ASKING.sub(" ", text)
    positive = read(affirmed(_STYLE_OF.sub(" ", text)), ENGLISH)
    styles = list(_styles(text))
    things = [t for t in _things(positive) if t.name not in {p.value for p in styles}]
    names = dict.fromkeys(t.name for t in things)
    yield from (Primitive("object", name) for name in names)
    for name in names:
        number = sum(t.count or 1 for t in things if t.name == name)
        several = sum(t.name == name for t in things) > 1
        if several or any(t.count for t in things if t.name == name):
            yield Primitive("count", name, str(number))
    yield from (Primitive("attribute", t.name, a) for t in things for a in t.attributes)
    yield from _placed(positive, things)
    yield from styles
    yield from (Primitive("text", value=t) for t in quoted(text))
    for word in dropped(without_quotes(text), ""):
        yield Primitive("negation", _plain(noun_of(word)))


# ---- things --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Thing:
    """A thing with all phrases that tell of it; ``count`` is None where no number is told."""

    name: str
    phrases: tuple[Phrase, ...]
    count: int | None
    attributes: tuple[str, ...]


def _things(text: Text) -> list[_Thing]:
    """Things of a text; "the cat" after "a cat" tells of the same one."""
    out: list[_Thing] = []
    for phrase in text.phrases:
        if not phrase.head or phrase.kind in ("pronoun", "part") or _is_frame(phrase, text):
            continue
        new = _Thing(_name(phrase), (phrase,), _count(phrase, text), _attributes(phrase))
        again = phrase.kind == "definite" or (phrase.kind == "bare" and phrase.number is None)
        at = next((i for i, t in enumerate(out) if again and t.name == new.name), None)
        if at is None:
            out.append(new)
        else:
            old = out[at]
            attributes = tuple(dict.fromkeys((*old.attributes, *new.attributes)))
            out[at] = _Thing(old.name, (*old.phrases, phrase), old.count or new.count, attributes)
    return out


def _is_frame(phrase: Phrase, text: Text) -> bool:
    """Whether a phrase names the picture, not a thing in it."""
    if phrase.head in _NO_THINGS:
        return True
    after = text.tokens[phrase.end : phrase.end + 1]
    return phrase.head in _FRAMES and (not after or after[0] in _FRAME_LINKS)


def _name(phrase: Phrase) -> str:
    """The noun with the nouns right before it: "wooden kitchen tables" is "kitchen table"."""
    before: list[str] = []
    for word in reversed(phrase.words[:-1]):
        if _describes(word):
            break
        before.append(word)
    return _plain(" ".join((*reversed(before), phrase.head)))


def _plain(name: str) -> str:
    return name.replace("-", " ") if _COMPOUND.fullmatch(name.replace("-", " ")) else name


def _describes(word: str) -> bool:
    return bool(colour_of(word, ENGLISH)) or is_english_adjective(word) or word in ENGLISH.shades


def _attributes(phrase: Phrase) -> tuple[str, ...]:
    colours = tuple(w for w, _ in phrase.colours if w[0] != "~")
    others = tuple(
        w
        for w in phrase.words[:-1]
        if is_english_adjective(w) and not colour_of(w, ENGLISH) and w not in ENGLISH.shades | _ONE
    )
    return tuple(dict.fromkeys((*colours, *others)))


def _count(phrase: Phrase, text: Text) -> int | None:
    """The number told; None without one, for vague ones, and for "a"."""
    if phrase.number is None or phrase.number[0] != phrase.number[1]:
        return None
    number = phrase.number[0]
    if number == 1:
        said = {*text.tokens[phrase.start : phrase.start + 1], *phrase.words}
        return 1 if said & _ONE else None
    return int(number) if number == int(number) and phrase.kind != "other" else None


# ---- relations and styles ------------------------------------------------------------------------


def _placed(text: Text, things: Sequence[_Thing]) -> Iterator[Primitive]:
    """Relations whose things are known; the nearest of those that each may be told of."""
    owner = {(p.start, p.end): t.name for t in things for p in t.phrases}
    for relation in relations(text):
        if relation.soft:
            continue
        first = _nearest(relation.things, owner)
        to = list(dict.fromkeys(owner[p.start, p.end] for p in relation.to if _known(p, owner)))
        if first and not relation.to and relation.name in _SIDES:
            yield Primitive("relation", first, _SIDES[relation.name])
        elif first and to and to != [first]:
            other = " and ".join(to[:2]) if relation.every else next(t for t in to if t != first)
            yield Primitive("relation", first, _said(relation, text), other)


def _known(phrase: Phrase, owner: dict[tuple[int, int], str]) -> bool:
    return (phrase.start, phrase.end) in owner


def _nearest(phrases: Sequence[Phrase], owner: dict[tuple[int, int], str]) -> str:
    return next((owner[p.start, p.end] for p in phrases if _known(p, owner)), "")


def _said(relation: Relation, text: Text) -> str:
    """A relation as it is said between two things: "left of", "chasing"."""
    if not relation.name.startswith(DEED):
        return _SAID.get(relation.name, relation.name)
    one, two = relation.things[0], relation.to[0]
    if one.end > two.start:  # told in the passive: "a mouse chased by a cat"
        return relation.name.removeprefix(DEED)
    between = (t.lstrip("<@") for t in text.tokens[one.end : two.start])
    return " ".join(t for t in between if t not in ENGLISH.possessives)


def _styles(text: str, *, otherwise: str = "") -> Iterator[Primitive]:
    """Style words, and what "in the style of" names; ``otherwise`` where there is neither."""
    found = list(extract(without_quotes(text)).styles)
    for match in _STYLE_OF.finditer(text.lower()):
        how = (match.group("how") or match.group("own")).strip()
        if how not in ("the", "this", "that", "same") and not any(how in s for s in found):
            found.append(how)
    yield from (Primitive("style", value=s) for s in found or filter(None, [otherwise]))
