"""Puts protected spans into a model's answer: stand-ins by name, weighted phrases by their words.

Everything is found first and spliced in once, so that what one span holds is never searched for
the next; one pass over the answer serves all phrases.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.prompts.quotations import QUOTE_MARKS, SPACELESS, WORD

if TYPE_CHECKING:
    from t2x.prompts.spans import Region, Span

__all__ = [
    "missing_phrases",
    "occurrences",
    "restore_region",
    "stand_in_name",
    "stand_ins_in",
    "without_stand_ins",
]

Phrase: TypeAlias = "tuple[str, ...]"
Place: TypeAlias = "tuple[int, int]"
Splice: TypeAlias = "tuple[int, int, int, str]"  # start, end, number of the span, its text

_TOKEN = re.compile(rf"{WORD}+|[{SPACELESS}]|[^\w\s]")
_PLAIN_BRACKET = re.compile(r"(?<!\\)[()]")
_CLOSING_MARK = re.compile(rf"([.,;:!?]?)[{re.escape(QUOTE_MARKS)}]")
_LONGEST_PHRASE = 256  # tokens; a longer phrase is not looked for, and goes to the end
_END = ""
_FEW = 4
_ENDS = tuple(".!?,;:")  # a comma adds nothing to these


def stand_in_name(name: str, text: str) -> str:
    """``name``, with as many X behind it as make sure that ``text`` holds none of its numbers."""
    taken = re.findall(rf"{name}(X*)[0-9]", text, re.IGNORECASE)
    return name + "X" * (1 + max(map(len, taken)) if taken else 0)


def stand_ins_in(names: Iterable[str], text: str) -> list[str]:
    """Everything in ``text`` that looks like a stand-in of one of ``names``, or like "Text 2", as
    small models spell one that they make up.
    """
    return re.findall(rf"(?<!{WORD})(?:{'|'.join(names)})[ _-]?[0-9]+", text, re.IGNORECASE)


def without_stand_ins(names: Iterable[str], text: str) -> str:
    """``text`` with a blank for everything that looks like a stand-in of one of ``names``."""
    return re.sub(rf'"?(?:{"|".join(names)})[0-9]+"?', " ", text, flags=re.IGNORECASE)


def restore_region(region: Region, answer: str, *, escape: bool) -> str:
    """Splice the spans of ``region`` into ``answer``; with ``escape``, its own parentheses get a
    backslash.
    """
    answer = answer.strip()

    def own(text: str) -> str:
        return _PLAIN_BRACKET.sub(r"\\\g<0>", text) if escape else text

    parts: list[str] = []
    told: set[int] = set()
    at = 0
    for start, end, number, text in sorted(
        [*_stand_ins(region.spans, answer), *_phrases(region, answer)]
    ):
        if start >= at:
            parts += (own(answer[at:start]), text)
            told.add(number)
            at = end
    parts.append(own(answer[at:]))
    whole = "".join(parts)
    first = ""
    for number, span in enumerate(region.spans):
        if number in told or span.form == "item":
            continue
        if span.leading and span.form == "tag":
            first += span.text + (", " if span.comma else " ")
        else:
            comma = span.comma or span.form == "phrase"
            whole += (", " if comma and whole[-1:] not in _ENDS else " ") + span.text
    return (first + whole).strip()


def _stand_ins(spans: Sequence[Span], answer: str) -> list[Splice]:
    """Where the stand-ins of ``spans`` are, every time; quotation marks around one belong to it."""
    known = {
        span.stand_in.strip('"').lower(): number
        for number, span in enumerate(spans)
        if span.form == "item"
    }
    if not known:
        return []
    names = "|".join(sorted({name.rstrip("0123456789") for name in known}))
    found: list[Splice] = []
    for match in re.finditer(rf"(?<!{WORD})(?:{names})[0-9]+(?!{WORD})", answer, re.IGNORECASE):
        number = known.get(match.group().lower())
        if number is None:
            continue
        (start, end), text = match.span(), spans[number].text
        closing = _CLOSING_MARK.match(answer, end) if spans[number].kind == "quote" else None
        if closing and start and answer[start - 1] in QUOTE_MARKS:
            # "TEXT1," as American printers do: the comma comes after.
            start, end, text = start - 1, closing.end(), text + closing.group(1)
        found.append((start, end, number, text))
    return found


def _phrases(region: Region, answer: str) -> list[Splice]:
    """Where the words of weighted and escaped spans are in ``answer``.

    If it says a phrase as often as the source did, each span goes where it was among them: the
    second cat stays the one that is stressed. Otherwise the first mentions are taken.
    """
    numbers = _by_phrase(region.spans)
    if not numbers:
        return []
    here = _find(numbers, answer)
    before = _find(numbers, region.source)
    found: list[Splice] = []
    for phrase, own in numbers.items():
        starts = {region.spans[number].at for number in own}
        order = [i for i, (start, _) in enumerate(before[phrase]) if start in starts]
        places = here[phrase]
        if len(order) == len(own) and len(places) == len(before[phrase]):
            places = [places[i] for i in order]
        found += (
            (start, end, number, region.spans[number].text)
            for number, (start, end) in zip(own, places, strict=False)
        )
    return found


def missing_phrases(spans: Sequence[Span], answer: str) -> list[Span]:
    """Those weighted spans whose words ``answer`` says less often than there are spans."""
    numbers = _by_phrase(spans)
    found = _find(numbers, answer)
    return [
        spans[number]
        for phrase, own in numbers.items()
        for number in own[len(found[phrase]) :]
        if spans[number].kind == "weight"
    ]


def _by_phrase(spans: Sequence[Span]) -> dict[Phrase, list[int]]:
    numbers: dict[Phrase, list[int]] = {}
    for number, span in enumerate(spans):
        if span.form == "phrase":
            phrase = tuple(_TOKEN.findall(span.stand_in.casefold()))
            numbers.setdefault(phrase, []).append(number)
    return numbers


def _find(phrases: Iterable[Phrase], text: str) -> dict[Phrase, list[Place]]:
    """Places of ``phrases`` in ``text``, whatever its capitals and blanks; the longest one that
    begins at a token is taken, and none overlap.
    """
    tree: dict[str, Any] = {}
    for phrase in phrases:
        if 0 < len(phrase) <= _LONGEST_PHRASE:
            leaf = tree
            for token in phrase:
                leaf = leaf.setdefault(token, {})
            leaf[_END] = phrase
    found: dict[Phrase, list[Place]] = defaultdict(list)
    if not tree:
        return found
    tokens = [(m.group().casefold(), m.start(), m.end()) for m in _TOKEN.finditer(text)]
    at = 0
    while at < len(tokens):
        branch, best, end = tree, None, at
        for i in range(at, len(tokens)):
            branch = branch.get(tokens[i][0], {})
            if not branch:
                break
            if _END in branch:
                best, end = branch[_END], i + 1
        if best is not None:
            found[best].append((tokens[at][1], tokens[end - 1][2]))
        at = max(end, at + 1)
    return found


def occurrences(names: Iterable[str], text: str) -> Counter[str]:
    """How often each of ``names`` stands in ``text``, in one pass; overlapping ones count too."""
    by_head: dict[str, dict[int, set[str]]] = {}
    for name in names:
        by_head.setdefault(name[:2], {}).setdefault(len(name), set()).add(name)
    counts: Counter[str] = Counter()
    if not by_head:
        return counts
    firsts = "".join(sorted({head[0] for head in by_head}))
    for match in re.finditer(f"[{re.escape(firsts)}]", text):
        at = match.start()
        for length, group in by_head.get(text[at : at + 2], {}).items():
            if len(group) <= _FEW:  # no copy of what is long
                counts.update(name for name in group if text.startswith(name, at))
                continue
            piece = text[at : at + length]
            if piece in group:
                counts[piece] += 1
    return counts
