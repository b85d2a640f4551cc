"""Terminals of the prompt grammar (``t2x.prompts.syntax``): what is one piece and holds no other.

Every rule looks at a bounded stretch of text or at a table made in one pass, so that scanning
costs time in proportion to the text, whatever it holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from t2x.prompts.quotations import OPENING, WORD, QuoteScanner

__all__ = ["NEGATIVE_FLAGS", "NUMBER", "POSITIVE_HEADING", "Lexer", "Node"]

NUMBER = r"[+-]?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})"
_TAG_HEAD = r"<[A-Za-z_][\w.-]{0,60}(?:\[[^\[\]<>\n]{0,60}\])?:"
_MARK = "<rewrite:"
# Tags that stand for words of the sentence (SwarmUI); all others are instructions beside it.
_CHOICES = frozenset((
    "random", "wildcard", "wc", "alternate", "alt", "fromto", "repeat", "var", "macro", "setvar",
    "setmacro", "trigger"
))  # fmt: skip
_NEGATIVE = (
    r"(?<!\w)(?i:neg(?:ative)?[ _]prompt|negative[rs]? prompt|prompt n[eé]gati(?:vo|f)"
    r"|негативный промпт)\s{0,9}[:：]"
    r"|(?:[负反]面|[负反]向|否定)提示词?\s{0,9}[:：]|ネガティブプロンプト\s{0,9}[:：]"
    r"|(?m:^)[ \t]{0,9}(?i:negative)[ \t]{0,9}[:：]"
)
_SETTINGS = r"(?m:^)[ \t]{0,9}Steps:[ \t]*\d+|(?<!\S)Steps:[ \t]*\d+,[ \t]*Sampler:"
# Words that cut a prompt into parts drawn on their own; weights of AND and of "::" belong to them.
_BREAK = r"(?<![\w:])(?:BREAK|ADD(?:COMM|BASE|COL|ROW))(?![\w:])"
_AND = r"(?<!\w)AND(?:_PERP|_SALT|_TOPK)?(?!\w)"
_PART = rf"(?<=\S)::(?:{NUMBER})?(?=\s|$)"
NEGATIVE_FLAGS = frozenset(("no", "n", "neg", "negative", "negative_prompt"))
_FLAGS = frozenset((
    "ar", "aspect", "v", "version", "niji", "style", "stylize", "s", "chaos", "c", "no", "q",
    "quality", "seed", "iw", "sref", "cref", "oref", "cw", "sw", "ow", "weird", "w", "tile", "stop",
    "video", "raw", "p", "profile", "repeat", "r", "fast", "relax", "turbo",
))  # fmt: skip
_BARE_FLAGS = frozenset((
    "tile", "video", "raw", "fast", "relax", "turbo", "hd", "test", "loop", "draft",
))  # fmt: skip
_FLAG = re.compile(r"(?:--|\u2014)([A-Za-z][\w-]{0,60})")
_FLAG_VALUE = re.compile(r"[ \t]{1,9}(?!-(?:-|[A-Za-z]))[\w.:,/+-]{0,300}\w")
_FLAG_LIST = re.compile(r"(?:[ \t]{1,9}(?:https?://[^\s,]{1,500}|\d[\w.:]{0,60}))*")
_NEXT_FLAG = re.compile(r"[ \t]+(?=(?:--|\u2014)[A-Za-z])|\s*(?:\n|$)")
_URL = re.compile(
    rf"(?:(?:https?|ftp)://|www\.)(?:{WORD}|[!#$%&()*+,./:;=?@\[\]~-]){{1,2000}}", re.IGNORECASE
)
_ESCAPED = "()[]{}"
_MAX_ESCAPE = 200
_LAST_WORD = re.compile(r"[\w'-]{1,80}[ _]?$")
_LOOK_BACK = 48
_SIMPLE = {
    "wildcard": r"(?<![A-Za-z0-9_])__[A-Za-z0-9*~@](?:[\w./*-]{0,200}[A-Za-z0-9*])?"
    r"(?:\([^()\n]{0,200}\))?__(?![A-Za-z0-9_])",
    "embedding": r"(?<![\w:])embedding:[\w./-]{0,300}\w",
    "token": r"<[A-Za-z][\w-]{0,60}>",
    "numeric": rf"(?<![\w.]){NUMBER}::(?=\S)(?P<body>[^:\n]{{1,300}})::",
    "settings": rf"(?:{_SETTINGS})(?s:.*)",
    "break": _BREAK,
    "part": _PART,
}
_RULES = {name: re.compile(pattern) for name, pattern in _SIMPLE.items()}
_STARTS = {
    "bracket": r"[()\[\]{}]",
    "part": _PART,
    "sign": r"[|:]",
    "escape": r"\\",
    "angle": "<",
    "quote": f"[{OPENING}]",
    "wildcard": "__",
    "flag": r"(?<!\S)(?:--|\u2014)(?=[A-Za-z])",
    "url": r"(?<![^\W_])(?i:(?:https?|ftp)://|www\.)",
    "embedding": r"(?<![\w:])embedding:",
    "break": _BREAK,
    "and": _AND,
    "numeric": rf"(?<![\w.]){NUMBER}::(?=\S)",
    "negative": _NEGATIVE,
    "settings": _SETTINGS,
}
_START = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _STARTS.items()))
_AND_WORD = re.compile(_AND)
_SETTINGS_AT = re.compile(_SETTINGS)
_AND_WEIGHT = re.compile(rf"\s*:\s*{NUMBER}\s*$")
POSITIVE_HEADING = re.compile(r"(?m:^)[ \t]{0,9}(?i:(?:positive )?prompt)\s{0,9}[:\uff1a]\s*")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A piece of a prompt, ``text[start:end]``.

    ``body`` is where its own words are, without brackets and weight; ``children`` are the nodes
    inside, from left to right.
    """

    kind: str
    start: int
    end: int
    body: tuple[int, int] = (0, 0)
    children: tuple[Node, ...] = ()


