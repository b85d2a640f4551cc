"""Kinds of things in the emoji world as a tree: what "a pet" may be, and how to ask for a thing in
few questions of at most four pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

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
    "fast food": "fast food",
    "furniture": "furniture",
    "something": "things",
    "piece of furniture": "pieces of furniture",
    "thing to read or watch": "things to read or watch",
    "thing to wear or carry": "things to wear or carry",
}
_TREE: dict[str, dict[str, str]] = {
    "animal": {
        "pet": "cat, dog, bird",
        "farm animal": "horse, cow, sheep",
        "wild animal": "elephant, bear, zebra, giraffe",
    },
    "food": {
        "fruit": "apple, banana",
        "vegetable": "broccoli, carrot",
        "snack": "pizza, hot dog, sandwich",
        "treat": "donut, cake, wine glass, cup",
    },
    "vehicle": {
        "two-wheeler": "bicycle, motorcycle",
        "road vehicle": "car, bus, truck",
        "long-distance vehicle": "train, airplane, boat",
        "road sign": "traffic light, stop sign",
    },
    "everyday thing": {
        "household thing": "chair, couch, potted plant, clock",
        "thing to read or watch": "tv, laptop, book",
        "thing to wear or carry": "umbrella, backpack, handbag, tie",
        "toy": "teddy bear, kite, skateboard",
    },
}
# Other words that people use for several classes at once.
_MORE_WORDS: dict[str, str] = {
    "creature": "animal",
    "beast": "animal",
    "meal": "food",
    "zoo animal": "wild animal",
    "veg": "vegetable",
    "fast food": "snack",
    "dessert": "treat",
    "sweet": "treat",
    "piece of furniture": "household thing",
    "furniture": "household thing",
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


ROOT = _node(
    "thing",
    tuple(
        _node(
            name,
            tuple(_node(n, tuple(map(_leaf, row.split(", ")))) for n, row in parts.items()),
        )
        for name, parts in _TREE.items()
    ),
)


def _all(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _all(child)


@lru_cache(maxsize=1024)
def node_of(kinds: frozenset[str]) -> Node:
    """The smallest node that covers all of ``kinds``, which are classes of the world."""
    return min((n for n in _all(ROOT) if kinds <= n.kinds), key=lambda n: len(n.kinds))


def split(kinds: frozenset[str]) -> list[tuple[str, frozenset[str]]]:
    """Divide several classes into two to four parts, each with a name: a part that is one class has
    that one's."""
    parts = []
    for child in node_of(kinds).children:
        if own := kinds & child.kinds:
            parts.append((node_of(own).name, own))
    return parts


@lru_cache(maxsize=1)
def category_words() -> dict[str, tuple[frozenset[str], str]]:
    """Words for several classes at once: which, and whether the word means "one", "many", or "any"
    number, as "food" does."""
    by_name = {node.name: node for node in _all(ROOT) if node.children}
    words = by_name | {word: by_name[name] for word, name in _MORE_WORDS.items()}
    found: dict[str, tuple[frozenset[str], str]] = {}
    for word, node in words.items():
        several = _PLURALS.get(word, plural(word))
        found[several] = (node.kinds, "many")
        found[word] = (node.kinds, "any" if several == word else "one")
    return found


def category_pattern() -> re.Pattern[str]:
    """Finds those words, longest first."""
    words = sorted(category_words(), key=len, reverse=True)
    return re.compile(rf"(?<![\w'-])(?:{'|'.join(map(re.escape, words))})(?![\w'-])")
