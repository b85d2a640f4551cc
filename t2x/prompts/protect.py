"""Takes what a language model must not touch out of a prompt and puts it back byte for byte.

Two families leave the text. *Tags* mean nothing inside the sentence (``<lora:x:0.8>``,
``embedding:x``, ``--ar 16:9``): the model sees nothing of them and they return at the start or at
the end. *Content* stands for something inside the sentence: ``(red car:1.2)`` and ``miku
\\(vocaloid\\)`` are shown as their plain words, ``[cat:dog:0.5]``, ``{a|b}``, ``__animal__`` and
quoted text as a stand-in such as ``ITEM1`` or ``"TEXT1"``.

``BREAK`` cuts a prompt into regions that are rewritten on their own. With ``<rewrite:...>`` in it,
only what is marked is rewritten and the rest comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Protected", "Region", "Span", "protect", "syntax"]

_MARK = "<rewrite:"
_NETWORK = re.compile(r"<[A-Za-z_][\w.-]*:[^<>\n]*>")
_WILDCARD = re.compile(
    r"(?<![A-Za-z0-9_])__[A-Za-z0-9*~@](?:[\w./*-]*[A-Za-z0-9*])?__(?![A-Za-z0-9_])"
)
_EMBEDDING = re.compile(r"(?<![\w:])embedding:[\w./-]*\w")
_FLAG = re.compile(r"(?<!\S)--[A-Za-z]\w*(?:\s+(?!-)[\w.:,/-]*\w)?")
_BREAK = re.compile(r"(?<![\w:])BREAK(?![\w:])")
_WEIGHT = re.compile(r":\s*[+-]?\d*\.?\d+\s*$")
_BLANKS = re.compile(r"\s*")
_NEXT = re.compile(r"\s*,?")
_LAST_WORD = re.compile(r"[\w'-]+[ _]?$")
_OPENERS = {"(": ")", "[": "]", "{": "}"}
_QUOTES = {
    '"': '"',
    "\u201c": "\u201d",
    "\u201e": "\u201d\u201c",
    "\u00ab": "\u00bb",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
}
_ANY_QUOTE = "\"'\u201c\u201d\u201e\u2018\u2019\u00ab\u00bb\u300c\u300d\u300e\u300f"
_SINGLE = re.compile(
    r"(?<![^\s(,:;])['\u2018](?=\S)([^'\u2018\u2019\n]|['\u2019](?=\w)){1,80}?(?<=\S)['\u2019](?![\w'])"
)
_MAX_QUOTE = 2000
_MAX_ESCAPE = 200
_TAGS = ("network", "embedding", "flag")
_WEIGHTED = ("network", "embedding", "weight", "escape", "schedule", "variant")


@dataclass(frozen=True)
class Span:
    """A protected piece: its ``kind``, its exact ``text`` and what the model sees instead.

    Kinds: network, embedding and flag are shown as nothing; weight and escape as their words;
    schedule, variant, wildcard and quote as a stand-in. ``leading`` says that nothing but tags came
    before it, ``comma`` that a comma stands beside it.
    """

    kind: str
    text: str
    stand_in: str = ""
    leading: bool = False
    comma: bool = False


@dataclass(frozen=True)
class Region:
    """Part of a prompt that is rewritten on its own: ``source`` is what the model sees."""

    source: str
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Protected:
    """A prompt in pieces: strings stay as they are, regions are rewritten."""

    original: str
    pieces: tuple[str | Region, ...]

    @property
    def regions(self) -> tuple[Region, ...]:
        """Regions that hold words to rewrite, in order."""
        return tuple(p for p in self.pieces if isinstance(p, Region) and _has_words(p.source))

    @property
    def sources(self) -> tuple[str, ...]:
        """What the model gets to see: one text per region."""
        return tuple(region.source for region in self.regions)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every protected span of every region, in order."""
        return tuple(s for p in self.pieces if isinstance(p, Region) for s in p.spans)

    @property
    def weighted(self) -> bool:
        """Whether the prompt is written for a generator that reads parentheses as weights."""
        return any(span.kind in _WEIGHTED for span in self.spans)

    def restore(self, answers: Sequence[str]) -> str:
        """Put every span back into the model's ``answers``, one per region in order.

        A stand-in that the model lost stays lost: ``broken`` tells. Parentheses that the model
        wrote are escaped when the prompt uses weights.
        """
        left = iter(answers)
        escape = self.weighted
        parts = []
        for piece in self.pieces:
            if isinstance(piece, str):
                parts.append(piece)
            else:
                answer = next(left) if _has_words(piece.source) else piece.source
                parts.append(_restore_region(piece, answer, escape=escape))
        return "".join(parts)

    def unplaced(self, answer: str) -> list[Span]:
        """Weighted phrases that ``answer`` has less often than the prompt: ``restore`` puts them at
        the end.
        """
        said: dict[str, list[Span]] = {}
        for span in self.spans:
            if span.kind == "weight" and span.stand_in:
                said.setdefault(span.stand_in.casefold(), []).append(span)
        return [
            span
            for spans in said.values()
            for span in spans[len(_words_of(spans[0]).findall(answer)) :]
        ]

    def broken(self, text: str) -> list[str]:
        """Spans that do not stand in ``text`` as often as in the original prompt."""
        if not any(isinstance(p, Region) for p in self.pieces):
            return []
        wanted = "".join(
            p if isinstance(p, str) else "\n".join(s.text for s in p.spans) for p in self.pieces
        )
        names = dict.fromkeys(span.text for span in self.spans)
        return [name for name in names if text.count(name) != wanted.count(name)]


