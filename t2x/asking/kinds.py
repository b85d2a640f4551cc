"""Kinds of things in the emoji world as a tree: what "a pet" may be, and how to ask for a thing in
few questions of at most four pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from t2x.asking.records import MOST_OPTIONS
from t2x.world.captions import plural
from t2x.world.scene import CLASSES

__all__ = ["ROOT", "Node", "category_pattern", "category_words", "node_of", "split"]


@dataclass(frozen=True)
class Node:
    """A kind of things: its ``name``, the classes that it covers, and what it divides into; a class
    has no children."""

    name: str
    kinds: frozenset[str]
    children: tuple[Node, ...] = ()

    @property
    def plural(self) -> str:
        """Several of them."""
        return _PLURALS.get(self.name, plural(self.name))


_PLURALS = {
    "fruit": "fruit",
    "food": "food",
    "food or drink": "food or drink",
    "fast food": "fast food",
    "furniture": "furniture",
    "something": "things",
    "piece of furniture": "pieces of furniture",
    "thing to read or watch": "things to read or watch",
    "thing to wear or carry": "things to wear or carry",
}
_Tree: TypeAlias = "dict[str, _Tree | str]"
_TREE: _Tree = {
    "animal": {
        "pet": "cat, dog, bird",
        "farm animal": "horse, cow, sheep",
        "wild animal": "elephant, bear, zebra, giraffe",
    },
    "food or drink": {
        "fruit or vegetable": {"fruit": "apple, banana", "vegetable": "broccoli, carrot"},
        "snack": "pizza, hot dog, sandwich",
        "sweet": "donut, cake",
        "drink": "wine glass, cup",
    },
    "vehicle": {
        "two-wheeler": "bicycle, motorcycle",
        "road vehicle": "car, bus, truck",
        "long-distance vehicle": "train, airplane, boat",
    },
    "everyday thing": {
        "household thing": {
            "piece of furniture": "chair, couch, potted plant",
            "thing to read or watch": "tv, laptop, book, clock",
        },
        "thing to wear or carry": "umbrella, backpack, handbag, tie",
        "toy": "teddy bear, kite, skateboard",
        "road sign": "traffic light, stop sign",
    },
}
# Other words that people use for several classes at once, by the parts of the tree that they mean.
_MORE_WORDS: dict[str, str] = {
    "creature": "animal",
    "beast": "animal",
    "zoo animal": "wild animal",
    "food": "fruit or vegetable, snack, sweet",
    "meal": "snack",
    "fast food": "snack",
    "veg": "vegetable",
    "dessert": "sweet",
    "treat": "sweet",
    "furniture": "piece of furniture",
    "gadget": "thing to read or watch",
    "device": "thing to read or watch",
    "accessory": "thing to wear or carry",
    "bag": "thing to wear or carry",
    "plaything": "toy",
    "sign": "road sign",
    "object": "thing",
    "item": "thing",
    "something": "thing",
}


def _leaf(name: str) -> Node:
    if name not in CLASSES:
        raise ValueError(f"{name!r} is no class of the world")
    return Node(name, frozenset((name,)))


def _node(name: str, children: tuple[Node, ...]) -> Node:
    return Node(name, frozenset().union(*(child.kinds for child in children)), children)


def _grown(name: str, part: _Tree | str) -> Node:
    if isinstance(part, str):
        return _node(name, tuple(map(_leaf, part.split(", "))))
    return _node(name, tuple(_grown(*item) for item in part.items()))


ROOT = _grown("thing", _TREE)


def _all(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _all(child)


@lru_cache(maxsize=1024)
def node_of(kinds: frozenset[str]) -> Node:
    """The smallest node that covers all of ``kinds``, which are classes of the world."""
    return min((n for n in _all(ROOT) if kinds <= n.kinds), key=lambda n: len(n.kinds))


def split(kinds: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """Divide several classes into two to four parts, each with a name: up to four classes into
    these, more by the tree."""
    if len(kinds) <= MOST_OPTIONS:
        return [(name, frozenset((name,))) for name in CLASSES if name in kinds]
    parts = []
    for child in node_of(kinds).children:
        if own := kinds & child.kinds:
            parts.append((node_of(own).name, own))
    return parts


@lru_cache(maxsize=1)
def category_words() -> dict[str, tuple[frozenset[str], str]]:
    """Words for several classes at once: which, and whether the word means "one", "many", or "any"
    number, as "food" does."""
    words = {node.name: node.kinds for node in _all(ROOT) if node.children}
    for word, names in _MORE_WORDS.items():
        words[word] = frozenset().union(*(words[name] for name in names.split(", ")))
    found: dict[str, tuple[frozenset[str], str]] = {}
    for word, kinds in words.items():
        several = _PLURALS.get(word, plural(word))
        found[several] = (kinds, "many")
        found[word] = (kinds, "any" if several == word else "one")
    return found


def category_pattern() -> re.Pattern[str]:
    """Finds those words, longest first."""
    words = sorted(category_words(), key=len, reverse=True)
    return re.compile(rf"(?<![\w'-])(?:{'|'.join(map(re.escape, words))})(?![\w'-])")
