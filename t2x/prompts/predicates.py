"""Noun phrases, and the colours that a text tells of them elsewhere: "the car is red", "a sweater
with red stripes", "a lighthouse, its walls white".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from t2x.prompts.grammar import Grammar
from t2x.prompts.synonyms import CLOTHES, MATERIALS, PARTS, share_group
from t2x.prompts.words import words

__all__ = ["Phrase", "with_predicates"]

_COLOUR_NOUNS = words("shade hue tone tint colour color")
_BUILDINGS = words(
    """
    house building cottage barn church hut cabin castle room home villa tower temple shop mill
    lighthouse townhouse windmill chapel palace school hotel farmhouse station
    """
)
_NATURAL_PARTS = words(
    "petal fur feather plumage skin scale glaze peel rind paint bodywork paintwork exterior surface"
    " coat casing hide pelt livery plank clapboard board shingle fell wall plush enamel"
)
_BUILT = words("wall facade clapboard board shingle plank timber")
_OWNING = words("with of in its whose his her their has have mit von de con")


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


def with_predicates(found: list[Phrase], tokens: list[str], grammar: Grammar) -> tuple[Phrase, ...]:
    """Give what only tells a colour to the thing that it is told of."""
    out: list[Phrase] = []
    for phrase in found:
        if phrase.head or phrase.kind == "pronoun" or not phrase.colours:
            out.append(phrase)
            continue
        near = tokens[max(phrase.start - 2, 0) : phrase.end]
        every = bool({"both", "all", "each"} & set(near))
        one = not {"one", "other", "second", "first"}.isdisjoint(near)
        named = (i for i in reversed(range(len(out))) if out[i].head and (out[i].plural or not one))
        owner = next((i for i in named if out[i].head not in _COLOUR_NOUNS), None)
        told = phrase.start > 0 and tokens[phrase.start - 1] == ":"  # "a kite: scarlet"
        last = phrase.sentence - told
        if owner is None or (out[owner].sentence not in (last, phrase.sentence) and not one):
            out.append(phrase)
            continue
        out[owner] = _coloured(out[owner], phrase)
        apart = phrase.start > 0 and tokens[phrase.start - 1] == ","
        made = phrase.start > 0 and tokens[phrase.start - 1] in grammar.of
        made = made and phrase.words[-1] in MATERIALS
        for i in range(owner):
            if made:  # "a kitten in a basket of white cotton"
                continue
            joined = apart or every or "," not in tokens[out[i].end : phrase.start]
            free = not any(word[0] != "~" for word, _ in out[i].colours)
            if joined and free and out[i].head and out[i].sentence == phrase.sentence:
                out[i] = _hinted(out[i], phrase)
            if out[owner].owned and out[i].head and out[i].sentence == phrase.sentence:
                out[i] = _coloured(out[i], phrase)
    return tuple(_share_parts(out, tokens, grammar))


def _wears(head: str) -> bool:
    return head in CLOTHES or share_group("person", head)


def _coloured(phrase: Phrase, told: Phrase) -> Phrase:
    return replace(phrase, colours=(*phrase.colours, *told.colours))


def _hinted(phrase: Phrase, told: Phrase) -> Phrase:
    """A colour that may be this thing's: it keeps one, and asks for none."""
    marked = tuple((f"~{word}", families) for word, families in told.colours)
    return replace(phrase, colours=(*phrase.colours, *marked))


def _share_parts(found: list[Phrase], tokens: list[str], grammar: Grammar) -> list[Phrase]:
    """Give the colour of a part to its thing: "a sweater with red stripes"."""
    out = list(found)
    shared: set[int] = set()
    for i, phrase in enumerate(found):
        link = tokens[phrase.start - 1] if phrase.start else ""
        made_of = link in grammar.of or (
            link in ("<in", "from") and phrase.head in (MATERIALS | _NATURAL_PARTS) - {"coat"}
        )
        if not phrase.colours or not (phrase.head in PARTS | _BUILT or made_of):
            continue
        goes_on = link in grammar.conjunctions and i - 1 in shared
        of_nature = link in (",", ":") and phrase.head in _NATURAL_PARTS and phrase.kind == "bare"
        if not (phrase.owned or made_of or link in _OWNING or goes_on or of_nature):
            continue
        shared.add(i)
        apart = link == ":" or (phrase.owned and phrase.head in PARTS)  # "a robot; its casing"
        since = phrase.sentence - apart
        before = [j for j in range(i) if out[j].head and out[j].sentence >= since]
        for j in before if phrase.owned or goes_on or of_nature else before[-1:]:
            if phrase.head == "coat" and not phrase.owned and _wears(out[j].head):
                continue
            if phrase.head in _BUILT and out[j].head not in _BUILDINGS and not made_of:
                continue
            if phrase.head == "petal" and not share_group("flower", out[j].head):
                continue
            out[j] = _hinted(out[j], phrase)
    return out
