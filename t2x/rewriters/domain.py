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

from t2x.errors import T2XError
from t2x.prompts.checks import FREE_ENGLISH, Domain
from t2x.prompts.constraints import content_words, stem
from t2x.prompts.words import NUMBER_WORDS

__all__ = ["DOMAINS", "domain_named"]


_SMALL_WORDS = (
    "a",
    "an",
    "the",
    "and",
    "of",
    "any",
    "no",
    "not",
    "without",
    "never",
    "nor",
    "but",
    "just",
)


def domain_named(name: str) -> Domain:
    """The words of a world by its name; those of "" leave every text as it is."""
    if name not in DOMAINS:
        raise T2XError(f"unknown domain {name!r}; allowed are {sorted(DOMAINS)}")
    return DOMAINS[name]


def _emoji_things(text: str) -> list[str]:
    """Words of things and colours of the emoji world in a canonical ``text``."""
    from t2x.world.scene import COLORS

    names = _emoji_tables()[2] | set(map(stem, COLORS))
    return [word for word in content_words(text) if word in names]


def _emoji(text: str) -> str:
    """Things, colours, numbers and negations that ``text`` names, in the emoji world's words.

    Small talk around them is left out. A text that names no thing of that world stays as it is.
    """
    plain, vocabulary, names = _emoji_tables()
    lower = re.sub(r"\s+", " ", text.casefold())
    written = _emoji_pattern().sub(lambda m: plain[m.group()], lower)
    words = re.findall(r"[\w'-]+|[,.;]", written)
    if names.isdisjoint(stem(w) for w in words):
        return text
    return " ".join(w for w in words if stem(w) in vocabulary or w in ",.;")


@lru_cache(maxsize=1)
def _emoji_tables() -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    """Phrase -> the world's words for it, stems that count, stems that name a thing."""
    from t2x.world import lexicon
    from t2x.world.captions import plural
    from t2x.world.scene import CLASSES, COLORS

    plain = {"nothing like": "no"}
    for name in CLASSES:
        for words in (*lexicon.SYNONYMS[name], *lexicon.RIDDLES[name]):
            plain |= {words: name, lexicon.plural_of(words): plural(name)}
    for color in COLORS:
        plain |= {words: color for words in lexicon.COLOR_SYNONYMS[color]}
        plain |= {words: color for words in lexicon.COLOR_THINGS[color]}
    names = frozenset(stem(word) for name in CLASSES for word in name.split())
    return plain, names | {*COLORS, *map(stem, NUMBER_WORDS), *_SMALL_WORDS}, names


@lru_cache(maxsize=1)
def _emoji_pattern() -> re.Pattern[str]:
    phrases = sorted(_emoji_tables()[0], key=len, reverse=True)
    return re.compile(rf"(?<![\w'-])(?:{'|'.join(map(re.escape, phrases))})(?![\w'-])")


DOMAINS = {"": FREE_ENGLISH, "emoji": Domain(_emoji, _emoji_things)}
