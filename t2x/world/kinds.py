"""The phrasing kinds: each is one way to ask for a scene, and says which scenes it can ask for.

A writer takes a scene that suits its kind and gives text that means exactly that scene.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from t2x.world.captions import NUMBER_WORDS, plural
from t2x.world.lexicon import COLOR_THINGS, RIDDLES
from t2x.world.phrasing import (
    CHAT_FRAMES,
    RAMBLE_FRAMES,
    add_typos,
    bare,
    digit_phrase,
    group_count_phrase,
    phrase,
    plain_phrase,
    relation_words,
    said,
    side_phrase,
    synonym_phrase,
    verb,
)
from t2x.world.scene import CLASSES, COLORS, INVERSE, Group, Scene
from t2x.world.words import articled, joined

__all__ = ["HELD_OUT_KINDS", "KINDS", "PLAIN_KINDS", "Kind"]

Rng = random.Random
_NEAR = ("next to", "beside", "near")


@dataclass(frozen=True)
class Kind:
    """``write`` gives the text of a scene; ``suits`` says whether the kind can tell it."""

    write: Callable[[Scene, Rng], str]
    suits: Callable[[Scene], bool] = lambda scene: True


def _some(rng: Rng, scene: Scene, suits: Callable[[Group], bool]) -> set[Group]:
    """At least one of the groups that suit, each other one with even odds."""
    fit = [g for g in scene.groups if suits(g)]
    sure = rng.choice(fit)
    return {g for g in fit if g == sure or rng.random() < 0.5}


def _any_color(scene: Scene) -> bool:
    return any(g.color for g in scene.groups)


def _all_color(scene: Scene) -> bool:
    return all(g.color for g in scene.groups)


def _any_count(scene: Scene) -> bool:
    return any(g.count > 1 for g in scene.groups)


def _two(scene: Scene) -> bool:
    return len(scene.groups) == 2


def _colorless(group: Group) -> Group:
    return replace(group, color=None)


# ---- kinds that training sees -------------------------------------------------------------------


def _plain(scene: Scene, rng: Rng) -> str:
    if len(scene.groups) == 1 and scene.num_objects == 1 and rng.random() < 0.3:
        group = scene.groups[0]
        return f"{group.color} {group.cls}" if group.color else group.cls
    return said(scene, rng)


def _photo(scene: Scene, rng: Rng) -> str:
    lead = rng.choice(("a photo of", "a photo of", "a picture of", "photo of", "picture of"))
    return f"{lead} {said(scene, rng)}"


def _synonym(scene: Scene, rng: Rng) -> str:
    chosen = _some(rng, scene, lambda g: True)

    def phraser(group: Group, rng: Rng) -> str:
        return (synonym_phrase if group in chosen else plain_phrase)(group, rng)

    return said(scene, rng, phraser, varied=rng.random() < 0.3)


def _group_count(scene: Scene, rng: Rng) -> str:
    return said(scene, rng, group_count_phrase)


def _digits(scene: Scene, rng: Rng) -> str:
    return said(scene, rng, digit_phrase)


def _negation(scene: Scene, rng: Rng) -> str:
    text = said(scene, rng)
    group = rng.choice(scene.groups)
    choices = [f"{text}, no {{}}", f"{text} but no {{}}", f"{text} without any {{}}"]
    choices += [f"{text} and nothing like {{}}", f"no {{}}, just {text}", f"not {{}} but {text}"]
    if group.color and rng.random() < 0.5:
        wrong = rng.choice([c for c in COLORS if c not in {g.color for g in scene.groups}])
        return f"{text}, {rng.choice(('not', 'and definitely not', 'never'))} {wrong}"
    if group.count > 1 and len(scene.groups) == 1 and rng.random() < 0.5:
        wrong_count = rng.choice([n for n in (1, 2, 3, 4) if n != group.count])
        return f"{text}, not {NUMBER_WORDS[wrong_count]}"
    absent = rng.choice(
        [c for c in CLASSES if not any(c in g.cls or g.cls in c for g in scene.groups)]
    )
    return rng.choice(choices).format(plural(absent))


def _chat(scene: Scene, rng: Rng) -> str:
    return rng.choice(CHAT_FRAMES).format(said(scene, rng))


def _typo(scene: Scene, rng: Rng) -> str:
    lead = rng.choice(("", "", "a photo of ", "a picture of "))
    return add_typos(lead + said(scene, rng), rng)


def _telegraphic(scene: Scene, rng: Rng) -> str:
    places = {"left of": "left", "right of": "right", "above": "top", "below": "bottom"}
    form = rng.choice(("{} x{}", "{1}x {0}", "{1} {0}"))
    relations = [scene.relation, INVERSE.get(scene.relation or "")]
    style = rng.choice((" {}", " ({})", " on {}", " at {}"))
    words = []
    for i, group in enumerate(scene.groups):
        name = f"{group.color} {bare(group)}" if group.color else bare(group)
        word = form.format(name, group.count) if group.count > 1 else name
        words.append(word + style.format(places[relations[i] or ""]) if scene.relation else word)
    return rng.choice((", ", " / ", " + ", "; ", " | ")).join(words)


def _inverted(scene: Scene, rng: Rng) -> str:
    if scene.relation:
        words = relation_words(scene, rng)
        first, second = (plain_phrase(g, rng) for g in scene.groups)
        be = verb(scene.groups[0], "is", "are")
        return f"{words} {second}" + rng.choice((", ", f" there {be} ", f" {be} ", ": ")) + first
    parts = []
    for g in scene.groups:
        number = rng.choice((", {}", ", exactly {}", ", {} in all")).format(NUMBER_WORDS[g.count])
        color = rng.choice((" in {}", " coloured {}", ", {}")).format(g.color) if g.color else ""
        thing = plural(g.cls) if g.count > 1 else articled(g.cls)
        parts.append(thing + color + (number if g.count > 1 else ""))
    return joined(parts)


def _active(scene: Scene, rng: Rng) -> str:
    words = relation_words(scene, rng) if scene.relation else rng.choice(_NEAR)
    singular, many = rng.choice(
        (
            ("sits", "sit"),
            ("is", "are"),
            ("stands", "stand"),
            ("is placed", "are placed"),
            ("can be seen", "can be seen"),
            ("has been put", "have been put"),
        )
    )
    first, second = (plain_phrase(g, rng) for g in scene.groups)
    return f"{first} {verb(scene.groups[0], singular, many)} {words} {second}"


def _definite(scene: Scene, rng: Rng) -> str:
    """Name things first, say how they are afterwards, by name."""
    if scene.relation:
        words = relation_words(scene, rng)
        names = [bare(g) for g in scene.groups]
        be = verb(scene.groups[0], "is", "are")
        lead = joined([plain_phrase(g, rng) for g in scene.groups])
        return f"{lead}. the {names[0]} {be} {words} the {names[1]}"
    lead = joined([plain_phrase(_colorless(g), rng) for g in scene.groups])
    told_colors = [
        f"the {bare(g)} {verb(g, 'is', 'are')} {g.color}" for g in scene.groups if g.color
    ]
    return f"{lead}. {joined(told_colors)}"


def _riddle(scene: Scene, rng: Rng) -> str:
    chosen = _some(rng, scene, lambda g: True)

    def phraser(group: Group, rng: Rng) -> str:
        if group not in chosen:
            return plain_phrase(group, rng)
        riddle = rng.choice(RIDDLES[group.cls])
        color = f"{group.color} " if group.color else ""
        if group.count > 1:
            return f"{NUMBER_WORDS[group.count]} of the {color}{riddle}"
        return f"the {color}{riddle}"

    return said(scene, rng, phraser)


def _simile(scene: Scene, rng: Rng) -> str:
    chosen = _some(rng, scene, lambda g: g.color is not None)

    def phraser(group: Group, rng: Rng) -> str:
        if group not in chosen or group.color is None:
            return plain_phrase(group, rng)
        thing = rng.choice(COLOR_THINGS[group.color])
        if rng.random() < 0.5:
            return f"{phrase(group.cls, None, group.count)} as {group.color} as {thing}"
        return f"{plain_phrase(group, rng)}, {group.color} like {thing},"

    return said(scene, rng, phraser).rstrip(",")


def _with(scene: Scene, rng: Rng) -> str:
    first, second = (plain_phrase(g, rng) for g in scene.groups)
    if not scene.relation:
        return f"{first} {rng.choice(('with', 'together with', 'along with'))} {second}"
    # The second group lies on the other side: "a cat with a dog to the right", cat left of dog.
    places = {
        "left of": ("to the left", "on the left"),
        "right of": ("to the right", "on the right"),
        "above": ("above", "on top", "overhead"),
        "below": ("below", "underneath"),
    }
    return f"{first} with {second} {rng.choice(places[INVERSE[scene.relation]])}"


def _rambling(scene: Scene, rng: Rng) -> str:
    return rng.choice(RAMBLE_FRAMES).format(said(scene, rng))


def _compound(scene: Scene, rng: Rng) -> str:
    """Synonyms, varied counts and relations, and small talk, all at once."""
    phrasers = (plain_phrase, synonym_phrase, synonym_phrase, group_count_phrase, digit_phrase)

    def phraser(group: Group, rng: Rng) -> str:
        return rng.choice(phrasers)(group, rng)

    text = said(scene, rng, phraser, varied=True)
    frame = rng.choice(("{}", "{}", "a photo of {}", *CHAT_FRAMES, *RAMBLE_FRAMES))
    return frame.format(text)


# ---- kinds that no training set may show --------------------------------------------------------


def _relative_clause(scene: Scene, rng: Rng) -> str:
    which = rng.choice(("that", "which"))
    if scene.relation:
        words = relation_words(scene, rng)
        first, second = (plain_phrase(g, rng) for g in scene.groups)
        be, have = verb(scene.groups[0], "is", "are"), verb(scene.groups[0], "has", "have")
        side = scene.relation
        if side in ("left of", "right of") and rng.random() < 0.5:
            its = verb(scene.groups[0], "its", "their")
            return f"{first} {which} {have} {second} on {its} {INVERSE[side].split()[0]}"
        return f"{first} {which} {be} {words} {second}"
    if _any_color(scene):
        parts = []
        for g in scene.groups:
            be = verb(g, "is", "are")
            clause = rng.choice((f" {which} {be} ", f" {which} {be} painted ", " whose colour is "))
            parts.append(plain_phrase(_colorless(g), rng) + (clause + g.color if g.color else ""))
        return joined(parts)
    text = said(scene, rng)
    forms = [f"a picture {which} shows {text}", f"an image in which there is {text}"]
    if len(scene.groups) == 1 and _any_count(scene):
        group = scene.groups[0]
        number, names = NUMBER_WORDS[group.count], plural(group.cls)
        forms += [f"{names}, of which there are {number}", f"{number} things {which} are {names}"]
    elif _two(scene) and not _any_count(scene):
        first, second = (plain_phrase(g, rng) for g in scene.groups)
        forms += [f"{first} {which} is next to {second}", f"{first} {which} is seen with {second}"]
    return rng.choice(forms)


def _pronoun(scene: Scene, rng: Rng) -> str:
    if scene.relation:
        return _pronoun_relation(scene, scene.relation, rng)
    if _two(scene) and _any_color(scene):
        lead = joined([plain_phrase(_colorless(g), rng) for g in scene.groups])
        ones = rng.choice((("the first one", "the other one"), ("the former", "the latter")))
        pairs = zip(ones, scene.groups, strict=True)
        return f"{lead}. make {joined([f'{one} {g.color}' for one, g in pairs if g.color])}"
    if _two(scene):
        first, second = (plain_phrase(g, rng) for g in scene.groups)
        form = rng.choice((" and with ", ", and next to ", ". beside "))
        return f"{first}{form}it {second}"
    group = scene.groups[0]
    if group.color:
        it, they, be = (
            verb(group, "it", "them"),
            verb(group, "it", "they"),
            verb(group, "is", "are"),
        )
        form = rng.choice((f". {they} {be} ", f" and make {it} ", f", {they} {be} "))
        return plain_phrase(_colorless(group), rng) + form + group.color
    if group.count == 1:
        form = rng.choice((" all by itself", ". it is alone", ", show it alone"))
        return plain_phrase(group, rng) + form
    form = rng.choice((", and there are {} of them", ". show {} of them", ", {} of them"))
    return plural(group.cls) + form.format(NUMBER_WORDS[group.count])


def _pronoun_relation(scene: Scene, relation: str, rng: Rng) -> str:
    first, second = (plain_phrase(g, rng) for g in scene.groups)
    side = side_phrase(relation, rng, of=verb(scene.groups[0], "it", "them"))
    if relation in ("left of", "right of"):
        its = verb(scene.groups[0], "its", "their")
        side = rng.choice((side, f"to {its} {INVERSE[relation].split()[0]}"))
    form = rng.choice(("{0}, and {1} {2}", "{0}. {1} {2}", "{0} and {2} {1}"))
    return form.format(first, side, second)


def _shared_attribute(scene: Scene, rng: Rng) -> str:
    lead = joined([plain_phrase(_colorless(g), rng) for g in scene.groups])
    form = rng.choice(
        (", both {}", ", both of them {}", ", each of them {}", ", the two of them in {}")
    )
    return lead + form.format(scene.groups[0].color)


def _indirect_color(scene: Scene, rng: Rng) -> str:
    chosen = _some(rng, scene, lambda g: g.color is not None)

    def phraser(group: Group, rng: Rng) -> str:
        if group not in chosen or group.color is None:
            return plain_phrase(group, rng)
        thing = rng.choice(COLOR_THINGS[group.color])
        form = rng.choice(
            ("{} the colour of {}", "{} in the colour of {}", "{} with the colour of {}")
        )
        return form.format(phrase(group.cls, None, group.count), thing)

    return said(scene, rng, phraser)


PLAIN_KINDS: tuple[str, ...] = ("plain", "photo")
HELD_OUT_KINDS: tuple[str, ...] = (
    "relative_clause",
    "pronoun",
    "shared_attribute",
    "indirect_color",
)
KINDS: dict[str, Kind] = {
    "plain": Kind(_plain),
    "photo": Kind(_photo),
    "synonym": Kind(_synonym),
    "group_count": Kind(_group_count, _any_count),
    "digits": Kind(_digits),
    "negation": Kind(_negation),
    "chat": Kind(_chat),
    "typo": Kind(_typo),
    "telegraphic": Kind(_telegraphic),
    "inverted": Kind(
        _inverted,
        lambda s: bool(s.relation) or (len(s.groups) < 3 and (_any_color(s) or _any_count(s))),
    ),
    "active": Kind(_active, _two),
    "definite": Kind(
        _definite, lambda s: (_two(s) and (bool(s.relation) or _any_color(s))) or _all_color(s)
    ),
    "riddle": Kind(_riddle),
    "simile": Kind(_simile, _any_color),
    "with": Kind(_with, _two),
    "rambling": Kind(_rambling),
    "compound": Kind(_compound),
    "relative_clause": Kind(_relative_clause),
    "pronoun": Kind(
        _pronoun, lambda s: len(s.groups) < 3 and not (_two(s) and _any_count(s) and not s.relation)
    ),
    "shared_attribute": Kind(
        _shared_attribute,
        lambda s: (
            _two(s)
            and not s.relation
            and not _any_count(s)
            and s.groups[0].color is not None
            and s.groups[0].color == s.groups[1].color
        ),
    ),
    "indirect_color": Kind(_indirect_color, _any_color),
}
