"""What an English prompt fixes, as bare values: numbers, colours, negations, style words, script.

Synonyms count (``a pair of`` is 2, ``crimson`` is red). Which thing each belongs to, and other
languages, is for ``t2x.prompts.preserved``. What is read here comes from the modules of its kind,
whose names are at hand here too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from t2x.prompts.forms import content_words, letters, stem
from t2x.prompts.languages import script
from t2x.prompts.negations import affirmed, by_family, mentions, negated, without_idioms
from t2x.prompts.numerals import numbers
from t2x.prompts.words import COLOUR_FAMILIES, SOFT_COLOURS, STYLE_FAMILY

__all__ = [
    "Constraints",
    "affirmed",
    "colour_families",
    "content_words",
    "extract",
    "keeps_style",
    "mentions",
    "negated",
    "numbers",
    "script",
    "stem",
    "style_conflict",
    "without_idioms",
]

_STYLE = re.compile(
    r"(?<!\w)("
    + "|".join(re.escape(w) for w in sorted(STYLE_FAMILY, key=len, reverse=True))
    + r")s?(?!\w)"
)
_PHOTO = re.compile(
    r"(?<!\w)(?:photo(?:graph(?:y|ic)?)?s?|photo-?real\w*|hyper-?real\w*|realistic|dslr)(?!\w)"
)


@dataclass(frozen=True)
class Constraints:
    """What a prompt fixes.

    ``numbers`` (values from 2 on), ``colours`` (families that each have to stay; a set of
    alternatives each), ``negated`` (stems that must not appear outside a negation), ``styles``
    (words as found, lower case), ``script`` ("latin", "han", ...).
    """

    numbers: tuple[float, ...] = ()
    colours: tuple[frozenset[str], ...] = ()
    negated: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    script: str = ""


def extract(text: str) -> Constraints:
    """Read the constraints of ``text``, a prompt whose syntax and quoted text are out already."""
    lower = text.lower()
    positive = affirmed(lower)
    colours = [
        COLOUR_FAMILIES[w]
        for w in letters(positive)
        if w in COLOUR_FAMILIES and w not in SOFT_COLOURS
    ]
    if "black and white" in positive or "black-and-white" in positive:
        colours = [c for c in colours if not c & {"black", "white"}]
    present = {stem(w) for w in letters(positive)}
    shades = set(map(by_family, letters(positive)))
    heads = tuple(h for h in negated(lower) if h not in present and by_family(h) not in shades)
    kept = tuple(n for n in numbers(positive, soft=False) if n > 1)
    return Constraints(kept, tuple(dict.fromkeys(colours)), heads, _styles(positive), script(text))


def colour_families(text: str) -> frozenset[str]:
    """Every colour family that some word of ``text`` can stand for."""
    return frozenset().union(
        *(COLOUR_FAMILIES[w] for w in letters(text.lower()) if w in COLOUR_FAMILIES)
    )


def style_conflict(styles: tuple[str, ...], source: str, *, answer: str) -> str:
    """Style word of ``answer`` that contradicts the locked ``styles`` of ``source``, or ''."""
    families = {STYLE_FAMILY.get(style, style) for style in styles}
    if not families or "photo" in families:
        return ""
    had = set(_PHOTO.findall(source.lower()))
    new = [word for word in _PHOTO.findall(answer.lower()) if word not in had]
    return "" if families == {"mono"} or not new else new[0]


def _styles(lower: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(m.group(1) for m in _STYLE.finditer(lower)))


def keeps_style(style: str, answer: str) -> bool:
    """Whether ``answer`` still has the style word ``style`` (hyphen, space and spelling aside)."""

    def squash(text: str) -> str:
        return re.sub(r"[\s-]", "", text.lower()).replace("colour", "color").replace("grey", "gray")

    return squash(style) in squash(answer)
