"""General English for pretraining: statements about people, places and furniture, and the same in
fewer words.

A real language model knows relative clauses, pronouns and shared adjectives before it ever meets a
request for a picture. This is that knowledge for the world's small one: its nouns and adjectives
are none of the world's classes, colours or synonyms, and nothing here asks for a picture.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from t2x.world.words import articled as _a

__all__ = ["ADJECTIVES", "NOUNS", "PEOPLE", "restatement"]

_NOUNS = """
lamp table stone bridge river house tower door window garden fence well statue tree barn mirror
shelf basket bottle candle drum ladder pillow coin spoon vase wheel wall gate hill
"""

_PEOPLE = """
farmer king queen teacher sailor doctor baker child neighbour painter guard singer judge nurse
hunter miller student uncle aunt driver
"""

_ADJECTIVES = """
old new tall small large heavy narrow round square broken clean dirty empty full happy sad quiet
loud rich poor young strong weak warm cold wooden famous lucky tired brave
"""

NOUNS: tuple[str, ...] = tuple(_NOUNS.split())
PEOPLE: tuple[str, ...] = tuple(_PEOPLE.split())
ADJECTIVES: tuple[str, ...] = tuple(_ADJECTIVES.split())
_PLACES: tuple[tuple[str, str], ...] = (
    ("left", "right"),
    ("right", "left"),
    ("above", "below"),
    ("below", "above"),
    ("behind", "in front of"),
    ("in front of", "behind"),
)
_VERBS = ("stands", "is", "lies", "waits", "rests")


def _words(rng: random.Random) -> tuple[str, str, str, str]:
    first, second = rng.sample((*NOUNS, *PEOPLE), 2)
    one, other = rng.sample(ADJECTIVES, 2)
    return first, second, one, other


def _of(place: str) -> str:
    return f"{place} of" if place in ("left", "right") else place


def _whose_property(rng: random.Random) -> tuple[str, str]:
    first, second, one, other = _words(rng)
    who = "who" if first in PEOPLE else rng.choice(("that", "which"))
    verb = rng.choice(_VERBS)
    if rng.random() < 0.5:
        return f"the {first} {who} is {one} {verb} here", f"the {one} {first} {verb} here"
    return (
        f"{_a(first)} {who} is {one} and {_a(second)} that is {other}",
        f"{_a(f'{one} {first}')} and {_a(f'{other} {second}')}",
    )


def _said_later(rng: random.Random) -> tuple[str, str]:
    first, second, one, other = _words(rng)
    it = "he" if first in PEOPLE else "it"
    form = rng.randrange(3)
    if form == 0:
        return f"{_a(first)}. {it} is {one}", _a(f"{one} {first}")
    short = f"{_a(f'{one} {first}')} and {_a(f'{other} {second}')}"
    if form == 1:
        return f"{_a(first)} and {_a(second)}. the former is {one}, the latter {other}", short
    return f"{_a(first)} and {_a(second)}. the first one is {one} and the other one {other}", short


def _shared(rng: random.Random) -> tuple[str, str]:
    first, second, one, _ = _words(rng)
    both = rng.choice((f"both {one}", f"both of them {one}", f"each of them {one}"))
    return (
        f"{_a(first)} and {_a(second)}, {both}",
        f"{_a(f'{one} {first}')} and {_a(f'{one} {second}')}",
    )


def _placed(rng: random.Random) -> tuple[str, str]:
    first, second, _, _ = _words(rng)
    place, other = rng.choice(_PLACES)
    who = "who" if first in PEOPLE else "that"
    its, it = ("his", "him") if first in PEOPLE else ("its", "it")
    short = f"{_a(first)} {_of(place)} {_a(second)}"
    turned = f"{_a(second)} {_of(place)} {_a(first)}"
    if other in ("left", "right") and rng.random() < 0.5:
        texts = (
            (f"{_a(first)} {who} has {_a(second)} on {its} {other}", short),
            (f"{_a(first)}, and to {its} {place} {_a(second)}", turned),
        )
    else:
        texts = (
            (f"{_a(first)} {who} {rng.choice(_VERBS)} {_of(place)} {_a(second)}", short),
            (f"{_a(first)}, and {_of(place)} {it} {_a(second)}", turned),
        )
    return rng.choice(texts)


def _counted(rng: random.Random) -> tuple[str, str]:
    first, *_ = _words(rng)
    number = rng.choice(("two", "three", "four", "five", "six"))
    if first == "child":
        first = "guard"
    many = rng.choice((f"{first}s, {number} of them", f"{first}s, of which there are {number}"))
    return many, f"{number} {first}s"


_FORMS: tuple[Callable[[random.Random], tuple[str, str]], ...] = (
    _whose_property,
    _said_later,
    _shared,
    _placed,
    _counted,
)


def restatement(rng: random.Random) -> tuple[str, str]:
    """A statement and the same in fewer words."""
    return rng.choice(_FORMS)(rng)
