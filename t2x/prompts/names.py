"""Proper names of a prompt, and whether a rewrite still has them.

A name is known by its capitals inside a sentence, by its form (iPhone, R2-D2, NASA), or from a
small list of famous ones, so that "pikachu" and a name that begins the prompt count too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from t2x.prompts.famous import (
    CHINESE_NAMES,
    FAMOUS,
    FAMOUS_PHRASES,
    OTHER_NAMES,
    TOWNS,
)
from t2x.prompts.forms import is_plural, noun_of
from t2x.prompts.grammar import ENGLISH, is_english_adjective
from t2x.prompts.languages import grammar_name
from t2x.prompts.quotes import quoted
from t2x.prompts.spelling import rank_of
from t2x.prompts.synonyms import is_known, share_group
from t2x.prompts.words import COLOUR_FAMILIES, NUMBER_WORDS, STOP_WORDS, words

__all__ = ["lost_names", "names"]

_WORD = (
    r"(?:[A-Z\u00c0-\u00de][\w\u2019']*(?:[-&.][A-Z\u00c0-\u00de0-9][\w']*)*\.?"
    r"|[a-z]+[A-Z]\w*|[A-Z]+\d[\w-]*)"
)
_INNER = (
    r"(?:of(?: the)?|the|de la|de las|de los|del?|da|di|dos|van der|van den|van|von der|von"
    r"|le|la|el|al|bin|&|und|y)"
)
_NAME = re.compile(
    rf"(?<![\w'\u2019-]){_WORD}(?:[ -](?:{_INNER} )?(?:{_WORD}|\d{{1,4}}(?!\w)))*(?!\w)"
)
_ABBREVIATIONS = {
    "mt": "mount", "st": "saint", "dr": "doctor", "nyc": "newyorkcity", "la": "losangeles",
    "usa": "unitedstates", "us": "unitedstates", "uk": "unitedkingdom", "ny": "newyork",
    "sf": "sanfrancisco", "mr": "mister", "prof": "professor", "pres": "president",
    "dc": "washington", "bros": "brothers", "ft": "fort", "jfk": "kennedy",
}  # fmt: skip
_TITLES = words(
    "mr mrs ms miss dr sir lady lord king queen prince princess president pope saint doctor"
    " mister professor captain general emperor empress the a an stadt herr frau doktor konig"
    " konigin prinz prinzessin senor senora don dona rey reina graf"
)
_GENERIC = words(
    """
    city tower bridge mount mountain lake river castle street square park museum building wall gate
    palace cathedral temple island islands mountains house church station avenue opera basilica
    beach bay canyon falls desert ocean sea valley forest hotel theatre theater university center
    centre market gardens garden statue column great of the place plaza road
    """
)
_TECHNICAL = words(
    """
    hdr raw uhd hd 4k 8k 3d 2d cgi rgb ai vhs tv dslr dof ufo png jpg psd svg pbr vfx sfx iso fx usb
    led lcd dvd cd diy ok am pm i i'm i'd i'll i've ui ux fps pov vr ar nsfw sfw b&w bw
    """
)
_PERIODS = words(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june
    july august september october november december
    """
)
_COMMON_RANK = 25_000  # what is more frequent than this is rather no name
_LIKE = re.compile(r"[- ](?:like|style|inspired|esque|lookalike|look-alike|impersonator)(?!\w)")
_ROLES = words(
    "nurse singer dancer painter writer poet actress actor queen princess waitress teacher doctor"
    " farmer baker sailor soldier model widow maid clerk student cat dog horse cow doll"
)
_SHORT = {"bill": "william", "bob": "robert", "jim": "james", "jack": "john", "harry": "henry",
          "liz": "elizabeth", "beth": "elizabeth", "tony": "anthony", "ted": "theodore",
          "charlie": "charles", "tom": "thomas", "mike": "michael", "dave": "david",
          "abe": "abraham", "andy": "andrew", "kate": "katherine", "leo": "leonardo"}  # fmt: skip