def protect(prompt: str) -> Protected:
    """Cut ``prompt`` into pieces that stay and regions that may be rewritten."""
    weighted = any(kind in _WEIGHTED for *_, kind, _ in _find(prompt))
    marked = _marked(prompt)
    pieces: list[str | Region] = []
    names = _StandIns(prompt)
    if marked is not None:
        for part, mine in marked:
            pieces.append(_region(part, names, weighted=weighted) if mine else part)
        return Protected(prompt, tuple(p for p in pieces if p != ""))
    at = 0
    for start, end, kind, _ in [*_find(prompt), (len(prompt), len(prompt), "break", "")]:
        if kind != "break":
            continue
        before, blanks = prompt[at:start], _BLANKS.match(prompt, end)
        pieces.append(_region(before, names, weighted=weighted))
        if end > start:
            lead = before[len(before.rstrip()) :]
            pieces.append(lead + prompt[start:end] + (blanks.group() if blanks else ""))
        at = end
    return Protected(prompt, tuple(p for p in pieces if isinstance(p, str) or p.source or p.spans))


def syntax(text: str) -> dict[str, str]:
    """Kinds of syntax in ``text`` with the first example of each; quotes and escapes are text."""
    found: dict[str, str] = {}
    for start, end, kind, _ in _find(text):
        if kind not in ("quote", "escape"):
            found.setdefault(kind, text[start:end])
    return found


def _has_words(text: str) -> bool:
    return any(c.isalnum() or ord(c) > 0x2000 for c in text)


def _marked(prompt: str) -> list[tuple[str, bool]] | None:
    """Split at ``<rewrite:...>``: (text, whether it is to be rewritten); None without a complete
    mark.
    """
    parts: list[tuple[str, bool]] = []
    at = 0
    while (start := prompt.find(_MARK, at)) >= 0:
        end = _closing_angle(prompt, start)
        if end is None:
            break
        parts += [(prompt[at:start], False), (prompt[start + len(_MARK) : end], True)]
        at = end + 1
    return [*parts, (prompt[at:], False)] if parts else None


def _closing_angle(text: str, start: int) -> int | None:
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "<") - (text[i] == ">")
        if depth == 0:
            return i
    return None


