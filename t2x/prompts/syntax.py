r"""The grammar of prompts, and a parser that turns one into a tree.

It is the union of what A1111 and Forge, ComfyUI, SwarmUI, dynamic-prompts, NovelAI and Midjourney
read. In EBNF, with ``?...?`` for terminals that ``t2x.prompts.lexer`` describes::

    prompt      = body | kept, mark, kept, { mark, kept } ;      with a mark, all else is kept
    mark        = "<rewrite:", body, ">" ;
    body        = text, { cut, text }, [ negative, [ positive ] ], [ settings ] ;
    cut         = [ ":", number ], "AND" | "BREAK" | "::", [ number ] ;
    negative    = "Negative prompt:", kept ;                     in several languages
    positive    = "Prompt:", text ;
    settings    = "Steps: ", number, kept ;                      as A1111 writes below a picture
    text        = { item } ;
    item        = weighted | soft | alternation | schedule | variant | group | atom | ?words? ;
    weighted    = "(", text, ":", number, ")" | "(", group, ")" | number, "::", ?words?, "::" ;
    group       = "(", text, ")" ;           a weight to a generator that reads weights, else text
    soft        = "[", text, "]" ;           de-emphasis: no "|" or ":" of its own
    alternation = "[", text, "|", text, { "|", text }, "]" ;
    schedule    = "[", [ text, ":" ], text, ":", number, "]" ;   any other "[...:...]" as well
    variant     = [ "$" ], "{", text, { "|", text }, "}" ;       "{2$$a|b}", "${x=...}" too
    atom        = network | token | wildcard | embedding | quote | url | flag | escape ;
    network     = "<", name, ":", ?anything but ">", or tags?, ">" ;
    token       = "<", name, ">" ;                               of a learned concept
    wildcard    = "__", ?path or pattern?, "__" ;
    embedding   = "embedding:", ?path? ;
    quote       = ?quotation marks of any language and what is between them? ;
    url         = ( "http://" | "https://" | "ftp://" | "www." ), ?no blank? ;
    flag        = ( "--" | "—" ), name, [ ?value? ] ;            "--no" reaches to the next flag
    escape      = [ word ], "\(", ?text?, "\)" | "\", bracket ;

What is opened and not closed is text, and so is a bracket that closes nothing; a bracket that
closes an outer one turns those between into text. Atoms win over brackets: a bracket inside a
quotation is a letter. Nesting is held on a stack of the parser's own, so its depth has no limit,
and every step moves forward: the time is linear in the length of any text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from t2x.prompts.lexer import NUMBER, Lexer, Node

__all__ = ["Node", "marks", "parse", "walk"]

_PARTNER = {")": "(", "]": "[", "}": "{"}
_NUMBER = re.compile(rf"\s*{NUMBER}\s*")
_LONGEST_NUMBER = 24
_ESCAPABLE = tuple("\\\"'|:")  # what a backslash makes a plain character, beside brackets
_WORDY = re.compile(r"[^\W_]|[\u2600-\u27bf\U0001f000-\U0001faff]")


def parse(text: str) -> tuple[Node, ...]:
    """Nodes of ``text`` from left to right; what no node covers is plain text.

    Kinds: network, token, wildcard, embedding, quote, url, flag, escape, weight (with soft ones),
    group, schedule, alternation, variant, break, part, negative, settings.
    """
    return _Parser(text).parse()


def marks(text: str) -> list[Node]:
    """The complete ``<rewrite:...>`` of ``text``, outermost only; ``body`` is what they hold."""
    return Lexer(text).marks()


def walk(nodes: tuple[Node, ...], *, into: str) -> Iterator[Node]:
    """``nodes`` in order, with the children of those of kind ``into`` in their place."""
    left = list(reversed(nodes))
    while left:
        node = left.pop()
        if node.kind == into:
            left.extend(reversed(node.children))
        else:
            yield node


@dataclass(frozen=True, slots=True)
class _Open:
    """A bracket that waits for its partner: where it is, and how many nodes and signs were there
    before it.
    """

    bracket: str
    at: int
    nodes: int
    signs: int


class _Parser:
    """Shift-reduce: open brackets are pushed, a closing one turns what came since into a node."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lexer = Lexer(text)
        self.nodes: list[Node] = []
        self.signs: list[int] = []  # places of "|" and ":" in the brackets that are open
        self.stack: list[_Open] = []
        self.waiting: Counter[str] = Counter()
        self.word_at = -1  # a place at or after the last letter so far

    def parse(self) -> tuple[Node, ...]:
        at = 0
        while (found := self.lexer.next(at)) is not None:
            if _WORDY.search(self.text, at, found.start()):
                self.word_at = found.start() - 1
            rule = found.lastgroup or ""
            at = self._bracket(found.start()) if rule == "bracket" else self._step(rule, found)
        if any(node.kind == "and" for node in self.nodes):
            self._weight_of_the_last_part()
        return tuple(Node("break", n.start, n.end) if n.kind == "and" else n for n in self.nodes)

    def _step(self, rule: str, found: re.Match[str]) -> int:
        at = found.start()
        if rule == "sign":
            self.signs.append(at)
            return at + 1
        floor = self.nodes[-1].end if self.nodes else 0
        if self.stack:
            floor = max(floor, self.stack[-1].at + 1)
        node = self.lexer.atom(rule, at, floor=floor, nested=bool(self.stack))
        if node is None:
            pair = self.text[at : at + 2]
            return (
                at + 2 if pair == '""' or (pair[:1] == "\\" and pair[1:] in _ESCAPABLE) else at + 1
            )
        if node.kind in ("negative", "settings"):  # what is open here is not closed before it
            self.stack.clear()
            self.waiting.clear()
        self.nodes.append(node)
        self.word_at = node.end - 1
        return node.end

    def _bracket(self, at: int) -> int:
        char = self.text[at]
        if char not in _PARTNER:
            self.stack.append(_Open(char, at, len(self.nodes), len(self.signs)))
            self.waiting[char] += 1
        elif self.waiting[_PARTNER[char]]:
            while (opened := self.stack.pop()).bracket != _PARTNER[char]:
                self.waiting[opened.bracket] -= 1
            self.waiting[opened.bracket] -= 1
            self._reduce(opened, at)
        return at + 1

    def _reduce(self, opened: _Open, close: int) -> None:
        children = tuple(self.nodes[opened.nodes :])
        signs = self.signs[opened.signs :]
        del self.nodes[opened.nodes :], self.signs[opened.signs :]
        start, body = opened.at, (opened.at + 1, close)
        if opened.bracket == "{":
            kind = "variant"
            before = self.nodes[-1].end if self.nodes else 0
            if start > before and self.text[start - 1] == "$":
                start -= 1
        elif opened.bracket == "[":
            kind = self._square(opened, signs)
        else:
            kind, body = self._round(opened, close, children=children, signs=signs)
        self.nodes.append(Node(kind, start, close + 1, body, children))

    def _square(self, opened: _Open, signs: list[int]) -> str:
        if any(self.text[at] == "|" for at in signs):
            return "alternation"
        return "schedule" if signs or self.word_at < opened.at else "weight"

    def _round(
        self, opened: _Open, close: int, *, children: tuple[Node, ...], signs: list[int]
    ) -> tuple[str, tuple[int, int]]:
        body = (opened.at + 1, close)
        if len(children) == 1 and (children[0].start, children[0].end) == body:
            return ("weight" if children[0].kind in ("group", "weight") else "group"), body
        colon = signs[-1] if signs else -1
        if self.text[colon] == ":" and colon > opened.at and close - colon <= _LONGEST_NUMBER:
            clock = close - opened.at <= _LONGEST_NUMBER and self.text[opened.at + 1 : colon]
            if _NUMBER.fullmatch(self.text, colon + 1, close) and not str(clock).isdigit():
                return "weight", (opened.at + 1, colon)
        return "group", body

    def _weight_of_the_last_part(self) -> None:
        index = next(
            (i for i, n in enumerate(self.nodes) if n.kind in ("negative", "settings")),
            len(self.nodes),
        )
        start = self.nodes[index - 1].end if index else 0
        end = self.nodes[index].start if index < len(self.nodes) else len(self.text)
        if weight := self.lexer.last_weight(start, end):
            self.nodes.insert(index, weight)