_NO_NAME = words("portrait photo painting picture image drawing sketch illustration close-up view")


def names(text: str) -> list[str]:
    """Proper names of ``text`` as written, in order, without repeats; quoted text has none."""
    code = grammar_name(text)
    for inner in quoted(text):
        text = text.replace(inner, " ")
    if code == "zh":
        return list(dict.fromkeys(m.strip("\u300a\u300b") for m in CHINESE_NAMES.findall(text)))
    found = [*_capitalised(text, code), *FAMOUS_PHRASES.findall(text), *_famous(text)]
    kept = [n for n in found if not any(n != m and n.lower() in m.lower() for m in found)]
    return list(dict.fromkeys(kept))


def _capitalised(text: str, code: str) -> Iterator[str]:
    tokens = re.findall(r"[^\W\d_][\w'\u2019-]*", text)
    capitals = sum(t[0].isupper() for t in tokens)
    if len(tokens) > 3 and capitals > 0.7 * len(tokens):  # a title, or shouting
        return
    for match in _NAME.finditer(text):
        starts = _starts_sentence(text, match.start())
        parts = match.group().rstrip(".").split()
        while parts and (starts or _is_common(parts[0])) and _leads(parts, starts=starts):
            parts, starts = parts[1:], False
        while parts and parts[-1].lower() in ENGLISH.of | {"the", "&"}:
            parts = parts[:-1]
        name = re.sub(r"['\u2019]s?$", "", " ".join(parts))
        if name and not _is_noise(name) and _counts_as_name(name, text, match, starts, code):
            yield name


def _starts_sentence(text: str, at: int) -> bool:
    return re.search(r"(?:^|[.!?:\n]\s+|^\W+)$", text[:at]) is not None


def _is_common(word: str) -> bool:
    return word.lower() in STOP_WORDS or word.lower() in NUMBER_WORDS


def _leads(parts: Sequence[str], *, starts: bool) -> bool:
    """Whether the first word only has its capital from the start of the sentence."""
    word = parts[0].lower()
    if _is_common(parts[0]) or word in _NO_NAME or word in ENGLISH.boundaries:
        return True
    if not starts or word in FAMOUS or not word.isalpha():
        return False
    if len(parts) == 1:
        return _is_plain(word)
    plain = word in COLOUR_FAMILIES or is_english_adjective(word)
    return plain and parts[1].lower() not in _GENERIC


def _is_plain(word: str, *, ranked: bool = True) -> bool:
    """Whether a word that begins a sentence has its capital from there: "Kittens", "Sunset"."""
    noun = noun_of(word)
    if (
        is_known(noun)
        or is_plural(word)
        or is_english_adjective(word)
        or word in ENGLISH.verbs | _NO_NAME
    ):
        return True
    if not ranked:
        return False
    rank = rank_of(word)
    return rank is not None and rank < _COMMON_RANK


def _is_noise(name: str) -> bool:
    lower = name.lower()
    return lower in _TECHNICAL or lower in _PERIODS or _is_common(name) or len(name) < 2


def _counts_as_name(name: str, text: str, match: re.Match[str], starts: bool, code: str) -> bool:
    if code != "de":
        return True
    # German writes every noun with a capital.
    before = re.findall(r"[\w-]+", text[: match.start()])
    alone = bool(before) and before[-1].lower() in ("in", "nach")
    return " " in name or name.lower() in FAMOUS or (alone and not starts) or name.isupper()


def _famous(text: str) -> Iterator[str]:
    for match in re.finditer(r"[^\W\d_][\w'-]*", text):
        if _folded(match.group()) in FAMOUS:
            yield re.sub(r"'s$", "", match.group())


def lost_names(original: str, rewrite: str) -> list[str]:
    """Say which names of ``original`` the rewrite does not have; of a person, the last name is
    enough, but not under another first name.
    """
    return [
        f"the name {name!r} is lost"
        for name in names(original)
        if not _has(rewrite, name, original)
    ]


