"""Building blocks of user prompts: noun phrases, relations, small talk and slips of the keys."""

from __future__ import annotations

import random
from collections.abc import Callable

from t2x.world.captions import NUMBER_WORDS, plural
from t2x.world.lexicon import COLOR_SYNONYMS, COUNT_NOUNS, RELATION_PHRASES, SYNONYMS, plural_of
from t2x.world.scene import CLASSES, COLORS, INVERSE, Group, Scene
from t2x.world.words import articled, joined

__all__ = [
    "CHAT_FRAMES",
    "RAMBLE_FRAMES",
    "add_typos",
    "bare",
    "digit_phrase",
    "group_count_phrase",
    "phrase",
    "plain_phrase",
    "relation_words",
    "said",
    "side_phrase",
    "synonym_phrase",
    "verb",
]

# "{}" is the content. No frame may name a class, a colour, a number or a side.
CHAT_FRAMES: tuple[str, ...] = (
    "could you draw me {}?",
    "can you please draw {}?",
    "please make {}",
    "please create an image with {}",
    "i want {}",
    "i'd like to see {}",
    "hi! i need a picture of {}, thanks",
    "draw {} for me please",
    "hey, show me {}",
    "would you paint {}?",
    "generate an image of {}",
    "give me {}, please",
    "make me a drawing of {}",
    "{} please",
    "i would love {}, can you do that?",
)
RAMBLE_FRAMES: tuple[str, ...] = (
    "for my niece's greeting card: {}",
    "it was a long day at work, so cheer me up with {}",
    "{}, just something simple for a sticker",
    "my sister keeps talking about it, so here goes: {}",
    "we need an illustration for the newsletter. it should show {}. nothing fancy",
    "idea for a poster - {} - keep it clean",
    "not sure how to say this, but i imagine {}",
    "{}. that is all i can think of today",
    "homework for school, page about everyday things, {}",
    "i had a dream last night with {} in it",
    "you know what would be nice? {}",
    "ok so picture this: {}, in a clear and friendly way",
)
_KEY_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
_KNOWN = frozenset(word for name in (*CLASSES, *COLORS) for word in name.split())
_MIN_TYPO_LENGTH = 4

Phraser = Callable[[Group, random.Random], str]


def phrase(name: str, color: str | None, count: int, number: str | None = None) -> str:
    """Noun phrase: ``a red cat``, or with a count ``two red cats``; ``number`` replaces the number
    word.
    """
    tinted = f"{color} " if color else ""
    if count == 1:
        return f"{number} {tinted}{name}" if number else articled(f"{tinted}{name}")
    return f"{number or NUMBER_WORDS[count]} {tinted}{plural_of(name)}"


def plain_phrase(group: Group, rng: random.Random) -> str:
    """Noun phrase in words that captions use."""
    number = "one" if group.count == 1 and rng.random() < 0.12 else None
    return phrase(group.cls, group.color, group.count, number)


def synonym_phrase(group: Group, rng: random.Random) -> str:
    """Noun phrase whose class, and often colour, is a synonym."""
    name = rng.choice(SYNONYMS[group.cls])
    color = group.color
    if color and rng.random() < 0.6:
        color = rng.choice(COLOR_SYNONYMS[color])
    return phrase(name, color, group.count)


def group_count_phrase(group: Group, rng: random.Random) -> str:
    """Noun phrase with a collective noun for its count: ``a pair of cats``."""
    if group.count == 1:
        return plain_phrase(group, rng)
    number = rng.choice(COUNT_NOUNS[group.count])
    return phrase(group.cls, group.color, group.count, number)


def digit_phrase(group: Group, rng: random.Random) -> str:
    """Noun phrase with its count in digits: ``3 cats``."""
    number = rng.choice((str(group.count), str(group.count), f"{group.count}x"))
    return phrase(group.cls, group.color, group.count, number)


def relation_words(scene: Scene, rng: random.Random) -> str:
    """Words for the relation that ``scene`` states, any that people use."""
    return rng.choice(RELATION_PHRASES[scene.relation or ""])


def said(
    scene: Scene, rng: random.Random, phraser: Phraser = plain_phrase, *, varied: bool = False
) -> str:
    """Content of ``scene`` in one clause; ``varied`` allows relation words that captions do not
    use.
    """
    if scene.relation is None:
        return joined([phraser(g, rng) for g in scene.groups])
    words = relation_words(scene, rng) if varied else RELATION_PHRASES[scene.relation][0]
    return f"{phraser(scene.groups[0], rng)} {words} {phraser(scene.groups[1], rng)}"


def side_phrase(relation: str, rng: random.Random, *, of: str) -> str:
    """Where the second group lies as seen from the first, ``of`` being the first one's name or
    pronoun.

    ``side_phrase("left of", rng, of="the cat")`` is ``to the right of the cat``.
    """
    return f"{rng.choice(RELATION_PHRASES[INVERSE[relation]])} {of}"


def verb(group: Group, singular: str, many: str) -> str:
    """Form of a verb that agrees with the group's count."""
    return singular if group.count == 1 else many


def bare(group: Group) -> str:
    """The group's class, in the plural when there are several."""
    return group.cls if group.count == 1 else plural(group.cls)


def _slip(word: str, rng: random.Random) -> str:
    """One slip inside ``word``: swap, drop, double or hit the neighbouring key."""
    at = rng.randrange(1, len(word) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == 1:
        return word[:at] + word[at + 1 :]
    if kind == 2:
        return word[:at] + word[at] + word[at:]
    row = next((r for r in _KEY_ROWS if word[at] in r), None)
    if row is None:
        return word
    neighbours = row[max(0, row.index(word[at]) - 1) : row.index(word[at]) + 2]
    return word[:at] + rng.choice(neighbours) + word[at + 1 :]


def add_typos(text: str, rng: random.Random) -> str:
    """Make one or two slips in words of at least four letters; none turns a word into a name of the
    world.
    """
    words = text.split(" ")
    long = [i for i, word in enumerate(words) if len(word) >= _MIN_TYPO_LENGTH and word.isalpha()]
    for index in rng.sample(long, min(len(long), rng.randint(1, 2))):
        slipped = words[index]
        while slipped == words[index] or slipped in _KNOWN:
            slipped = _slip(words[index], rng)
        words[index] = slipped
    return " ".join(words)
