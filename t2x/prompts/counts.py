"""Numbers bound to things: "three cats and two dogs" is not kept by "two cats and three dogs"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from t2x.prompts import chinese
from t2x.prompts.forms import alike, noun_of
from t2x.prompts.grammar import Grammar
from t2x.prompts.grammars import GRAMMARS
from t2x.prompts.languages import grammar_name
from t2x.prompts.negations import affirmed
from t2x.prompts.phrases import Phrase, Text, read
from t2x.prompts.synonyms import GENERIC, is_known, share_group
from t2x.prompts.words import words

__all__ = ["lost_counts"]

_RELATED = words(
    """
    friend lover wife husband brother sister mother father son daughter partner twin
    """
)
_ORDINALS = {"third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "extra": 99, "more": 99}
# "Ein Katzenpaar"
_GERMAN_GROUPS = {2: ("paar", "pärchen", "duo"), 3: ("trio",), 4: ("quartett",), 12: ("dutzend",)}
_SECONDS = words(
    """
    other another second twin companion partner mate playmate double counterpart sister otro otra
    zweite zweiter zweites zweiten
    """
)
_GROUPS = {"duo": 2, "pair": 2, "couple": 2, "trio": 3, "quartet": 4, "quintet": 5, "sextet": 6}


def lost_counts(original: str, rewrite: str) -> list[str]:
    """Say which numbers of ``original`` are not kept of the same things in ``rewrite``.

    Kept is a number in digits or words, by a name for it ("a pair of"), or as that many things told
    one by one ("a black cat and a white cat").
    """
    name = grammar_name(original, rewrite)
    if name == "zh":
        return chinese.lost_counts(original, rewrite)
    grammar = GRAMMARS[name]
    source = read(affirmed(original, name), grammar).phrases
    told = read(affirmed(rewrite, name), grammar)
    return list(dict.fromkeys(_lost(source, told, grammar)))


def _lost(source: Sequence[Phrase], told: Text, grammar: Grammar) -> Iterator[str]:
    for phrase in source:
        if phrase.number is None or phrase.kind == "other" or not phrase.head:
            continue
        same = [p for p in told.phrases if p.head and matches(phrase, p, grammar)]
        if phrase.number == (1, 1):
            if reason := _no_longer_one(phrase, source, same, grammar):
                yield reason
        elif not _kept(phrase, same, told, source, grammar):
            yield f"the number {_shown(phrase.number)} of {phrase.words[-1]!r} is lost"


def matches(one: Phrase, two: Phrase, grammar: Grammar) -> bool:
    """Whether both phrases may name the same things."""
    if grammar.name != "en":
        short, long = sorted((one.head, two.head), key=len)
        return short == long or (
            len(short) >= 4 and (long.endswith(short) or long.startswith(short))
        )
    return alike(one.head, two.head) or _compound(one) == _compound(two) != ""


def _compound(phrase: Phrase) -> str:
    """The last two words written as one: "wine glass" as "wineglass"."""
    return "".join(phrase.words[-2:]).replace("-", "") if phrase.words else ""


def _shown(number: tuple[float, float]) -> str:
    return f"{number[0]:g}" if number[0] == number[1] else f"{number[0]:g} or more"


def _within(number: tuple[float, float], wanted: tuple[float, float]) -> bool:
    return wanted[0] <= number[0] and number[1] <= wanted[1]


def _no_longer_one(
    phrase: Phrase, source: Sequence[Phrase], same: Sequence[Phrase], grammar: Grammar
) -> str:
    """Why one thing is not one any more: the rewrite tells of several and never of one."""
    if phrase.plural:  # "a pair of glasses"
        return ""
    fits = [p for p in same if p.number is None or _within(p.number, (1, 1))]
    single = [p for p in fits if not p.plural]
    strict = bool({"single", "lone", "solitary", "sole", "1", "exactly"} & set(phrase.words)) or (
        phrase.kind == "bare"
    )
    if not same or single or any(matches(phrase, p, grammar) for p in source if p is not phrase):
        return ""
    same = [p for p in same if p.head == phrase.head or grammar.name != "en"]
    if not same:
        return ""
    several = [p for p in same if p.number is not None and p.number[0] > 1]
    if several or (strict and fits) or all(p.plural for p in same):
        return f"one {phrase.head!r} became several"
    return ""


def _kept(
    phrase: Phrase,
    same: Sequence[Phrase],
    told: Text,
    source: Sequence[Phrase],
    grammar: Grammar,
) -> bool:
    wanted = phrase.number or (0, 0)
    numbers = [p.number for p in same if p.number is not None]
    extra = _has_more(same, wanted)
    had_extra = _has_more([p for p in source if p.head and matches(phrase, p, grammar)], wanted)
    total = sum(n[0] for n in numbers)
    if any(_within(n, wanted) for n in numbers):
        of_same = (p.number[0] for p in same if p.number and p.head == phrase.head)
        return max(of_same, default=0) <= wanted[1] and not (extra and not had_extra)
    if numbers and _within((total, total), wanted):
        return True
    singles = [
        p
        for p in same
        if p.number in (None, (1, 1)) and not p.plural and p.kind in ("bare", "indefinite")
    ]
    further = bool(singles) and bool(_SECONDS & set(told.tokens))  # "and their white companion"
    if wanted[0] > 1 and wanted[0] in (len(singles), len(singles) + further):
        return True
    if _grouped(phrase, same, told, grammar):
        return True
    if same and not numbers and _sum_after_colon(told) == wanted[0]:
        return True
    if any(_is_apposed(p, same, told) for p in told.phrases if p.number == wanted):
        return True
    if grammar.name == "de" and any(
        token.endswith(_GERMAN_GROUPS.get(int(wanted[0]), ("\n",)))
        and token.startswith(phrase.head[:4])
        for token in told.tokens
    ):
        return True
    if (
        wanted == (2, 2)
        and total <= 1
        and _SECONDS & set(told.tokens)
        and "third" not in told.tokens
        and (same and not any(p.plural for p in same))
    ):
        return True
    if any(_ORDINALS.get(token) == wanted[0] for token in told.tokens) and total <= wanted[0]:
        return True
    own = [p for p in same if p.head == phrase.head and p.number is not None]
    if not own and _listed(told, int(wanted[0])):
        return True
    if wanted[1] > wanted[0] and any(p.plural and p.number is None for p in same):
        return wanted[0] <= 3 or any(n[0] >= wanted[0] for n in numbers)
    return _floating(phrase, same, told, source, grammar)


def _grouped(phrase: Phrase, same: Sequence[Phrase], told: Text, grammar: Grammar) -> bool:
    """ "A canine duo", "two rows of five soldiers", "a black and a white cat"."""
    wanted, tokens = (phrase.number or (0, 0))[0], told.tokens
    for i, token in enumerate(tokens[1:], 1):
        if _GROUPS.get(token) == wanted and alike(noun_of(tokens[i - 1]), phrase.head):
            return True
    for p in same:
        before = [*tokens[max(p.start - 4, 0) : p.start]]
        if p.number and before[-1:] == ["of"]:
            rows = (q.number for q in told.phrases if q.end == p.start - 1 and q.number)
            if any(n[0] * p.number[0] == wanted for n in rows):
                return True
        two = wanted == 2 and p.kind == "indefinite" and not p.plural and len(before) > 2
        if two and before[-1] in grammar.conjunctions and before[-3] in grammar.ones:
            return not any(q.head and q.end == p.start - 1 for q in told.phrases)
    return False


def _sum_after_colon(told: Text) -> float:
    """Sum of the numbers after a colon: "wolves: two old ones and two cubs"."""
    if ":" not in told.tokens:
        return 0.0
    start = told.tokens.index(":")
    stop = next((i for i in range(start, len(told.tokens)) if told.tokens[i] in ".;"), 10**6)
    inside = (p.number for p in told.phrases if start < p.start < stop and p.kind != "part")
    return sum(n[0] for n in inside if n is not None)


def _is_apposed(counted: Phrase, same: Sequence[Phrase], told: Text) -> bool:
    """ "Seven bearded miners, dwarfs with lanterns": the number is told of another name of them."""
    return any(
        p.plural
        and p.number is None
        and p.kind == "bare"
        and list(told.tokens[counted.end : p.start]) == [","]
        for p in same
    )


def _has_more(same: Sequence[Phrase], wanted: tuple[float, float]) -> bool:
    """Whether one more is told of: "another dog", "a third dog" of two."""
    further = any(_ORDINALS.get(w, 0) > wanted[1] for p in same for w in p.words)
    single = any(p.number == (1, 1) and p.kind != "other" for p in same)
    return further or (any(p.kind == "other" for p in same) and not single)


def _listed(told: Text, size: int) -> bool:
    """Whether ``size`` single things are told in a row: "an apple, a pear and a fig"."""
    row, last = 0, None
    for p in told.phrases:
        if not p.head or p.kind == "part":
            continue
        gap = () if last is None else told.tokens[last.end : p.start]
        joined = last is None or (len(gap) < 5 and {",", "and"} & set(gap))
        single = p.number == (1, 1) and not p.plural
        row = (row + 1 if joined else 1) if single else 0
        if row == size > 1:
            return True
        last = p
    return False


def _counts_what_was_told(phrase: Phrase, tokens: Sequence[str]) -> bool:
    """Whether a bare number is one of things: "three of them", "cats, three in all", not "at 3"."""
    if tokens[phrase.start] in ("a", "the", "all") and phrase.end - phrase.start > 1:  # "a pair"
        return True
    before = tokens[phrase.start - 1] if phrase.start else ""
    after = [*tokens[phrase.end : phrase.end + 2], "", ""]
    counted = after[0] in (
        "of",
        "altogether",
        "total",
        "all",
        "strong",
        "together",
        "them",
        "de",
        "von",
    )
    counted = counted or (before == "of" and not after[0].isalnum())  # "a gang of five in a"
    in_all = after[0] in ("<in", "<over") and after[1] in ("total", "all", "number")
    alone = (
        not before.isalnum()
        and before[:1] not in "<@"
        and not after[0].isalnum()
        and (after[0][:1] not in ("<", "@"))
    )
    return counted or in_all or alone


def _floating(
    phrase: Phrase,
    same: Sequence[Phrase],
    told: Text,
    source: Sequence[Phrase],
    grammar: Grammar,
) -> bool:
    """Whether the number is told of no other thing: "cats, three of them", "3 felines"."""
    wanted, tokens = phrase.number or (0, 0), told.tokens
    for p in told.phrases:
        if p.number is None or p.number == (1, 1) or not _within(p.number, wanted):
            continue
        if p.head in GENERIC or (not p.head and _counts_what_was_told(p, tokens)):
            return True
        elsewhere = any(q.head and matches(q, p, grammar) for q in source)
        strange = grammar.name == "en" and is_known(phrase.head) and is_known(p.head)
        if not elsewhere and not same and not strange:
            return True
    return wanted == (2, 2) and _two_persons(phrase, told)


def _two_persons(phrase: Phrase, told: Text) -> bool:
    """Whether "a man and his wife" are the two persons that the prompt calls otherwise."""
    persons = [
        p
        for p in told.phrases
        if any(share_group("person", noun_of(w)) or w in _RELATED for w in (p.head, *p.words[-2:]))
    ]
    single = [p for p in persons if not p.plural]
    are_persons = share_group("person", phrase.head) or not is_known(phrase.head)
    return len(single) == len(persons) == 2 and are_persons
