r"""Takes what a language model must not touch out of a prompt and puts it back byte for byte.

``t2x.prompts.syntax`` reads the prompt; here its nodes become spans. Three forms leave the text.
A *tag* means nothing inside the sentence (``<lora:x:0.8>``, ``embedding:x``, ``--ar 16:9``): the
model sees nothing of it, and it returns at the start or at the end. A *phrase* is shown as its
plain words: ``(red car:1.2)``, ``[dull]`` and ``miku \(vocaloid\)``. An *item* stands for something
inside the sentence and is shown as a name such as ``ITEM1`` or ``"TEXT1"``: ``[cat:dog:0.5]``,
``{a|b}``, ``__animal__``, a URL, quoted text.

``BREAK``, ``AND`` and ``::`` cut a prompt into regions that are rewritten on their own; what is
ruled out ("Negative prompt: ...", a part of negative weight) and the settings stay as they are.
With ``<rewrite:...>`` in a prompt, only what is marked is rewritten and the rest comes back as it
was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from t2x.prompts import restore
from t2x.prompts.spans import Region, Span, StandIns, read_region
from t2x.prompts.syntax import Node, marks, parse, walk

__all__ = ["Protected", "Region", "Span", "protect", "reads_weights", "syntax"]

_KEPT = ("break", "part", "negative", "settings")
_MINUS = re.compile(r"\s*::?\s*-")  # the weight of what is ruled out
# Whoever writes these draws with a generator that reads parentheses as weights.
_WEIGHTED = (
    "network", "embedding", "weight", "escape", "schedule", "alternation", "variant", "break",
    "settings",
)  # fmt: skip

_BRACKETS = ("\\(", "\\)")  # escapes that protect no words


@dataclass(frozen=True)
class Protected:
    """A prompt in pieces: strings stay as they are, regions are rewritten.

    ``weighted`` says that the prompt is written for a generator that reads parentheses as weights;
    ``names`` are what the names of items begin with.
    """

    original: str
    pieces: tuple[str | Region, ...]
    weighted: bool = False
    names: tuple[str, ...] = ()

    @property
    def regions(self) -> tuple[Region, ...]:
        """Regions that hold words to rewrite, in order."""
        return tuple(p for p in self.pieces if isinstance(p, Region) and p.rewritable)

    @property
    def sources(self) -> tuple[str, ...]:
        """What the model gets to see: one text per region."""
        return tuple(region.source for region in self.regions)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Every protected span of every region, in order."""
        return tuple(s for p in self.pieces if isinstance(p, Region) for s in p.spans)

    @property
    def unmarked(self) -> str:
        """The original without the marks of ``<rewrite:...>``, which no generator knows."""
        return "".join(p if isinstance(p, str) else p.original for p in self.pieces)

    def restore(self, answers: Sequence[str]) -> str:
        """Put every span back into the model's ``answers``, one per region in order.

        An answer that is its region's source gives the region's own bytes, and if all are, the
        whole is the original, marks of ``<rewrite:...>`` included. A stand-in that the
        model lost stays lost: ``broken`` tells. A phrase that it doesn't say goes to the end.
        Parentheses that it wrote are escaped when the prompt is ``weighted``. ValueError if there
        are more or fewer answers than ``sources``.
        """
        if len(answers) != len(self.sources):
            raise ValueError(
                f"{len(answers)} answers for {len(self.sources)} sources; give one each"
            )
        if tuple(answers) == self.sources:
            return self.original
        left = iter(answers)
        parts: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                parts.append(piece)
            elif not piece.rewritable or (answer := next(left)) == piece.source:
                parts.append(piece.original)
            else:
                parts.append(restore.restore_region(piece, answer, escape=self.weighted))
        return "".join(parts)

    def nameless(self, text: str) -> str:
        """``text`` of a model without names of items, which are words of no language."""
        return restore.without_stand_ins(self.names, text)

    def unplaced(self, answer: str) -> list[Span]:
        """Weighted phrases that ``answer`` has less often than the prompt: ``restore`` puts them at
        the end.
        """
        return restore.missing_phrases(self.spans, answer)

    def broken(self, text: str) -> list[str]:
        """Spans that ``text`` has less often, or more often, than the original prompt; and names
        of items that stand for nothing.
        """
        if not self.regions:
            return []
        names = dict.fromkeys(span.text for span in self.spans)
        kept = (
            p if isinstance(p, str) else "\0".join(s.text for s in p.spans) for p in self.pieces
        )
        least = restore.occurrences(names, "\0".join(kept))
        # Quotation marks of two neighbours can look like a third quotation.
        most = least | restore.occurrences(names, self.original)
        if self.weighted:  # the user's brackets outside of any span are escaped in a new text
            inside = [
                *(p for p in self.pieces if isinstance(p, str)),
                *(s.text for s in self.spans),
            ]
            for name in names.keys() & set(_BRACKETS):
                most[name] += self.original.count(name[1]) - "".join(inside).count(name[1])
        found = restore.occurrences(names, text)
        wrong = [name for name in names if not least[name] <= found[name] <= most[name]]
        own = set(restore.stand_ins_in(self.names, self.original))
        invented = dict.fromkeys(restore.stand_ins_in(self.names, text))
        return wrong + [name for name in invented if name not in own]


