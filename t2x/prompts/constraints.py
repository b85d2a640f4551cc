"""What a prompt fixes and a rewrite has to keep: numbers, colours, negations, style words, script.

A first version that reads English surface forms with small tables and claims no more: a constraint
that it doesn't see is not enforced, one that it sees is. Synonyms count (``a pair of`` is 2,
``crimson`` is red). Sentence embeddings can't do this job: "no cat" and "a cat", or two and three,
are nearly the same vector.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache, partial

from t2x.prompts.words import (
    COLOUR_FAMILIES,
    COUNTING_WORDS,
    IRREGULAR_PLURALS,
    MULTIPLES,
    NUMBER_WORDS,
    SOFT_COLOURS,
    SOFT_NUMBERS,
    STOP_WORDS,
    STYLE_FAMILY,
)

__all__ = [
    "Constraints",
    "content_words",
    "extract",
    "negated",
    "numbers",
    "script",
    "stem",
    "without_idioms",
]

# Python refuses to read an integer of thousands of digits, and nobody counts that far.
_DIGITS = re.compile(r"(?<![\w.:/-])\d{1,15}(?:\.\d+)?(?![\w:/]|\.\d)")
_STYLE = re.compile(
    r"(?<!\w)("
    + "|".join(re.escape(w) for w in sorted(STYLE_FAMILY, key=len, reverse=True))
    + r")s?(?!\w)"
)
_PHOTO = re.compile(
    r"(?<!\w)(?:photo(?:graph(?:y|ic)?)?s?|photo-?real\w*|hyper-?real\w*|realistic|dslr)(?!\w)"
)
_NO = (
    r"(?<!\w)(?:no|without|not|never|nor|neither|\w+n['\u2019]t|cannot|minus|free of|devoid of)\s+"
    r"(?:(?:want|wants|show|include|have|has|draw|add|put|see|be|contain|any|a|an|the|of|to)\s+)*"
)
_NEGATION = re.compile(rf"{_NO}(?P<words>[\w'-]+(?:\s+[\w'-]+){{0,3}})")
# Negations in form that ask for what follows: "not only", "can't wait to see", "why not".
_NO_NEGATION = re.compile(
    rf"{_NO}(?:only|one|just|much|many|more|less|fewer|longer|least|matter|sure|problem|doubt|wait"
    r"|forget|omit|miss|skip|exclude|overlook|ignore|worry|get enough|go wrong"
    r"|leave(?:\s+out)?|(?:help|resist)(?:\s+\w+ing)?)(?!\w)"
    r"|(?<!\w)why (?:not|don['\u2019]t)(?!\w)"
    # "wouldn't a cat be nice", but not "it wouldn't be a cat"
    r"|(?<!\w)wouldn['\u2019]t(?=\s+(?!be\b)[^,.;]{1,80}\b(?:be|look|make)\b)"
)
_HALF_DOZEN = re.compile(r"(?<!\w)half (?:a )?dozen(?!\w)")
_GROUPED = re.compile(r"(?<![\w.,:/-])\d{1,3}(?:,\d{3}){1,4}(?!\w|,\d)")
_UNIT = "|".join(word for word, n in COUNTING_WORDS.items() if n < 10)
_TENS = re.compile(
    rf"(?<!\w)({'|'.join(word for word, n in COUNTING_WORDS.items() if n % 10 == 0 and n > 10)})"
    rf"(?:-({_UNIT})(?!\w)|\s+({_UNIT})(?![\w-]))"
)
_NUMBER = rf"(?:\d{{1,15}}|{'|'.join(COUNTING_WORDS)})"
_REST = rf"(?:(?:\s+and)?\s+({_NUMBER})(?![\w.,:/-]|\s+hundred))?"  # "three hundred and five"
_TIMES = tuple(
    (size, re.compile(rf"(?<![\w.,])({_NUMBER})[\s-]+{unit}(?!\w){_REST if size > 12 else '()'}"))
    for unit, size in MULTIPLES.items()
)
_SHORTEST_STEM = 3
_ENDINGS = (
    ("ies", "y"),
    ("sses", "ss"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("ves", "f"),
    ("ing", ""),
    ("ed", ""),
    ("s", ""),
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
        for w in _words(positive)
        if w in COLOUR_FAMILIES and w not in SOFT_COLOURS
    ]
    if "black and white" in positive or "black-and-white" in positive:
        colours = [c for c in colours if not c & {"black", "white"}]
    present = {stem(w) for w in _words(positive)}
    shades = set(map(by_family, _words(positive)))
    heads = tuple(h for h in negated(lower) if h not in present and by_family(h) not in shades)
    kept = tuple(n for n in numbers(positive, soft=False) if n > 1)
    return Constraints(kept, tuple(dict.fromkeys(colours)), heads, _styles(positive), script(text))


def numbers(text: str, *, soft: bool = True) -> tuple[float, ...]:
    """Values that ``text`` names in digits or words, in order, without repeats.

    Without ``soft``, vague ones (both, hundred) are left out.
    """
    lower = _in_digits(text.lower())
    found: list[tuple[int, float]] = [
        (m.start(), float(m.group())) for m in _DIGITS.finditer(lower)
    ]
    for match in re.finditer(r"[a-z]+", lower):
        value = NUMBER_WORDS.get(match.group())
        if value is not None and (soft or match.group() not in SOFT_NUMBERS):
            found.append((match.start(), float(value)))
    return tuple(dict.fromkeys(value for _, value in sorted(found)))


def _in_digits(lower: str) -> str:
    """Write numbers of several words, and groups of digits, as one number: "two dozen" as 24."""
    lower = _HALF_DOZEN.sub("6", lower)
    lower = _GROUPED.sub(lambda m: m.group().replace(",", ""), lower)
    lower = _TENS.sub(lambda m: str(_value(m.group(1)) + _value(m.group(2) or m.group(3))), lower)
    for size, pattern in _TIMES:
        lower = pattern.sub(partial(_times, size=size), lower)
    return lower


def _times(found: re.Match[str], *, size: int) -> str:
    rest = _value(found.group(2) or "0")
    total = size * _value(found.group(1))
    return str(total + rest) if rest < size else f"{total} {rest}"


def _value(word: str) -> int:
    return int(word) if word.isdigit() else COUNTING_WORDS[word]


def negated(text: str) -> tuple[str, ...]:
    """Stems of what ``text`` says is absent: "no red hats on" gives ("hat",)."""
    return tuple(dict.fromkeys(head for *_, head in _scopes(text.lower())))


def without_idioms(text: str) -> str:
    """``text`` with what only looks like a negation blanked: "not only", "can't wait to see"."""
    lower = text.lower()
    if len(lower) != len(text):  # a few letters grow in lower case, and places would shift
        return _NO_NEGATION.sub(_blank, lower)
    for found in _NO_NEGATION.finditer(lower):
        text = text[: found.start()] + _blank(found) + text[found.end() :]
    return text


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())


def affirmed(text: str) -> str:
    """``text`` with every negation and what it rules out blanked."""
    text = without_idioms(text)
    for start, end, _ in reversed(_scopes(text.lower())):
        text = text[:start] + " " * (end - start) + text[end:]
    return text


def _scopes(lower: str) -> list[tuple[int, int, str]]:
    """(start, end, stem of the last word) of each negation with the words that it rules out."""
    scopes = []
    for found in _NEGATION.finditer(_NO_NEGATION.sub(_blank, lower)):
        words: list[re.Match[str]] = []
        for word in re.finditer(r"\S+", found.group("words")):
            if word.group() in STOP_WORDS:
                break
            words.append(word)
        if words:
            end = found.start("words") + words[-1].end()
            scopes.append((found.start(), end, stem(words[-1].group())))
    return scopes


def colour_families(text: str) -> frozenset[str]:
    """Every colour family that some word of ``text`` can stand for."""
    return frozenset().union(
        *(COLOUR_FAMILIES[w] for w in _words(text.lower()) if w in COLOUR_FAMILIES)
    )


def mentions(text: str, head: str) -> bool:
    """Whether ``text`` names the stem ``head``, or a shade of that colour, outside every
    negation.
    """
    words = _words(affirmed(text.lower()))
    return head in {stem(w) for w in words} or by_family(head) in set(map(by_family, words))


def by_family(word: str) -> str:
    """Give a colour by the families it is in, which its synonyms share; other words as they are."""
    families = COLOUR_FAMILIES.get(word, ()) if word not in SOFT_COLOURS else ()
    return f"/{'/'.join(sorted(families))}" if families else word


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


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)?", text)


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Crude English stem, only good for comparing two words: lower case, plural and -ing/-ed
    endings off.
    """
    word = word.lower().replace("\u2019", "'").removesuffix("'s")
    word = IRREGULAR_PLURALS.get(word, word)
    for ending, swap in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) + len(swap) >= _SHORTEST_STEM:
            kept = ending == "s" and word.endswith(("ss", "us"))
            return word if kept else word[: len(word) - len(ending)] + swap
    return word


def content_words(text: str) -> list[str]:
    """Stems of the words that carry meaning, in order, without repeats; each ideograph counts as a
    word.
    """
    out: list[str] = []
    for piece in re.findall(
        r"[\u3400-\u9fff]|[^\W_\u3400-\u9fff]+(?:['\u2019][^\W_]+)?", text.lower()
    ):
        if piece not in STOP_WORDS:
            out.append(stem(piece))
    return list(dict.fromkeys(out))


def script(text: str) -> str:
    """Script of most letters: latin, han, japanese, hangul, cyrillic, ...; '' without letters."""
    names = Counter(_script_of(c) for c in text[:4000] if c.isalpha())
    if not names:
        return ""
    if names["hiragana"] + names["katakana"] and names["latin"] < sum(names.values()) / 2:
        return "japanese"
    return names.most_common(1)[0][0]


@lru_cache(maxsize=8192)
def _script_of(char: str) -> str:
    first = unicodedata.name(char, "UNKNOWN").split()[0].lower()
    return {"cjk": "han"}.get(first, first)
