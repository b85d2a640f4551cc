"""Where a quotation ends, for the quotation marks of any language.

German and Polish open low and close high, Swedish closes with what it opens with, Danish turns the
guillemets round, East Asian text uses corner brackets. An apostrophe is no quotation mark, and
neither are the marks of feet and inches behind a digit.
"""

from __future__ import annotations

import re

__all__ = ["OPENING", "QUOTE_MARKS", "SPACELESS", "WORD", "QuoteScanner"]

# Scripts that put no blanks between words: a letter of theirs never continues the word beside it.
SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
WORD = rf"[^\W{SPACELESS}]"  # a character that runs on into the word beside it

_SAME = '"\uff02`'
_NESTING = {
    "\u201c": "\u201d",
    "\u201e": "\u201d\u201c",
    "\u00ab": "\u00bb",
    "\u2039": "\u203a",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
    "\uff62": "\uff63",
    "\u301d": "\u301f\u301e",
}
_TURNED = {"\u00bb": "\u00ab", "\u203a": "\u2039", "\u201d": "\u201d"}
_SINGLE = "'\u2018\u201a"
OPENING = "".join((_SAME, *_NESTING, *_TURNED, _SINGLE))
QUOTE_MARKS = "".join(sorted({*OPENING, *"".join(_NESTING.values()), "\u2019"}))

_MAX_LENGTH = 2000
# At a word's beginning, up to a mark that no letter follows; the apostrophes of "don't stop" are
# followed by one. "'90s" and "rock 'n' roll" quote nothing.
_SINGLE_QUOTED = re.compile(
    rf"(?<!{WORD})['\u2018\u201a](?=\S)(?!\d0s|n['\u2019])"
    rf"(?:[^'\u2018\u2019\u201a\n]|['\u2019](?={WORD})){{1,200}}?"
    rf"(?<=\S)['\u2018\u2019](?!{WORD}|')"
)
_AFTER_DIGIT = re.compile(r"[0-9]")


class QuoteScanner:
    """Finds the end of the quotations of one text, in linear time over all of them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._partners: dict[str, dict[int, int]] = {}

    def end(self, at: int) -> int | None:
        """Index after the quotation that opens at ``at``; None if none does."""
        mark = self._text[at]
        if mark in _SINGLE:
            found = _SINGLE_QUOTED.match(self._text, at)
            return found.end() if found else None
        if mark in _SAME:
            close = self._same(at)
        elif mark in _NESTING:
            close = self._nesting(mark).get(at)
        else:
            close = self._turned(at)
        if close is None or not 1 < close - at <= _MAX_LENGTH:
            return None
        return close + 1

    def _same(self, at: int) -> int | None:
        mark = self._text[at]
        if mark == '"' and at and _AFTER_DIGIT.match(self._text[at - 1]):
            return None
        close = at
        while (close := self._text.find(mark, close + 1, at + 1 + _MAX_LENGTH)) > 0:
            if self._text[close - 1] != "\\":
                return close
        return None

    def _nesting(self, mark: str) -> dict[int, int]:
        """Index of the partner of each opening ``mark``, nested ones inside."""
        if mark not in self._partners:
            closers = _NESTING[mark]
            open_at: list[int] = []
            partners = self._partners[mark] = {}
            for found in re.finditer(f"[{mark}{closers}]", self._text):
                if found.group() == mark:
                    open_at.append(found.start())
                elif open_at:
                    partners[open_at.pop()] = found.start()
        return self._partners[mark]

    def _turned(self, at: int) -> int | None:
        text = self._text
        if text[at + 1 : at + 2].strip() == "" or (at and re.match(WORD, text[at - 1])):
            return None
        close = text.find(_TURNED[text[at]], at + 1, at + 1 + _MAX_LENGTH)
        return close if close > 0 and not text[close - 1].isspace() else None