def protect(prompt: str) -> Protected:
    """Cut ``prompt`` into pieces that stay and regions that may be rewritten."""
    parts = list(_marked(prompt))
    trees = [parse(text) for text, _ in parts]
    weighted = any(reads_weights(tree) for tree in trees)
    names = StandIns(prompt)
    pieces: list[str | Region] = []
    for (text, mine), tree in zip(parts, trees, strict=True):
        pieces += _cut(text, tree, names=names, weighted=weighted) if mine else [text]
    return Protected(prompt, tuple(p for p in pieces if p != ""), weighted, names.names)


def reads_weights(tree: tuple[Node, ...]) -> bool:
    """Whether a parsed prompt is written for a generator that reads parentheses as weights."""
    return any(node.kind in _WEIGHTED for node in walk(tree, into="group"))


def syntax(text: str) -> dict[str, str]:
    """Kinds of syntax in ``text`` with the first example of each; quotes and escapes are text."""
    found: dict[str, str] = {}
    for node in walk(parse(text), into="group"):
        if node.kind not in ("quote", "escape"):
            found.setdefault(node.kind, text[node.start : node.end])
    return found


def _marked(prompt: str) -> Iterator[tuple[str, bool]]:
    """``prompt`` in parts: each with whether it is to be rewritten."""
    marked = marks(prompt)
    if not marked:
        yield prompt, True
        return
    at = 0
    for node in marked:
        start, end = node.body
        yield prompt[at : node.start], False
        yield prompt[start:end], True
        at = node.end
    yield prompt[at:], False


def _cut(
    text: str, tree: Sequence[Node], *, names: StandIns, weighted: bool
) -> Iterator[str | Region]:
    """Regions of ``text`` and what stands between them, blanks at the seams included."""
    at, own = 0, list[Node]()
    for number, node in enumerate(tree):
        if node.kind not in _KEPT:
            own.append(node)
            continue
        before = text[at : node.start].rstrip()
        if _MINUS.match(text, node.start, node.end):
            yield before
        else:
            yield from _region(text, at, at + len(before), own, names=names, weighted=weighted)
        following = tree[number + 1].start if number + 1 < len(tree) else len(text)
        after = text[node.end : following]
        end = node.end + len(after) - len(after.lstrip())
        yield text[at + len(before) : end]
        at, own = end, []
    yield from _region(text, at, len(text), own, names=names, weighted=weighted)


def _region(
    text: str, start: int, end: int, nodes: Sequence[Node], *, names: StandIns, weighted: bool
) -> Iterator[Region]:
    if start < end:
        flat = tuple(nodes) if weighted else tuple(walk(tuple(nodes), into="group"))
        yield read_region(text, start, end, nodes=flat, names=names)
