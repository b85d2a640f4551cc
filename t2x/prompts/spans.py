"""Turns the nodes of a part of a prompt into what a model sees of it and what it does not.

The text that is shown is put together so that every protected piece stands apart from its
neighbours: letters that touch an item or a phrase go with it (the s of ``{cat|dog}s``), and where
a tag leaves, the blanks and commas around it close up.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from t2x.prompts.quotations import WORD
from t2x.prompts.restore import stand_in_name
from t2x.prompts.syntax import Node

__all__ = ["Region", "Source", "Span", "StandIns", "has_words", "inside", "read_region"]

Form: TypeAlias = Literal["tag", "phrase", "item"]

_TAGS = ("network", "embedding", "flag")
_SILENT = (*_TAGS, "break", "part", "negative", "settings")
_PHRASES = ("weight", "escape", "group")
_RUN = re.compile(rf"{WORD}*")
_LETTER = re.compile(WORD)
_SIGNS = re.compile(r"[()\[\]{}\\]")
_NEXT = re.compile(r"\s*,?")
_CLOSES_UP = ",;.!?:\n"  # no blank before these


@dataclass(frozen=True)
class Span:
    """A protected piece: its ``kind``, its exact ``text`` and what the model sees instead.

    Kinds are those of ``t2x.prompts.syntax``. ``leading`` says that nothing but tags came before
    it, ``comma`` that a comma stands beside it, ``at`` where in its region's source the stand-in
    is.
    """

    kind: str
    text: str
    stand_in: str = ""
    form: Form = "tag"
    leading: bool = False
    comma: bool = False
    at: int = 0


@dataclass(frozen=True)
class Region:
    """Part of a prompt that is rewritten on its own: ``source`` is what the model sees of
    ``original``; ``rewritable`` if that holds words, or pictographs, beside names of items.
    """

    source: str
    spans: tuple[Span, ...] = ()
    original: str = ""
    rewritable: bool = True


class StandIns:
    """Names for what the model sees instead of items, numbered through a whole prompt."""

    def __init__(self, prompt: str) -> None:
        self.names = tuple(stand_in_name(name, prompt) for name in ("ITEM", "TEXT"))
        self.given = 0

    def give(self, kind: str) -> str:
        """The next name, of quoted text or of anything else."""
        self.given += 1
        item, text = self.names
        return f'"{text}{self.given}"' if kind == "quote" else f"{item}{self.given}"


def read_region(
    text: str, start: int, end: int, *, nodes: Sequence[Node], names: StandIns
) -> Region:
    """Region of ``text[start:end]``, whose ``nodes`` are in order and don't overlap."""
    original = text[start:end]
    if not nodes:
        return Region(original.strip(), (), original, has_words(original))
    source = Source()
    spans: list[Span] = []
    wordy, leading, last = False, True, ""  # last: the last mark so far that is no blank
    at = start
    for piece in _pieces(text, start, end, nodes):
        between = text[at : piece.start]
        wordy = wordy or has_words(between)
        leading = leading and not has_words(between)
        last = between.rstrip()[-1:] or last
        span = _span(text, piece, names, leading=leading)
        following = _NEXT.match(text, piece.end, end)
        comma = last == "," or (following is not None and following.group().endswith(","))
        source.text(between)
        spans.append(replace(span, comma=comma, at=source.show(span.stand_in)))
        wordy = wordy or (span.form == "phrase" and has_words(span.stand_in))
        leading = leading and span.form == "tag"
        last = span.stand_in[-1:] or last
        at = piece.end
    source.text(text[at:end])
    wordy = wordy or has_words(text[at:end])
    shown, shift = source.finish()
    return Region(shown, tuple(replace(s, at=s.at - shift) for s in spans), original, wordy)


def has_words(text: str) -> bool:
    """Whether ``text`` holds a letter, a digit or a pictograph."""
    return any(c.isalnum() or unicodedata.category(c) == "So" for c in text)


class _Piece(NamedTuple):
    """Text that one span covers: ``node`` with the letters that touch it, or several items."""

    node: Node
    start: int
    end: int
    merged: bool


def _pieces(text: str, start: int, end: int, nodes: Sequence[Node]) -> Iterator[_Piece]:
    waiting: _Piece | None = None
    for number, node in enumerate(nodes):
        here = (start if waiting is None else waiting.end), node.start
        left = right = 0
        if node.kind not in (*_TAGS, "quote", "url"):
            ahead = nodes[number + 1].start if number + 1 < len(nodes) else end
            right = len(_run(text, node.end, ahead))
            left = 0 if node.kind == "escape" else _run_before(text, *here)
        piece = _Piece(node, node.start - left, node.end + right, False)
        if waiting is not None:
            if piece.start == waiting.end and _is_item(node) and _is_item(waiting.node):
                waiting = _Piece(waiting.node, waiting.start, piece.end, True)
                continue
            yield waiting
        waiting = piece
    if waiting is not None:
        yield waiting


