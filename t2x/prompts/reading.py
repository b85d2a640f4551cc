r"""What the syntax of a prompt asks of the generator that draws it.

``t2x.prompts.syntax`` parses; here each node becomes words with a weight, an instruction beside
them (a LoRA, a negative prompt), or a note that says what became of it:

- ``(x:1.3)``, ``((x))``, ``[x]``, ``1.3::x::``: x at that weight; ``\(`` is a bracket of the text.
  Single parentheses weigh only where other syntax says that weights are meant, as in
  ``t2x.prompts.protect``. Words of weight 0 or less leave.
- ``<lora:x:0.8>`` leaves the text; its name and scale are kept.
- ``Negative prompt: x`` and ``--no x`` leave; x goes to the negative prompt.
- ``BREAK`` begins a new segment; ``AND`` and ``::`` become a comma.
- ``[a:b:0.5]``, ``[a|b]``, ``{a|b}``: the first alternative that says something, for all steps.
- ``__animals__``: the words of its name. ``embedding:x``: the token, if the tokenizer has it.
- Other tags, flags and settings leave.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from t2x.prompts.lexer import NEGATIVE_FLAGS, NUMBER, POSITIVE_HEADING
from t2x.prompts.protect import reads_weights
from t2x.prompts.spans import Source, has_words, inside
from t2x.prompts.syntax import Node, marks, parse

__all__ = ["Note", "Reading", "Segment", "read_prompt"]

EMPHASIS = 1.1  # of one pair of brackets, as in A1111
MAX_WEIGHT = 10.0  # nested brackets grow without end
Segment: TypeAlias = "tuple[tuple[str, float], ...]"
"""Pieces of text with their weights, which are above 0; joined they are the text."""
_Part: TypeAlias = "Node | str"

_NUMBER = re.compile(rf"\s*({NUMBER})\s*")
_ESCAPED = re.compile(r"\\([()\[\]{}])")
_LORA = re.compile(r"<(?:lora|lyco|loha|locon):([^:<>]+)(?::([^<>]*))?>", re.IGNORECASE)
_FLAG = re.compile(r"(?:--|\u2014)([\w-]+)\s*(.*)", re.DOTALL)
_DRAW_PREFIX = re.compile(r"\s*[\d-]*\$\$(?:[^|$]*\$\$)?|\s*[\d.]+::")  # dynamic-prompts
_TAG_CHOICE = re.compile(r"<(?:random|alternate|alt|fromto)[^:]*:(.*)>", re.IGNORECASE | re.DOTALL)
_TAG_LIST = re.compile(r"<(?:wildcard|wc)[^:]*:(.*)>", re.IGNORECASE | re.DOTALL)
_NAME_ONLY = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Note:
    """What became of a piece of a prompt: its own bytes, whether it acts, left, or something else
    stands in its place, and why."""

    syntax: str
    became: Literal["applied", "removed", "replaced", "cut"]
    why: str

    def __str__(self) -> str:
        shown = self.syntax if len(self.syntax) <= 60 else f"{self.syntax[:57]}..."
        return f"{shown!r} {self.became}: {self.why}"


@dataclass(frozen=True)
class Reading:
    """A prompt taken apart: its ``segments``, ``networks`` (LoRAs in order: the tag's own bytes,
    name and scale), what is ruled out, and notes on what has no place in the former."""

    segments: tuple[Segment, ...]
    networks: tuple[tuple[str, str, float], ...] = ()
    negative: str = ""
    notes: tuple[Note, ...] = ()

    @property
    def text(self) -> str:
        """All words without weights, segments joined by commas."""
        return ", ".join(text for segment in self.segments if (text := said(segment)))

    @property
    def weights(self) -> tuple[tuple[str, float], ...]:
        """The pieces whose weight is not 1."""
        return tuple((t.strip(), w) for segment in self.segments for t, w in segment if w != 1)


def said(segment: Segment) -> str:
    """The words of a segment."""
    return "".join(text for text, _ in segment)


def read_prompt(prompt: str, *, tokens: Collection[str] = ()) -> Reading:
    """Read the syntax of ``prompt``. ``tokens`` are names that the tokenizer knows of learned
    embeddings. Marks of ``<rewrite:...>`` are taken off; text without syntax comes back as it is.
    """
    text = _unmarked(prompt)
    tree = parse(text)
    if all(node.kind in ("quote", "url", "token") for node in tree):
        return Reading((((text, 1.0),),))
    return _Reader(text, tree, tokens).read()


def _unmarked(prompt: str) -> str:
    parts, at = [], 0
    for node in marks(prompt):
        start, end = node.body
        parts += [prompt[at : node.start], prompt[start:end]]
        at = node.end
    return "".join([*parts, prompt[at:]])


class _Reader:
    """Walks a tree with a stack of its own, since brackets nest without limit."""

    def __init__(self, text: str, tree: tuple[Node, ...], tokens: Collection[str]) -> None:
        self.text, self.tokens = text, tokens
        self.root = Node("root", 0, len(text), (0, len(text)), tree)
        self.weighted = reads_weights(tree)
        self.source = Source(glued=True)
        self.places: list[tuple[int, float]] = []  # where a piece begins, and its weight
        self.segments: list[Segment] = []
        self.networks: list[tuple[str, str, float]] = []
        self.negatives: list[str] = []
        self.notes: list[Note] = []
        self.left: list[tuple[_Part, float]] = []

    def read(self) -> Reading:
        rules: dict[str, Callable[[Node, str, float], None]] = {
            "weight": self._weight,
            "group": self._group,
            "escape": self._escape,
            "break": self._cut,
            "part": self._cut,
            "schedule": self._schedule,
            "alternation": self._alternation,
            "variant": self._variant,
            "wildcard": self._wildcard,
            "network": self._network,
            "embedding": self._embedding,
            "flag": self._flag,
            "negative": self._negative,
            "settings": self._settings,
        }
        self._push(list(inside(self.text, self.root)), 1.0)
        while self.left:
            part, weight = self.left.pop()
            if isinstance(part, str):
                self._say(part, weight)
            else:
                covered = self.text[part.start : part.end]
                rules.get(part.kind, self._verbatim)(part, covered, weight)
        self._end_segment()
        segments = tuple(s for s in self.segments if s) or ((("", 1.0),),)
        negative = ", ".join(dict.fromkeys(self.negatives))
        return Reading(segments, tuple(self.networks), negative, tuple(self.notes))

    # ---- words ------------------------------------------------------------------------------

    def _push(self, parts: Sequence[_Part], weight: float) -> None:
        self.left += [(part, weight) for part in reversed(parts)]

    def _say(self, piece: str, weight: float) -> None:
        if piece:
            self.places.append((self.source.text(piece), weight))

    def _leave(self, covered: str, why: str) -> None:
        self.source.show("")
        self.notes.append(Note(covered, "removed", why))

    def _once(self, covered: str, why: str) -> None:
        if all(note.why != why for note in self.notes):
            self.notes.append(Note(covered, "replaced", why))

    def _end_segment(self) -> None:
        whole, shift = self.source.finish()
        pieces: list[tuple[str, float]] = []
        ends = [place for place, _ in self.places[1:]] + [len(whole) + shift]
        for (start, weight), end in zip(self.places, ends, strict=False):
            piece = whole[max(0, start - shift) : max(0, end - shift)]
            if piece and pieces and (pieces[-1][1] == weight or not has_words(piece)):
                pieces[-1] = (pieces[-1][0] + piece, pieces[-1][1])
            elif piece:
                pieces.append((piece, weight))
        self.segments.append(tuple(pieces))
        self.source, self.places = Source(glued=True), []

    def _verbatim(self, node: Node, covered: str, weight: float) -> None:
        self._say(covered, weight)

    def _escape(self, node: Node, covered: str, weight: float) -> None:
        self._say(_ESCAPED.sub(r"\1", covered), weight)

    def _weight(self, node: Node, covered: str, weight: float) -> None:
        start, end = node.body
        if covered[0] == "[":
            own = 1 / EMPHASIS
        else:
            number = _NUMBER.search(self.text[node.start : start] + self.text[end : node.end])
            own = float(number[1]) if number else EMPHASIS
        if own <= 0:
            return self._leave(covered, "words of weight 0 or less are not drawn")
        if weight * own > MAX_WEIGHT >= weight:
            self._once(covered, f"a weight is at most {MAX_WEIGHT:g}")
        self._push(list(inside(self.text, node)), round(min(weight * own, MAX_WEIGHT), 6))

    def _group(self, node: Node, covered: str, weight: float) -> None:
        if self.weighted:
            return self._weight(node, covered, weight)
        self._push(["(", *inside(self.text, node), ")"], weight)

    def _cut(self, node: Node, covered: str, weight: float) -> None:
        if covered.strip() == "BREAK":
            return self._end_segment()
        self.source.show("")
        self._say(",", weight)
        why = "parts of a prompt are not drawn apart; a comma stands for it"
        self.notes.append(Note(covered.strip(), "replaced", why))

    # ---- one of several ---------------------------------------------------------------------

    def _schedule(self, node: Node, covered: str, weight: float) -> None:
        options = list(_options(self.text, node, ":"))
        last = options[-1]
        timed = len(options) > 1 and len(last) == 1 and isinstance(last[0], str)
        if not timed or not _NUMBER.fullmatch(str(last[0])):
            own = min(weight / EMPHASIS, MAX_WEIGHT)
            return self._push(list(inside(self.text, node)), round(own, 6))
        self._first(options[:-1], covered, weight, "words don't change during the steps")

    def _alternation(self, node: Node, covered: str, weight: float) -> None:
        options = list(_options(self.text, node, "|"))
        self._first(options, covered, weight, "words don't change from step to step")

    def _variant(self, node: Node, covered: str, weight: float) -> None:
        why = "nothing is drawn by lot here"
        if covered[0] == "$":
            return self._leave(covered, "variables are not known here")
        if covered[0] == "{":
            options = list(_options(self.text, node, "|", verbatim="weight"))
            if options[0] and isinstance(options[0][0], str):
                options[0][0] = _DRAW_PREFIX.sub("", options[0][0], count=1)
            return self._first(options, covered, weight, why)
        if found := _TAG_CHOICE.fullmatch(covered):
            for sign in ("||", "|", ","):
                if sign in found[1]:
                    break
            first = next((o for o in found[1].split(sign) if has_words(o)), "")
            return self._first([[first.strip()]], covered, weight, why)
        if found := _TAG_LIST.fullmatch(covered):
            return self._list(covered, found[1], weight)
        self._leave(covered, "tags of other programs are not known here")

    def _first(
        self, options: Sequence[Sequence[_Part]], covered: str, weight: float, why: str
    ) -> None:
        """The first option that says or does something stands for all."""
        said = next((o for o in options if any(_acts(part) for part in o)), [])
        if not said:
            return self._leave(covered, why)
        self.notes.append(Note(covered, "replaced", f"{why}; the first alternative stands for it"))
        self._push(
            [p.strip() if isinstance(p, str) and len(said) == 1 else p for p in said], weight
        )

    def _wildcard(self, node: Node, covered: str, weight: float) -> None:
        self._list(covered, covered.strip("_"), weight)

    def _list(self, covered: str, name: str, weight: float) -> None:
        """A list that lies in a file of the user's stands for words of its own name."""
        words = " ".join(_NAME_ONLY.findall(re.split(r"[/\\]", name.partition("(")[0])[-1]))
        if not words:
            return self._leave(covered, "lists of words are not read here")
        why = f"lists of words are not read here; its name stands for it: {words!r}"
        self.notes.append(Note(covered, "replaced", why))
        self._say(words, weight)

    # ---- beside the words -------------------------------------------------------------------

    def _network(self, node: Node, covered: str, weight: float) -> None:
        found = _LORA.fullmatch(covered)
        if found is None:
            return self._leave(covered, "only LoRAs are applied, as in <lora:name:0.8>")
        self.source.show("")
        scales = [s.partition("=")[2] or s for s in (found[2] or "1").split(":")]
        number = _NUMBER.match(scales[0])
        if number is None:
            self.notes.append(Note(covered, "removed", f"{scales[0]!r} is no scale; give a number"))
            return
        self.networks.append((covered, found[1].strip(), float(number[1])))

    def _embedding(self, node: Node, covered: str, weight: float) -> None:
        name = covered.partition(":")[2]
        token = next((t for t in (name, f"<{name}>") if t in self.tokens), None)
        if token is None:
            return self._leave(covered, "the tokenizer knows no such embedding")
        self.notes.append(Note(covered, "applied", f"the token {token!r} is in the text"))
        self._say(token, weight)

    def _flag(self, node: Node, covered: str, weight: float) -> None:
        found = _FLAG.fullmatch(covered)
        if found and found[1].lower().replace("-", "_") in NEGATIVE_FLAGS:
            return self._rule_out(found[2])
        self._leave(covered, "flags are not read here; give settings as options")

    def _negative(self, node: Node, covered: str, weight: float) -> None:
        self._rule_out(POSITIVE_HEADING.sub("", re.split("[:：]", covered, maxsplit=1)[-1]))

    def _rule_out(self, words: str) -> None:
        self.source.show("")
        if words := words.strip(" \t\n,"):
            self.negatives.append(words)

    def _settings(self, node: Node, covered: str, weight: float) -> None:
        self._leave(covered, "settings of another program are not read here; give them as options")


def _acts(part: _Part) -> bool:
    return has_words(part) if isinstance(part, str) else True


def _options(text: str, node: Node, sign: str, *, verbatim: str = "") -> Iterator[list[_Part]]:
    """What stands between the signs of a bracket that belong to no node inside; a node of kind
    ``verbatim`` that has no bracket is text (chances, as in ``{0.3::a|0.7::b}``)."""
    option: list[_Part] = []
    for part in inside(text, node):
        if isinstance(part, Node) and part.kind == verbatim and text[part.start] not in "([":
            part = text[part.start : part.end]
        if isinstance(part, str):
            head, *rest = part.split(sign)
            before = option.pop() if option and isinstance(option[-1], str) else ""
            option.append(f"{before}{head}")
            for piece in rest:
                yield option
                option = [piece]
        else:
            option.append(part)
    yield option