@lru_cache(maxsize=4096)
def _folded(text: str) -> str:
    """Lower case, without accents, apostrophes and points."""
    flat = unicodedata.normalize("NFKD", text.lower().replace("\u2019", "'"))
    return re.sub(r"'s?(?!\w)|[.'\u0300-\u036f]", "", flat)


def _has(rewrite: str, name: str, original: str) -> bool:
    if re.search(r"[\u4e00-\u9fff]", name):
        return name in rewrite
    told = _spelt(re.findall(r"[^\W_]+", _folded(rewrite)))
    numeral = name.endswith(" I")  # a king's, not the word
    parts = [
        p
        for p in _spelt(re.findall(r"[^\W_]+", _folded(name)))
        if p not in STOP_WORDS or (numeral and p == "i")
    ]
    if not parts:  # of small words alone: "A_"
        return name in rewrite
    while len(parts) > 1 and parts[0] in _TITLES:
        parts = parts[1:]
    if _is_compared(rewrite, parts) and not _is_compared(original, parts):
        return False
    if _renamed(rewrite, name) and not _renamed(original, name):
        return False
    own = _own_words(parts)
    if _only_small(rewrite, own, name):
        return False
    if "".join(parts) in _runs(told):
        return True
    exact = len(own) < len(parts) or len(parts) == 1 or any(c.isdigit() for c in name)
    placed = parts[-1] in _GENERIC or parts[0] in _WHOLE or " of " in name.lower()
    if exact or placed or _NUMERAL.fullmatch(parts[-1].upper()):
        return bool(own) and all(_known(p, told) for p in own)
    if _names_a_place(rewrite, parts[-1]) or not _is_capital(rewrite, parts[-1]):
        return False
    return _known(parts[-1], told) and not _other_first_name(rewrite, parts)


def _names_a_place(rewrite: str, last: str) -> bool:
    """Whether a person's last name is only told of a place: "a Washington street"."""
    found = re.findall(rf"(?<!\w){re.escape(last)} (\w+)", _folded(rewrite))
    times = len(re.findall(rf"(?<!\w){re.escape(last)}(?!\w)", _folded(rewrite)))
    return times > 0 and sum(word in _GENERIC - STOP_WORDS for word in found) == times


def _is_capital(rewrite: str, last: str) -> bool:
    """Whether a last name that is a word as well stands with a capital, where any word does."""
    if not re.search(r"(?<=\w )[A-Z]", rewrite) or not _is_plain(last):
        return True
    return any(w[0].isupper() and _folded(w) == last for w in re.findall(r"[^\W_]+", rewrite))


_DROPPABLE = words(
    "city river mountain mountains island islands ocean sea desert lake mount volcano"
)
_WHOLE = words(
    "mona new north south east west san santa saint los las el la rio costa puerto hong sri port"
    " fort"
    " cape"
    " united great upper lower old little big super star red black white blue green golden"
)
_NUMERAL = re.compile(r"[IVX]+")


def _runs(told: Sequence[str]) -> set[str]:
    """Every one to five words in a row, written as one: "New York City" as "newyorkcity"."""
    return {"".join(told[i : i + n]) for i in range(len(told)) for n in range(1, 6)}


def _own_words(parts: Sequence[str]) -> list[str]:
    """What is left of a place's name without what kind of place it is: "Fuji", "Golden Gate"."""
    own = list(parts)
    if len(own) > 1 and own[-1] in _DROPPABLE:
        own = own[:-1]
    if len(own) > 1 and own[0] in _DROPPABLE:
        own = own[1:]
    return own


def _only_small(rewrite: str, own: Sequence[str], name: str) -> bool:
    """Whether words of a capitalised name of several stand scattered and without capitals."""
    if not name[0].isupper() or not rewrite[:1].isupper():
        return False
    found = [w for w in re.findall(r"[^\W_]+", rewrite) if _folded(w) in own]
    capitals = [
        m.group()
        for m in re.finditer(r"[^\W_]+", rewrite)
        if _folded(m.group()) in own and m.group()[0].isupper()
    ]
    return bool(found) and not capitals