def _is_item(node: Node) -> bool:
    return node.kind not in (*_TAGS, *_PHRASES, "quote", "url")


def _run(text: str, at: int, end: int) -> str:
    found = _RUN.match(text, at, end)
    return found.group() if found else ""


def _run_before(text: str, start: int, end: int) -> int:
    at = end
    while at > start and _LETTER.match(text[at - 1]):
        at -= 1
    return end - at


def _span(text: str, piece: _Piece, names: StandIns, *, leading: bool) -> Span:
    node, covered = piece.node, text[piece.start : piece.end]
    start_picture = node.kind == "url" and leading
    if node.kind in _TAGS or start_picture or _is_ruled_out(text, node):
        return Span(node.kind, covered, leading=leading)
    kind = "weight" if node.kind == "group" else node.kind
    if node.kind in _PHRASES and not piece.merged:
        before, after = text[piece.start : node.start], text[node.end : piece.end]
        given = names.given
        words, own = _words(text, node, names)
        if own:
            phrase = before + words + after
            return Span(kind, covered, phrase, "phrase", leading)
        names.given = given  # nothing but items inside: one name for all
        if not words and not before and not after and node.kind != "escape":
            return Span(kind, covered, leading=leading)
    return Span(kind, covered, names.give(kind), "item", leading)


def _is_ruled_out(text: str, node: Node) -> bool:
    """Whether ``node`` is a weight below zero: a model must not tell of what it holds."""
    start, end = node.body
    return node.kind == "weight" and "-" in text[node.start : start] + text[end : node.end]


def _words(text: str, node: Node, names: StandIns) -> tuple[str, bool]:
    """Words of a phrase without syntax, items in it by name; and whether it has any of its own."""
    shown: list[str] = []
    own = False
    left: list[Node | str] = [node]
    while left:
        part = left.pop()
        if isinstance(part, str):
            plain = _SIGNS.sub("", part)
            own = own or has_words(plain)
            shown.append(plain)
        elif part.kind in _SILENT or _is_ruled_out(text, part):
            shown.append(" ")
        elif part.kind in _PHRASES:
            left.extend(reversed(list(inside(text, part))))
        else:
            shown.append(names.give(part.kind))
    return re.sub(r"\s+", " ", "".join(shown)).strip(" ,"), own


def inside(text: str, node: Node) -> Iterator[Node | str]:
    """The body of ``node`` in order: its children, and the text between them."""
    at, end = node.body
    for child in node.children:
        yield text[at : child.start]
        yield child
        at = child.end
    yield text[at:end]


class Source:
    """Text that grows by plain text and stand-ins; a tag, shown as "", leaves a seam. A blank parts
    letters of two pieces, unless ``glued``.
    """

    def __init__(self, *, glued: bool = False) -> None:
        self._glued = glued
        self._parts: list[str] = []
        self._size = 0
        self._seam = False
        self._blank = False

    def text(self, piece: str) -> int:
        """Add plain text; give the place where it begins."""
        joined = self._joined(piece) if piece else ""
        self._add(joined)
        return self._size - len(joined)

    def show(self, stand_in: str) -> int:
        """Add what stands for a span; give its place."""
        if not stand_in:
            self._seam = True
            return self._size
        self._add(self._joined(stand_in))
        return self._size - len(stand_in)

    def finish(self) -> tuple[str, int]:
        """The whole text without blanks and commas at its ends, and how many left at its start."""
        whole = "".join(self._parts)
        return whole.strip(" \t\n,"), len(whole) - len(whole.lstrip(" \t\n,"))

    def _joined(self, piece: str) -> str:
        if not self._seam:
            return " " + piece if not self._glued and self._runs_on(piece) else piece
        right = piece.lstrip(" \t")
        blank = self._trim() or self._blank or right != piece
        if right[:1] in (",", ";") and self._last() in ("", ",", ";", "\n"):
            right, blank = right[1:].lstrip(" \t"), True
        self._blank, self._seam = blank and not right, not right
        if not right or self._last() in ("", "\n") or right[0] in _CLOSES_UP:
            return right
        return " " + right if blank or self._runs_on(right) else right

    def _runs_on(self, piece: str) -> bool:
        return bool(_LETTER.match(self._last()) and _LETTER.match(piece))

    def _last(self) -> str:
        return self._parts[-1][-1] if self._parts else ""

    def _trim(self) -> bool:
        """Take blanks from the end; whether there were any."""
        size = self._size
        while self._parts:
            kept = self._parts[-1].rstrip(" \t")
            self._size -= len(self._parts[-1]) - len(kept)
            if kept:
                self._parts[-1] = kept
                break
            self._parts.pop()
        return self._size < size

    def _add(self, piece: str) -> None:
        if piece:
            self._parts.append(piece)
            self._size += len(piece)
