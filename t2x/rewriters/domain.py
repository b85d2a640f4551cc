"""What a rewriter's own world calls things, so that a guard doesn't take a translation for a loss.

A rewriter of the emoji world turns "the animal with a trunk" into "an elephant": not one word is
left, and nothing is lost. The domain's tables put known phrases of the *user's* text into the
world's words before constraints are read; a text without one known name stays as it is, and a
rewrite that shares nothing with it is reverted. What a prompt names in the world's words must come
back, so a rewrite that drops one of two things is reverted too.

Held-out kinds of phrasing don't leak through this: the tables hold words, not forms of sentences,
and only decide whether a finished proposal is accepted. A model neither reads them nor learns from
what they decide, and what fails gives the user's own words back.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from t2x.errors import T2XError
from t2x.prompts.checks import FREE_ENGLISH, Domain
from t2x.prompts.forms import stem
from t2x.prompts.negations import affirmed, without_idioms
from t2x.prompts.numerals import numbers
from t2x.prompts.spelling import closest
from t2x.prompts.words import NUMBER_WORDS

if TYPE_CHECKING:
    from t2x.world.scene import Scene

__all__ = ["DOMAINS", "domain_named"]

_SMALL_WORDS = """
a an the and of any no not without never nor neither cannot minus but just
"""
_MIN_SLIP = 4  # letters from which a word is taken for a misspelt one
_SIMILAR = 0.75
_MANY_WORDS = 200


class _Tables(NamedTuple):
    plain: dict[
        str, str
    ]  # phrase -> the world's words for it; names of things stand for themselves
    classes: dict[str, str]  # name of a thing, singular or plural -> its class
    kept: frozenset[str]  # stems of other words that say something
    words: tuple[str, ...]  # single words that a misspelt one may have been


def domain_named(name: str) -> Domain:
    """The words of a world by its name; those of "" leave every text as it is."""
    if name not in DOMAINS:
        raise T2XError(f"unknown domain {name!r}; allowed are {sorted(DOMAINS)}")
    return DOMAINS[name]


def _emoji_things(text: str) -> list[str]:
    """Classes of the emoji world that a canonical ``text`` names, the longest name first: a hot dog
    is no dog.
    """
    found = (_phrase(m) for m in _emoji_pattern().finditer(text.casefold()))
    classes = (_emoji_tables().classes.get(phrase) for phrase in found)
    return list(dict.fromkeys(name for name in classes if name is not None))


def _emoji(text: str) -> str:
    """Things, colours, numbers and negations that ``text`` names, in the emoji world's words.

    Small talk around them is left out. A text that names no thing of that world stays as it is.
    """
    tables = _emoji_tables()
    written: list[str] = []
    told = without_idioms(text.casefold())
    for found in _emoji_pattern().finditer(_mended(re.sub(r"\s+", " ", told))):
        word = found.group()
        if found["phrase"]:
            written.append(tables.plain[_phrase(found)])
        elif found["times"]:
            written.append(found["times"].strip("x"))
        elif word in ",.;" or stem(word) in tables.kept or word.endswith(("n't", "n\u2019t")):
            written.append(word)
    return " ".join(written) if any(w in tables.classes for w in written) else text


def _emoji_differs(source: str, answer: str) -> str:
    """Where both texts can be read as scenes: what they tell otherwise of the same things."""
    from t2x.world.captions import plural
    from t2x.world.content import told_otherwise
    from t2x.world.rules import parse

    wanted = parse(without_idioms(source))
    words = affirmed(_emoji(source))
    if wanted is None or not _reads_alike(wanted, words):
        return ""
    # "cats" without a number may be any number of them.
    free = [g.cls for g in wanted.groups if g.count == 1 and f" {plural(g.cls)} " in f" {words} "]
    return told_otherwise(wanted, answer, any_count=free)


def _reads_alike(scene: Scene, words: str) -> bool:
    """Whether the parser read each number and colour of canonical ``words`` once.

    It mends more than the tables do ("coal" is no misspelt "cobalt"), and of "two cats, one red" it
    keeps the last.
    """
    from t2x.world.scene import COLORS

    colors = sorted(word for word in words.split() if word in COLORS)
    counts = {float(g.count) for g in scene.groups if g.count > 1}
    return colors == sorted(g.color for g in scene.groups if g.color is not None) and counts == {
        n for n in numbers(words) if n > 1
    }


def _phrase(found: re.Match[str]) -> str:
    return re.sub(r"[\s-]+", " ", found["phrase"] or "")


def _mended(text: str) -> str:
    """Put the closest word of the world in the place of each misspelt one."""
    if text.count(" ") > _MANY_WORDS:  # spelling is compared pair by pair
        return text
    pattern = rf"(?<![\w'-])[a-z]{{{_MIN_SLIP},}}(?![\w'-])"
    return re.sub(pattern, lambda m: _mended_word(m.group()), text)


@lru_cache(maxsize=4096)
def _mended_word(word: str) -> str:
    return closest(word, _emoji_tables().words, similar=_SIMILAR) or word


@lru_cache(maxsize=1)
def _emoji_tables() -> _Tables:
    from t2x.world import lexicon
    from t2x.world.captions import plural
    from t2x.world.scene import CLASSES, COLORS

    plain = {"nothing like": "no", "half a dozen": "6", "half dozen": "6"}
    classes = {form: name for name in CLASSES for form in (name, plural(name))}
    for name in CLASSES:
        for words in (*lexicon.SYNONYMS[name], *lexicon.RIDDLES[name]):
            plain |= {words: name, lexicon.plural_of(words): plural(name)}
    for color in COLORS:
        plain |= {words: color for words in lexicon.COLOR_SYNONYMS[color]}
        # Bare, such a thing is itself: a kite in the sky need not be blue.
        plain |= {
            f"{said} {thing}": color
            for said in ("colour of", "color of", "coloured like", "colored like")
            for thing in lexicon.COLOR_THINGS[color]
        }
    plain |= {form: form for form in classes}
    plain = {words.replace("-", " "): name for words, name in plain.items()}
    kept = frozenset((*COLORS, *map(stem, NUMBER_WORDS), *_SMALL_WORDS.split()))
    single = {word for phrase in (*plain, *COLORS, *NUMBER_WORDS) for word in phrase.split()}
    return _Tables(plain, classes, kept, tuple(sorted(w for w in single if len(w) >= _MIN_SLIP)))


@lru_cache(maxsize=1)
def _emoji_pattern() -> re.Pattern[str]:
    phrases = sorted(_emoji_tables().plain, key=len, reverse=True)
    known = "|".join(re.escape(p).replace(r"\ ", r"[\s-]") for p in phrases)
    return re.compile(
        rf"(?<![\w'-])(?:(?P<phrase>{known})(?=(?:'s)?(?![\w'-]))|(?P<times>x?\d+x?)(?![\w'-]))"
        r"|[\w'\u2019-]+|[,.;]"
    )


DOMAINS = {"": FREE_ENGLISH, "emoji": Domain(_emoji, _emoji_things, _emoji_differs)}