def _pairs(text: str) -> dict[int, int]:
    """Index of each bracket's partner, escaped brackets left out; one pass, so that no input is
    quadratic.
    """
    stacks: dict[str, list[int]] = {closer: [] for closer in _OPENERS.values()}
    partner: dict[int, int] = {}
    for i, char in enumerate(text):
        if i and text[i - 1] == "\\":
            continue
        if char in _OPENERS:
            stacks[_OPENERS[char]].append(i)
        elif stacks.get(char):
            partner[stacks[char].pop()] = i
    return partner


def _find(text: str, *, weighted: bool = False) -> Iterator[tuple[int, int, str, str]]:
    """Yield (start, end, kind, plain words) of the spans from left to right; none overlap.

    With ``weighted``, plain parentheses are weights as well: ``(word)`` is emphasis to whoever
    reads ``(word:1.2)``.
    """
    partner = _pairs(text)
    at = done = 0
    while at < len(text):
        hit = _span_at(text, at, done, partner)
        if hit is None and weighted and text[at] == "(" and at in partner:
            hit = at, partner[at] + 1, "weight", _plain(text[at + 1 : partner[at]])
        if hit is None:
            at += 1
        else:
            yield hit
            at = done = hit[1]


def _span_at(
    text: str, at: int, done: int, partner: dict[int, int]
) -> tuple[int, int, str, str] | None:
    char = text[at]
    if char == "\\" and text[at + 1 : at + 2] in ("(", ")"):
        return _escape(text, at, done)
    if char in _OPENERS and at in partner:
        return _bracket(text, at, partner)
    if char in _QUOTES:
        return _quote(text, at)
    for pattern, kind, first in _PATTERNS:
        if char in first and (found := pattern.match(text, at)):
            return at, found.end(), kind, ""
    return None


_PATTERNS = (
    (_NETWORK, "network", "<"),
    (_WILDCARD, "wildcard", "_"),
    (_EMBEDDING, "embedding", "e"),
    (_FLAG, "flag", "-"),
    (_BREAK, "break", "B"),
    (_SINGLE, "quote", "'\u2018"),
)


def _escape(text: str, at: int, done: int) -> tuple[int, int, str, str]:
    """``miku \\(vocaloid\\)`` with the word before it, which is what the model sees."""
    close = text.find("\\)", at, at + _MAX_ESCAPE)
    end = close + 2 if close >= 0 and text[at + 1] == "(" and "\n" not in text[at:close] else at + 2
    word = _LAST_WORD.search(text, max(done, at - 80), at)
    if word is None or end == at + 2:
        return at, end, "escape", ""
    return word.start(), end, "escape", word.group().rstrip(" _")


def _bracket(text: str, at: int, partner: dict[int, int]) -> tuple[int, int, str, str] | None:
    close = partner[at]
    inner = text[at + 1 : close]
    if text[at] == "{":
        return at, close + 1, "variant", ""
    if text[at] == "[":
        plain = not re.search(r"[:|]", inner) and _has_words(inner)
        return (
            (at, close + 1, "weight", _plain(inner)) if plain else (at, close + 1, "schedule", "")
        )
    weighted = _WEIGHT.search(inner)
    doubled = inner.startswith("(") and partner.get(at + 1) == close - 1
    if weighted or doubled:
        return at, close + 1, "weight", _plain(inner[: weighted.start()] if weighted else inner)
    return None


def _plain(text: str) -> str:
    """Words of a weighted phrase without syntax."""
    text = re.sub(r"<[^<>]*>", " ", text)
    text = re.sub(r":\s*[+-]?\d*\.?\d+\s*(?=[)\]])", "", text)
    return re.sub(r"\s+", " ", re.sub(r"[()\[\]{}\\]", "", text)).strip(" ,")


def _quote(text: str, at: int) -> tuple[int, int, str, str] | None:
    if text[at] == '"' and at and text[at - 1].isdigit():  # inches
        return None
    ends = [
        end
        for closer in _QUOTES[text[at]]
        if (end := text.find(closer, at + 1, at + _MAX_QUOTE)) >= 0
    ]
    if not ends or min(ends) == at + 1:
        return None
    return at, min(ends) + 1, "quote", ""