class Lexer:
    """Finds the terminals of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._quotes = QuoteScanner(text)

    def next(self, at: int) -> re.Match[str] | None:
        """Next place from ``at`` on where something other than plain text may begin; the match's
        ``lastgroup`` names the rule.
        """
        return _START.search(self.text, at)

    def atom(self, rule: str, at: int, *, floor: int, nested: bool) -> Node | None:
        """Node of ``rule`` at ``at``; None if what looked like one is text.

        ``floor`` is where the text before begins that belongs to no node, ``nested`` whether a
        bracket is open.
        """
        if rule == "escape":
            return self._escape(at, floor)
        if rule == "angle":
            return self._angle(at)
        if rule == "quote":
            end = self._quotes.end(at)
            return Node("quote", at, end) if end is not None else None
        if rule == "flag":
            return self._flag(at, nested=nested)
        if rule == "url":
            return self._url(at)
        if rule == "and":
            return self._and(at, floor)
        if rule == "negative":
            return self._negative(at)
        found = _RULES[rule].match(self.text, at)
        if found is None:
            return None
        if rule == "numeric":
            return Node("weight", at, found.end(), found.span("body"))
        return Node(rule, at, found.end())

    def marks(self) -> list[Node]:
        """The outermost ``<rewrite:...>`` that are closed."""
        found: list[Node] = []
        at = 0
        while (at := self.text.find(_MARK, at)) >= 0:
            close = self._angles.get(at)
            if close is not None:
                found.append(Node("mark", at, close + 1, (at + len(_MARK), close)))
            at = len(_MARK) + at if close is None else close + 1
        return found

    def last_weight(self, start: int, end: int) -> Node | None:
        """The weight at the end of ``text[start:end]``, the last part of a prompt with AND."""
        found = _AND_WEIGHT.search(self.text, max(start, end - _LOOK_BACK), end)
        return Node("break", found.start(), found.end()) if found else None

    @cached_property
    def _angles(self) -> dict[int, int]:
        """Index of the ``>`` of each ``<name:``; only a mark reaches over a line's end."""
        open_at: list[int] = []
        partners: dict[int, int] = {}
        for found in re.finditer(rf"{_TAG_HEAD}|>|\n", self.text):
            if found.group() == "\n":
                while open_at and not self.text.startswith(_MARK, open_at[-1]):
                    open_at.pop()
            elif found.group() != ">":
                open_at.append(found.start())
            elif open_at:
                partners[open_at.pop()] = found.start()
        return partners

    def _angle(self, at: int) -> Node | None:
        close = self._angles.get(at)
        if close is not None:
            name = re.match(r"<(\w*)", self.text[at : at + _LOOK_BACK])
            choice = name is not None and name.group(1).lower() in _CHOICES
            return Node("variant" if choice else "network", at, close + 1)
        found = _RULES["token"].match(self.text, at)
        return Node("token", at, found.end()) if found else None

    def _escape(self, at: int, floor: int) -> Node | None:
        r"""``miku \(vocaloid\)`` with the word before it, which is what the model sees."""
        text = self.text
        bracket = text[at + 1 : at + 2]
        if bracket == "" or bracket not in _ESCAPED:
            return None
        end = self._escaped_end(at)
        word = _LAST_WORD.search(text, max(floor, at - 81), at) if end > at + 2 else None
        if word is None:
            return Node("escape", at, end)
        shown = word.group().rstrip(" _")
        if not shown.strip("'-_"):
            return Node("escape", at, end)
        return Node("escape", word.start(), end, (word.start(), word.start() + len(shown)))

    def _escaped_end(self, at: int) -> int:
        r"""After the partner of the escaped bracket at ``at``, and after those that follow it, as
        in ``x \(a\) \(b\)``; after the bracket itself if it has none.
        """
        text, end, opens = self.text, at + 2, re.compile(r"[ _]?\\[(\[{]")
        while text[at + 1] in "([{":
            closer = "\\" + _ESCAPED[_ESCAPED.index(text[at + 1]) + 1]
            close = text.find(closer, at + 2, at + _MAX_ESCAPE)
            if close < 0 or "\n" in text[at:close]:
                break
            end = close + 2
            following = opens.match(text, end)
            if following is None:
                break
            at = following.end() - 2
        return end

    def _flag(self, at: int, *, nested: bool) -> Node | None:
        text = self.text
        found = _FLAG.match(text, at)
        if found is None:
            return None
        name, end = found.group(1).lower().replace("-", "_"), found.end()
        if text[at] != "-" and name not in _FLAGS:  # a dash of the sentence
            return None
        if name in NEGATIVE_FLAGS and not nested:
            stop = _NEXT_FLAG.search(text, end)
            return Node("flag", at, stop.start() if stop else len(text))
        if name in ("sref", "cref", "oref") and (values := _FLAG_LIST.match(text, end)):
            end = values.end()
        if end == found.end() and name not in _BARE_FLAGS:
            value = _FLAG_VALUE.match(text, end)
            end = value.end() if value else end
        return Node("flag", at, end)

    def _url(self, at: int) -> Node | None:
        found = _URL.match(self.text, at)
        if found is None:
            return None
        url, depth = found.group(), {"(": 0, "[": 0}
        for i, char in enumerate(url):  # a bracket that closes what opened before is not its own
            if char in depth:
                depth[char] += 1
            elif char in ")]":
                opener = "(" if char == ")" else "["
                depth[opener] -= 1
                if depth[opener] < 0:
                    url = url[:i]
                    break
        url = url.rstrip(".,;:!?*\u3002\uff0c\u3001")
        return Node("url", at, at + len(url))

    def _and(self, at: int, floor: int) -> Node | None:
        """A conjunction of prompts, not the word in a text that is all capitals."""
        found = _AND_WORD.match(self.text, at)
        if found is None:
            return None
        before = re.search(rf"({WORD}+)\W*$", self.text[max(0, at - _LOOK_BACK) : at])
        after = re.match(rf"\W*({WORD}+)", self.text[found.end() : found.end() + _LOOK_BACK])
        if before and after and before.group(1).isupper() and after.group(1).isupper():
            return None
        weight = _AND_WEIGHT.search(self.text, max(floor, at - _LOOK_BACK), at)
        return Node("and", weight.start() if weight else at, found.end())

    def _negative(self, at: int) -> Node:
        """From its heading to the settings, to a heading of the positive part, or to the end."""
        ends = [len(self.text)]
        settings = _SETTINGS_AT.search(self.text, at)
        if settings:
            ends.append(settings.start())
        positive = POSITIVE_HEADING.search(self.text, at + 1)
        if positive and positive.start() > at:
            ends.append(positive.end())
        return Node("negative", at, min(ends))
