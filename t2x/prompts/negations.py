"""What a text rules out, and whether a rewrite still rules it out.

Sentence embeddings can't do this job: "no cat" and "a cat" are nearly the same vector.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from t2x.prompts.forms import content_words, is_plural, letters, noun_of, stem
from t2x.prompts.grammar import ENGLISH, is_english_adjective
from t2x.prompts.languages import grammar_name
from t2x.prompts.synonyms import ABSENCES, share_group
from t2x.prompts.words import COLOUR_FAMILIES, SOFT_COLOURS, STOP_WORDS, words

__all__ = [
    "affirmed",
    "by_family",
    "dropped",
    "lost_negations",
    "mentions",
    "negated",
    "without_idioms",
]

_FILLERS = (
    r"(?:(?:want|wants|show|include|have|has|draw|add|put|see|be|contain|any|a|an|the|of|to|its"
    r"|his|her|their|single"
    r"|one|visible|(?:signs?|traces?|hints?|kind|sort) of|other|depict|using|use|wearing|holding"
    r"|carrying|showing|having|containing|featuring|bearing|looking|staring|gazing"
    r"|facing|touching|at|in|on|with|for|both|either|all|even)\s+)*"
)
_NO = (
    r"(?<![\w-])(?:no|nary|zero|without|not|never|nor|neither|\w+n['\u2019]t|cannot|minus|sans"
    r"|(?:free|devoid"
    r"|empty|bereft|clear|absent|void|stripped|bare|shorn|robbed|rid|cleared|emptied|drained"
    r"|scrubbed"
    r"|relieved|swept (?:clean|clear)|short) of|free from|lacking|lacks|lack of|absence of"
    r"|absent|lost (?:all )?(?:its|his|her|their)|un\w+ by|not so much as|never a|hold the|skip the"
    r"|instead of|rather than|avoid(?:s|ing)?|exclud(?:e|es|ing)|omit(?:s|ting)?|missing"
    rf"|leav(?:e|ing) out|except(?: for)?)\s+{_FILLERS}"
)
_NEGATION = re.compile(rf"{_NO}(?P<words>[\w'-]+(?:\s+[\w'-]+){{0,3}})")
_MORE = re.compile(
    r"\s*,?\s*(?P<link>or|nor|and|,)\s+(?:(?:any|a|an|the|no|other|of"
    r"|even)\s+)*(?P<words>[\w'-]+(?:\s+[\w'-]+){0,2})"
)
_FREE = re.compile(
    r"(?<![\w-])(?P<words>[^\W\d_]+)(?:-free|-less|less)(?![\w-])|(?<![\w-])(?P<none>nobody"
    r"|no[- ]one)(?!\w)"
)
_AFTER = re.compile(
    r"(?<![\w-])(?P<words>[^\W\d_]+) (?:(?:is|are|was|were|being) )?(?:absent|nowhere|missing"
    r"|omitted"
    r"|excluded|removed|left out|not (?:visible|shown|seen|in sight|in view|in frame)"
    r"|out of (?:frame"
    r"|sight|view)|unseen|invisible|cropped out|(?:long )?gone|left behind|left at home"
    r"|laid aside|(?:put|set|cast) aside|discarded|(?:tucked|packed|locked) away|off(?= *(?:[,.;]"
    r"|$))|nowhere to be (?:seen|found)|switched off|turned off"
    r"|taken away|stripped away|hidden)(?! (?:from )?(?:a|an|the|its|his|her|their)\b)"
)
_NOT_LESS = words(
    """
    seam end time flaw price fear help use rest effort count care ruth wire stain bound relent
    regard
    un b nevertheless name age tire breath match worth need hope reck motion speech home law bot
    guile tact taste thought sense value limit ceaseless bess
    """
)
# Negations in form that ask for what follows: "not only", "can't wait to see", "why not".
_NO_NEGATION = re.compile(
    rf"{_NO}(?:only|one but|just|much|many|more|less|fewer|longer|least|matter|sure|problem|doubt"
    rf"|wait"
    r"|forget|omit|miss|skip|exclude|overlook|ignore|worry|get enough|go wrong|without|lacking"
    r"|devoid"
    r"|unlike|leave(?:\s+out)?|(?:help|resist)(?:\s+\w+ing)?)(?!\w)"
    r"|(?<!\w)why (?:not|don['\u2019]t)(?!\w)|(?<!\w)nothing (?:but|except)(?!\w)"
    # "wouldn't a cat be nice", but not "it wouldn't be a cat"
    r"|(?<!\w)wouldn['\u2019]t(?=\s+(?!be\b)[^,.;]{1,80}\b(?:be|look|make)\b)"
)
_FOREIGN = {
    "de": re.compile(
        r"(?<!\w)(?:ohne|kein(?:e[nmrs]?)?|nicht|niemals|weder|noch|frei von|keinerlei|statt)\s+"
        r"(?:(?:ein|eine|einen|einem|einer|jegliche|jeden|irgendwelche|zu|sehen|im|in)\s+)*"
        r"(?P<words>[\w-]+(?:\s+(?:oder|noch|und)\s+[\w-]+)*)|(?<!\w)(?P<free>\w{3,})(?:los"
        r"|frei)(?:e[nmrs]?)?(?!\w)"
    ),
    "es": re.compile(
        r"(?<!\w)(?:sin|ning[uú]n|ninguna|ni|nunca|libres? de|carentes? de|no hay|no tiene|no"
        r"|ausencia de)\s+"
        r"(?:(?:un|una|unos|unas|el|la|los|las|ning[uú]n|ninguna|hay|tiene|lleva|que|se|ven?|haya"
        r"|de)\s+)*"
        r"(?P<words>[\w-]+(?:\s+(?:o|ni|y)\s+[\w-]+)*)"
    ),
    "zh": re.compile(
        r"(?:没有|不要|不含|不带|不包含|没|无|别画|避免|毫无|不见|看不到|看不见|未见|并无|绝无|空无|非)"
        r"(?:任何|一个|一只|一丝|其他)?(?P<words>[^，。、；,.的\s]{1,6})"
    ),
}  # fmt: skip
_FOREIGN_ABSENCES = {
    "de": {"menschenleer": "mensch leut person", "verlassen": "mensch leut person", "leer": "",
           "wolkenlos": "wolk", "kahl": "blatt blätt haar", "barfuß": "schuh", "klar": "wolk",
           "glatzköpfig": "haar", "unbewohnt": "mensch"},
    "es": {"desiert": "gent person nadi", "vací": "", "despejad": "nub",
           "deshabitad": "gent person",
           "solitari": "gent person", "descalz": "zapat", "calv": "pel cabell",
           "abandonad": "gent person", "desnud": "hoj"},
    "zh": {"空无一人": "人", "无人": "人", "空荡": "", "空旷": "", "晴朗": "云", "万里无云": "云",
           "光秃": "", "寸草不生": "", "空空如也": "", "不毛": "", "赤脚": "鞋",
           "光脚": "鞋", "秃头": "头发", "冷清": "人", "寂静": "人"},
}  # fmt: skip


# Says of something that it is not there. With the thing itself not named, it may mean it.
_ABSENT = re.compile(
    r"(?<![\w-])(?:empty|emptied|bare|barren|deserted|abandoned|vacant|vacated|unoccupied|nothing"
    r"|none"
    r"|nobody|nowhere|only|solely|purely|nothing but|alone|gone|missing|absent|absence|lack"
    r"|lacking|void"
    r"|devoid|stripped|naked|plain|blank|untouched|unadorned|unbroken|shaved|shaven|shorn|bald"
    r"|solitary"
    r"|switched off|turned off|pitch-dark|forsaken|desolate|unpeopled|no one|not a (?:soul"
    r"|single))(?![\w-])"
)
_NOTHING = re.compile(r"(?<!\w)nothing(?! (?:but|except|else|more|like|other|less|short)\b)(?!\w)")


@dataclass(frozen=True)
class Scope:
    """A stretch of text that is ruled out, and the word that names it."""

    start: int
    end: int
    word: str

    @property
    def head(self) -> str:
        """Stem of the word."""
        return stem(self.word)


def negated(text: str) -> tuple[str, ...]:
    """Stems of what English ``text`` says is absent: "no red hats on" gives ("hat",)."""
    return tuple(dict.fromkeys(scope.head for scope in _scopes(text.lower())))


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


@lru_cache(maxsize=1024)
def affirmed(text: str, language: str = "en") -> str:
    """``text`` with every negation and what it rules out blanked."""
    if language != "en":
        return _FOREIGN[language].sub(_blank, text)
    text = without_idioms(text)
    for scope in reversed(_scopes(text.lower())):
        text = text[: scope.start] + " " * (scope.end - scope.start) + text[scope.end :]
    return text


@lru_cache(maxsize=1024)
def _scopes(lower: str) -> tuple[Scope, ...]:
    plain = _NO_NEGATION.sub(_blank, lower)
    found: list[Scope] = []
    for match in _NEGATION.finditer(plain):
        if found and match.start() < found[-1].end:
            continue
        found += _listed(plain, match)
    for match in (*_FREE.finditer(plain), *_AFTER.finditer(plain)):
        word = match.group("words") or "person"
        ruled = word in ("person",) or (len(word) > 2 and word not in _NOT_LESS)
        if (
            ruled
            and word not in STOP_WORDS
            and not any(s.start < match.end() and match.start() < s.end for s in found)
        ):
            found.append(Scope(match.start(), match.end(), word))
    return tuple(sorted(found, key=lambda s: s.start))


def _listed(text: str, match: re.Match[str]) -> Iterator[Scope]:
    """The scope of a negator, and of what is listed after it: "no cars, people or dogs"."""
    end = _end_of_words(match, text)
    if end is None:
        return
    yield Scope(match.start(), end[0], end[1])
    at = end[0]
    links: list[tuple[Scope, re.Match[str]]] = []
    while (more := _MORE.match(text, at)) is not None and len(links) < 8:
        named = _end_of_words(more, text)
        if named is None:
            break
        links.append((Scope(more.start("words"), named[0], named[1]), more))
        at = named[0]
    ors = [i for i, (_, more) in enumerate(links) if more.group("link") in ("or", "nor")]
    last = ors[-1] if ors else -1
    for i, (scope, more) in enumerate(links):
        again = re.search(r"(?<!\w)no\s+$", text[more.start() : scope.start])
        bare = more.group("link") == "and" and i == 0 and _stands_alone(text, more, scope)
        if i <= last or again or bare:
            yield scope
        else:
            break


def _stands_alone(text: str, more: re.Match[str], scope: Scope) -> bool:
    """Whether "and people" after "without cars" is one bare plural and nothing more."""
    between = text[more.start() : scope.start]
    word = text[scope.start : scope.end].strip()
    if re.fullmatch(r"\s*and\s+", between) is None or " " in word:
        return False
    return is_plural(word) or re.match(r"\s*(?:[,.;)]|$)", text[scope.end :]) is not None


def _end_of_words(match: re.Match[str], text: str) -> tuple[int, str] | None:
    """Where the words of a scope end and the last of them; None without any."""
    taken: list[re.Match[str]] = []
    for word in re.finditer(r"\S+", match.group("words")):
        token = word.group()
        if token in STOP_WORDS or token in ENGLISH.boundaries or token in _PLACES:
            break
        if taken and re.search(r"(?:ing|ed)$", token) and is_english_adjective(token):
            break
        if taken and token in ENGLISH.verbs:
            break
        taken.append(word)
    if not taken:
        return None
    return match.start("words") + taken[-1].end(), taken[-1].group()


_PLACES = words(
    "near behind under above below beside between around inside outside next nearby anywhere around"
    " visible whatsoever left right either today there present allowed"
)


def mentions(text: str, head: str) -> bool:
    """Whether English ``text`` names the stem ``head``, or a shade of that colour, outside every
    negation.
    """
    told = letters(affirmed(text.lower()))
    return head in {stem(w) for w in told} or by_family(head) in set(map(by_family, told))


def by_family(word: str) -> str:
    """Give a colour by the families it is in, which its synonyms share; other words as they are."""
    families = COLOUR_FAMILIES.get(word, ()) if word not in SOFT_COLOURS else ()
    return f"/{'/'.join(sorted(families))}" if families else word


def lost_negations(original: str, rewrite: str, *, negative: str = "") -> list[str]:
    """Say what ``original`` rules out and ``rewrite`` asks for, or no longer speaks of.

    What the negative prompt names counts as ruled out.
    """
    name = grammar_name(original, rewrite)
    if name != "en":
        return _lost_foreign(original, rewrite, name)
    if _NOTHING.search(original.lower()) and not _says_nothing(rewrite.lower()):
        return ["that there is nothing is lost"]
    wanted = _demanded(original)
    back = [w for w in wanted if _comes_back(rewrite, w)]
    covered = set(content_words(negative))
    gone = [w for w in wanted if w not in back and not _ruled_out(rewrite, w)]
    gone = gone[len(_other_scopes(rewrite, wanted)) :]
    return [f"{w!r} was ruled out and is asked for" for w in back] + [
        f"that there is no {w!r} is lost" for w in gone if stem(w) not in covered
    ]


def dropped(original: str, rewrite: str) -> list[str]:
    """What ``original`` rules out and English ``rewrite`` neither asks for nor rules out: words for
    a negative prompt.
    """
    if grammar_name(original, rewrite) != "en":
        return []
    return [
        w for w in _demanded(original) if not _asked_for(rewrite, w) and not _ruled_out(rewrite, w)
    ]


def _other_scopes(rewrite: str, wanted: list[str]) -> list[str]:
    """What the rewrite rules out beside ``wanted``: with other words it may mean the same."""
    told = {noun_of(w) for w in letters(rewrite.lower())}
    if any(noun_of(w) in told for w in wanted):
        return []
    return [s.word for s in _scopes(rewrite.lower())]


def _says_nothing(lower: str) -> bool:
    told = re.findall(r"[\w-]+", lower)
    return bool(_NOTHING.search(lower)) or any("*" in ABSENCES.get(w, frozenset()) for w in told)


def _demanded(original: str) -> list[str]:
    """Words that are ruled out and not asked for elsewhere in the same prompt."""
    lower = original.lower()
    present = {stem(w) for w in letters(affirmed(lower))}
    shades = set(map(by_family, letters(affirmed(lower))))
    words_of = dict.fromkeys(scope.word for scope in _scopes(lower))
    return [w for w in words_of if stem(w) not in present and by_family(stem(w)) not in shades]


def _comes_back(rewrite: str, word: str) -> bool:
    if mentions(rewrite, stem(word)):
        return True
    return _asked_for(rewrite, word) and not _ruled_out(rewrite, word)


def _asked_for(rewrite: str, word: str) -> bool:
    """Whether the rewrite names it, or a synonym of it."""
    if mentions(rewrite, stem(word)):
        return True
    noun = noun_of(word)
    told = {noun_of(w) for w in letters(affirmed(rewrite.lower()))}
    return any(share_group(noun, other) for other in told if other not in STOP_WORDS)


def _ruled_out(rewrite: str, word: str) -> bool:
    lower, head, noun = rewrite.lower(), stem(word), noun_of(word)
    scopes = _scopes(lower)
    inside = " ".join(lower[s.start : s.end] for s in scopes)
    for other in (*letters(inside), *(s.word for s in scopes)):
        if stem(other) == head or share_group(noun_of(other), noun):
            return True
    if head not in {stem(w) for w in letters(lower)} and _ABSENT.search(lower):
        return True
    for other in re.findall(r"[\w-]+", lower):
        things = ABSENCES.get(other, frozenset())
        if "*" in things or noun in things or head in {stem(t) for t in things}:
            return True
        if other.startswith("un") and len(head) > 2 and stem(other[2:].lstrip("-"))[:5] == head[:5]:
            return True
    return False


def _lost_foreign(original: str, rewrite: str, name: str) -> list[str]:
    wanted = list(_foreign_heads(original, name))
    affirmative = affirmed(rewrite, name).lower()
    ruled = list(_foreign_heads(rewrite, name))
    lost = []
    for head in wanted:
        absences = [
            word
            for word, things in _FOREIGN_ABSENCES[name].items()
            if word in rewrite.lower() and (not things or any(t in head for t in things.split()))
        ]
        absent = bool(absences)
        told = affirmative
        for word in absences:  # "menschenleer" names people only to say that there are none
            told = re.sub(rf"{word}\w*" if name != "zh" else word, _blank, told)
        if re.search(rf"(?<!\w){re.escape(head)}", told) if name != "zh" else head in told:
            lost.append(f"{head!r} was ruled out and is asked for")
        elif not absent and not any(head in other or other in head for other in ruled):
            lost.append(f"that there is no {head!r} is lost")
    return lost


def _foreign_heads(text: str, name: str) -> Iterator[str]:
    for match in _FOREIGN[name].finditer(text.lower()):
        groups = match.groupdict()
        named = groups.get("words") or groups.get("free") or ""
        pieces = [named] if name == "zh" else re.split(r"\s+(?:oder|noch|und|o|ni|y)\s+", named)
        for piece in pieces:
            if name == "zh":
                yield piece[-2:] if len(piece) > 2 else piece
            else:
                yield re.sub(r"(?:innen|en|es|er|as|os|s|n|e|a|o)$", "", piece) or piece