class _StandIns:
    """Names for what the model sees instead of spans, numbered through the whole prompt."""

    def __init__(self, prompt: str) -> None:
        self._names = {name: _free_name(name, prompt) for name in ("ITEM", "TEXT")}
        self._given = 0

    def give(self, kind: str, words: str) -> str:
        self._given += 1
        if kind in (*_TAGS, "weight", "escape"):
            return words
        if kind == "quote":
            return f'"{self._names["TEXT"]}{self._given}"'
        return f"{self._names['ITEM']}{self._given}"


def _region(text: str, names: _StandIns, *, weighted: bool) -> Region:
    spans: list[Span] = []
    shown: list[str] = []
    at, leading, last = 0, True, ""  # last: the last mark shown so far that is no blank
    for start, end, kind, words in _find(text, weighted=weighted):
        if kind == "break":
            continue
        stand_in = names.give(kind, words)
        between = text[at:start]
        leading = leading and not _has_words(between)
        last = between.rstrip()[-1:] or last
        following = _NEXT.match(text, end)
        comma = last == "," or (following is not None and following.group().endswith(","))
        spans.append(Span(kind, text[start:end], stand_in, leading, comma))
        leading = leading and not _has_words(stand_in)
        last = stand_in.rstrip()[-1:] or last
        shown += (between, stand_in)
        at = end
    if not spans:
        return Region(text.strip())
    return Region(_tidy("".join([*shown, text[at:]])), tuple(spans))


def _free_name(name: str, prompt: str) -> str:
    while re.search(name + r"\d", prompt, re.IGNORECASE):
        name += "X"
    return name


def _tidy(text: str) -> str:
    """Close the gaps that tags leave behind."""
    text = re.sub(r"[ \t]{2,}", " ", text)
    text = re.sub(r"[ \t]+([,;])", r"\1", text)
    return re.sub(r"(?:,\s*){2,}", ", ", text).strip(" \t\n,")


def _restore_region(region: Region, answer: str, *, escape: bool) -> str:
    text = re.sub(r"(?<!\\)([()])", r"\\\1", answer) if escape else answer
    first, last = "", ""
    for number, span in enumerate(region.spans):
        if not span.stand_in:
            if span.leading:
                first += span.text + (", " if span.comma else " ")
            else:
                last += (", " if span.comma else " ") + span.text
        elif span.kind in ("weight", "escape"):
            # A key, so that what one span holds is not searched for the next.
            text, found = _words_of(span).subn(f"\0{number}\0", text, count=1)
            last = last if found else f", {span.text}" + last
    for quoted in (False, True):
        text = _fill(text, region.spans, quoted=quoted)
    spans = {f"\0{number}\0": span.text for number, span in enumerate(region.spans)}
    text = re.sub(r"\0\d+\0", lambda m: spans.get(m.group(), m.group()), text.strip())
    return (first + text + last).strip()


def _fill(text: str, spans: Sequence[Span], *, quoted: bool) -> str:
    """Put a key in the place of every stand-in for a quote, or for anything else, in one pass; a
    second one is an error that ``broken`` tells.
    """
    keys = {
        span.stand_in.strip('"').casefold(): f"\0{number}\0"
        for number, span in enumerate(spans)
        if span.stand_in and span.kind not in ("weight", "escape")
        if (span.kind == "quote") == quoted
    }
    if not keys:
        return text
    name = next(iter(keys)).rstrip("0123456789")
    quote = f"[{_ANY_QUOTE}]?" if quoted else ""
    return re.sub(
        rf"{quote}(?<!\w)({name}\d+)(?!\w){quote}",
        lambda m: keys.get(m.group(1).casefold(), m.group()),
        text,
        flags=re.IGNORECASE,
    )


def _words_of(span: Span) -> re.Pattern[str]:
    words = r"\s+".join(map(re.escape, span.stand_in.split()))
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)
