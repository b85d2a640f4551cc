"""Forms of English words: crude stems, singulars, and whether two words may name one thing."""

from __future__ import annotations

import re
from functools import lru_cache

from t2x.prompts.synonyms import share_group
from t2x.prompts.words import IRREGULAR_PLURALS, STOP_WORDS, words

__all__ = ["alike", "content_words", "is_plural", "letters", "noun_of", "stem"]

_SHORTEST_STEM = 3
_SHORTEST_PART = 4
_ENDINGS = (
    ("ies", "y"),
    ("sses", "ss"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("ing", ""),
    ("ed", ""),
    ("s", ""),
)
_PLURALS = re.compile(r"(ies|sses|ches|shes|xes|zes|oes|s)$")
_SINGULAR = {"ies": "y", "sses": "ss", "ches": "ch", "shes": "sh", "xes": "x", "zes": "z"}
_NO_PLURALS = words(
    """
    glasses jeans trousers pants shorts scissors clothes series species news lens bus gas
    canvas grass glass dress cross moss boss christmas compass atlas iris pizza oasis tennis
    chess harness princess actress waitress walrus cactus octopus fungus circus campus virus
    bonus lotus hummus citrus platypus hippopotamus asparagus crocus its this was has is as us
    yes always perhaps thus tropics ethos chaos cosmos brass mattress fortress wilderness
    business darkness happiness sickness abyss mass pass class kiss loss across toes shoes
    """
)


def letters(text: str) -> list[str]:
    """Words of ``text``, with what stands after an apostrophe."""
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


@lru_cache(maxsize=8192)
def noun_of(word: str) -> str:
    """Singular of a lower-case noun: "cats" and "cat's" give "cat", "knives" "knife"."""
    word = word.replace("\u2019", "'").removesuffix("'s").removesuffix("'")
    if word in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[word]
    if word.endswith(("shelves", "wolves", "leaves", "loaves", "calves", "thieves")):
        return f"{word[:-3]}f"
    if word in ("shoes", "toes"):
        return word[:-1]
    if word in _NO_PLURALS or word.endswith(("ss", "us", "is")) or len(word) <= _SHORTEST_STEM:
        return word
    found = _PLURALS.search(word)
    if found is None:
        return word
    ending = found.group(1)
    if ending == "oes":
        return word[:-2]
    if ending == "ies" and len(word) <= 4:  # pies, ties
        return word[:-1]
    return word[: found.start()] + _SINGULAR.get(ending, "")


def is_plural(word: str) -> bool:
    """Whether a lower-case noun stands in the plural; "sheep" and "deer" don't tell."""
    return noun_of(word) != word.removesuffix("'s") and not word.endswith("'s")


@lru_cache(maxsize=16384)
def alike(one: str, two: str) -> bool:
    """Whether two singular nouns may name one thing: forms, spellings, compounds, synonyms."""
    if one == two or share_group(one, two):
        return True
    from t2x.prompts.spelling import closest, is_part, root

    if root(stem(one)) == root(stem(two)):
        return True
    short, long = sorted((one, two), key=len)
    if len(short) >= _SHORTEST_PART and is_part(short, long) and long.endswith(short):
        return True
    return len(short) > _SHORTEST_PART and bool(
        closest(short, [long], similar=0.8) or closest(long, [short], similar=0.8)
    )