def _renamed(rewrite: str, name: str) -> bool:
    """Whether a place's name is now someone's: "a girl called Sydney", "Florence, a nurse"."""
    if _folded(name) not in FAMOUS or " " in name:
        return False
    if _folded(name) in TOWNS and _in_other_name(rewrite, name):
        return True
    called = rf"(?:called|named) {re.escape(name)}(?!\w)"
    who = rf"(?<!\w){re.escape(name)}, an? ([a-z-]+)(?: ([a-z]+))?"
    if re.search(called, rewrite):
        return True
    told = (word for found in re.findall(who, rewrite) for word in found if word)
    return any(share_group("person", w) or w in _ROLES for w in told)


def _in_other_name(rewrite: str, name: str) -> bool:
    """Whether a town's name is only a part of another name: "Paris Hilton", "Michael Jordan"."""
    found = list(re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", rewrite, re.IGNORECASE))
    return bool(found) and all(
        _is_other(re.match(r"\s([A-Z]\w+)", rewrite[m.end() :]))
        or (
            _is_other(found_before := re.search(r"([A-Z]\w+)\s$", rewrite[: m.start()]))
            and found_before is not None
            and not (
                _starts_sentence(rewrite, found_before.start(1))
                and _is_plain(found_before.group(1).lower(), ranked=False)
            )
        )
        for m in found
    )


def _is_other(found: re.Match[str] | None) -> bool:
    return found is not None and found.group(1).lower() not in _GENERIC | _TITLES | STOP_WORDS


def _spelt(found: Sequence[str]) -> list[str]:
    full = (_ABBREVIATIONS.get(word, word) for word in found)
    return [OTHER_NAMES.get(word, word) for word in full]


def _known(part: str, told: Sequence[str]) -> bool:
    """Whether a word is ``part``, or its adjective: "Japan" and "Japanese"."""
    return any(
        word in (part, f"{part}s", _ADJECTIVES.get(part))
        or _is_adjective_of(word, part)
        or _is_adjective_of(part, word)
        for word in told
    )


def _is_adjective_of(word: str, part: str) -> bool:
    if len(part) < 4 or len(word) <= len(part) - 2:
        return False
    same = next((i for i, (a, b) in enumerate(zip(word, part, strict=False)) if a != b), len(part))
    return same >= max(3, len(part) - 2) and word[same:] in _ENDINGS


_ENDINGS = words("ese ish ian ean an n ic i er ien esque iana ns ians ans")
_ADJECTIVES = {
    "france": "french", "spain": "spanish", "greece": "greek", "wales": "welsh",
    "netherlands": "dutch", "england": "english", "scotland": "scottish", "ireland": "irish",
    "denmark": "danish", "poland": "polish", "switzerland": "swiss", "venice": "venetian",
    "naples": "neapolitan", "florence": "florentine", "vienna": "viennese", "moscow": "muscovite",
}  # fmt: skip


def _is_compared(text: str, parts: Sequence[str]) -> bool:
    return any(
        re.search(rf"(?<!\w){re.escape(p)}$", _folded(text[: m.start()]).strip())
        for m in _LIKE.finditer(text)
        for p in parts
    )


def _other_first_name(rewrite: str, parts: Sequence[str]) -> bool:
    """Whether the last name stands after a capitalised word that is not in the name."""
    pattern = rf"([A-Z\u00c0-\u00de][\w'-]+) {re.escape(parts[-1])}(?!\w)"
    for match in re.finditer(pattern, rewrite, re.IGNORECASE):
        first = match.group(1)
        starts = _starts_sentence(rewrite, match.start())
        same = {_SHORT.get(p, p) for p in (*parts, *(p[:4] for p in parts))}
        own = _folded(first)
        if first[0].isupper() and not {_SHORT.get(own, own), own, own[:4]} & {*same, *parts}:
            plain = starts and _is_plain(first.lower(), ranked=False)
            return not plain and first.lower() not in STOP_WORDS | _TITLES
    return False
