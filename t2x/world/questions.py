"""Questions about pictures of the emoji world with answers from scene truth.

Four kinds. *verify*: does the picture show exactly what a text says, in the form of VQAScore (Lin
et al. 2024, arXiv 2404.01291); half of them true, the false ones mostly wrong in one thing.
*atomic*: presence, counts, colours, sides, places. *caption*: the picture object by object, or as
people say it. *text*: the same content in plain words, which needs no picture and teaches the
words. No text holds a held-out pair, is of a held-out phrasing kind or of another split.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from t2x.world.captions import NUMBER_WORDS, STYLES, plural, training_scene
from t2x.world.kinds import PLAIN_KINDS
from t2x.world.prompts import (
    SEEN_KINDS,
    sample_prompt,
    split_of,
    training_caption,
    training_prompt,
    training_text,
)
from t2x.world.render import SLOT_CENTERS, Placed, natural_order
from t2x.world.scene import CLASSES, COLORS, INVERSE, MAX_OBJECTS, Group, Scene
from t2x.world.shown import NAMELESS, Drawn, told_scene
from t2x.world.split import has_held_out_pair
from t2x.world.truth import SURE_OFFSET, offset, satisfies
from t2x.world.words import articled

__all__ = [
    "DESCRIBE",
    "VERIFY",
    "Turn",
    "caption_turn",
    "description",
    "fault",
    "sample_turns",
    "verify_turn",
]

VERIFY = 'Does this figure show "{}"? Please answer yes or no.'
DESCRIBE = "Describe this picture."
_SAY = "What is this a picture of?"
_PLAINLY = 'In plain words, what is "{}"?'
_CAPTION_STYLES = ("sentence", "tags", "stock", "plain", "poetic")
_SAID_KINDS = ("plain", "photo", "synonym", "group_count", "digits", "riddle", "inverted")
_TRIES = 30


@dataclass(frozen=True)
class Turn:
    """One question and its answer; ``kind`` is verify, atomic, caption or text."""

    question: str
    answer: str
    kind: str


def _words(p: Placed) -> str:
    if p.cls == NAMELESS:
        return NAMELESS
    return articled(f"{p.color} {p.cls}" if p.color else p.cls)


def description(objects: Sequence[Placed]) -> str:
    """The picture object by object: ``two objects. left: a red cat. right: a dog.``"""
    noun = "object" if len(objects) == 1 else "objects"
    parts = [f"{p.slot}: {_words(p)}" for p in natural_order(list(objects))]
    return f"{NUMBER_WORDS[len(objects)]} {noun}. {'. '.join(parts)}."


def caption_turn(shown: Drawn) -> Turn:
    """The dense description of a picture."""
    return Turn(DESCRIBE, description(shown.objects), "caption")


# ---- texts of a scene ---------------------------------------------------------------------------


def _text(
    scene: Scene, rng: random.Random, kinds: Sequence[str] = SEEN_KINDS, *, plain: float = 0.4
) -> str:
    """A training text that means ``scene``: a user's prompt, ``plain`` ones at least so often, or a
    caption.
    """
    if rng.random() < 0.3 * (1 - plain) and kinds is SEEN_KINDS:
        return training_caption(scene, [], rng, _CAPTION_STYLES)  # none of these tells places
    if rng.random() < plain:
        for _ in range(_TRIES):  # every plain text of a scene may belong to another split
            text = sample_prompt(scene, rng.choice(PLAIN_KINDS), rng).text
            if split_of(text) == "train":
                return text
    return training_text(scene, rng, kinds)


# ---- a scene wrong in one thing -----------------------------------------------------------------


def _replaced(scene: Scene, index: int, group: Group | None) -> Scene | None:
    """``scene`` with one group replaced or, for None, left out; None where that is no scene."""
    groups = list(scene.groups)
    if group is None:
        del groups[index]
    else:
        groups[index] = group
    relation = scene.relation if len(groups) == 2 else None
    try:
        return Scene(tuple(groups), relation)
    except ValueError:
        return None


def _wrong_color(scene: Scene, rng: random.Random) -> Scene | None:
    index = rng.randrange(len(scene.groups))
    group = scene.groups[index]
    return _replaced(scene, index, replace(group, color=rng.choice(COLORS)))


def _swapped_colors(scene: Scene, rng: random.Random) -> Scene | None:
    if len(scene.groups) < 2:
        return None
    i, j = rng.sample(range(len(scene.groups)), 2)
    groups = list(scene.groups)
    groups[i] = replace(groups[i], color=scene.groups[j].color)
    groups[j] = replace(groups[j], color=scene.groups[i].color)
    if len({(g.cls, g.color) for g in groups}) < len(groups):
        return None
    return replace(scene, groups=tuple(groups))


def _wrong_count(scene: Scene, rng: random.Random) -> Scene | None:
    index = rng.randrange(len(scene.groups))
    group = scene.groups[index]
    count = group.count + rng.choice((-1, 1))
    if not 1 <= count <= MAX_OBJECTS:
        return None
    return _replaced(scene, index, replace(group, count=count))


def _wrong_class(scene: Scene, rng: random.Random) -> Scene | None:
    index = rng.randrange(len(scene.groups))
    return _replaced(scene, index, replace(scene.groups[index], cls=rng.choice(CLASSES)))


def _wrong_side(scene: Scene, rng: random.Random) -> Scene | None:
    if len(scene.groups) != 2:
        return None
    return replace(scene, relation=rng.choice(tuple(INVERSE)))


def _one_left_out(scene: Scene, rng: random.Random) -> Scene | None:
    if len(scene.groups) < 2:
        return None
    return _replaced(scene, rng.randrange(len(scene.groups)), None)


def _one_too_many(scene: Scene, rng: random.Random) -> Scene | None:
    extra = Group(rng.choice(CLASSES), rng.choice((None, *COLORS)))
    if len(scene.groups) > 2 or scene.num_objects == MAX_OBJECTS:
        return None
    if any((g.cls, g.color) == (extra.cls, extra.color) for g in scene.groups):
        return None
    return Scene((*scene.groups, extra))


def _another(scene: Scene, rng: random.Random) -> Scene | None:
    return training_scene(rng)


_CHANGES: dict[Callable[[Scene, random.Random], Scene | None], float] = {
    _wrong_color: 0.16,
    _swapped_colors: 0.1,
    _wrong_count: 0.14,
    _wrong_class: 0.14,
    _wrong_side: 0.24,
    _one_left_out: 0.08,
    _one_too_many: 0.08,
    _another: 0.06,
}


def _false_scene(shown: Drawn, rng: random.Random, *, easy: float) -> Scene:
    """A scene that the picture does not show, near its truth unless drawn as an ``easy`` one."""
    for _ in range(_TRIES):
        true = told_scene(shown.objects, rng)
        if true is None or rng.random() < easy:
            changed: Scene | None = training_scene(rng)
        else:
            change = rng.choices(list(_CHANGES), list(_CHANGES.values()))[0]
            changed = change(true, rng)
        if changed and not has_held_out_pair(changed) and _breaks(shown, changed):
            return changed
    while not _breaks(shown, scene := training_scene(rng)):
        pass
    return scene


def _breaks(shown: Drawn, scene: Scene) -> bool:
    return satisfies(scene, shown.objects) is False


def fault(scene: Scene, objects: Sequence[Placed]) -> str:
    """The first thing that is wrong with a picture of these objects if ``scene`` was asked for.

    In the order of telling: a class missing or miscounted, an object too many, a colour, the side.
    """
    seen = [p.cls for p in objects]
    wanted = [g.cls for g in scene.groups for _ in range(g.count)]
    for group in scene.groups:
        number = seen.count(group.cls)
        if number == 0:
            return f"there is no {group.cls}"
        if number != wanted.count(group.cls):
            name = group.cls if number == 1 else plural(group.cls)
            return f"there {'is' if number == 1 else 'are'} {NUMBER_WORDS[number]} {name}"
    for p in natural_order(list(objects)):
        if p.cls not in wanted:
            return f"there is also {_words(p)}"
    for group in scene.groups:
        colors = [p.color for p in objects if p.cls == group.cls]
        if group.color is not None and colors.count(group.color) < group.count:
            other = next(c for c in colors if c != group.color)
            return f"the {group.cls} is {other or 'natural'}"
    return f"it is not {scene.relation}"


def verify_turn(shown: Drawn, rng: random.Random, *, easy: float = 0.1, plain: float = 0.4) -> Turn:
    """Whether the picture shows a text, true or false with even odds; after a no, what is wrong.

    Pictures with an object of no class only have false texts, half of them near misses that name
    what it might have been.
    """
    if rng.random() < 0.5:
        for _ in range(4):
            if scene := told_scene(shown.objects, rng):
                return Turn(VERIFY.format(_text(scene, rng, plain=plain)), "yes", "verify")
    if shown.nameless and rng.random() < 0.7:
        guess = rng.choice(CLASSES)
        named = [replace(p, cls=guess) if p.cls == NAMELESS else p for p in shown.objects]
        if scene := told_scene(named, rng):
            return _no(scene, shown, rng, plain)
    return _no(_false_scene(shown, rng, easy=easy), shown, rng, plain)


def _no(scene: Scene, shown: Drawn, rng: random.Random, plain: float) -> Turn:
    question = VERIFY.format(_text(scene, rng, plain=plain))
    return Turn(question, f"no, {fault(scene, shown.objects)}", "verify")


# ---- atomic questions ---------------------------------------------------------------------------


def _some_class(shown: Drawn, rng: random.Random) -> str:
    """A class in the picture, or with even odds any other."""
    named = [p.cls for p in shown.objects if p.cls != NAMELESS]
    return rng.choice(named) if named and rng.random() < 0.6 else rng.choice(CLASSES)


def _how_many(shown: Drawn, rng: random.Random) -> Turn:
    if rng.random() < 0.25:
        return Turn("How many objects?", NUMBER_WORDS[len(shown.objects)], "atomic")
    cls = _some_class(shown, rng)
    number = sum(p.cls == cls for p in shown.objects)
    return Turn(f"How many {plural(cls)}?", NUMBER_WORDS[number], "atomic")


def _presence(shown: Drawn, rng: random.Random) -> Turn:
    p = rng.choice(shown.objects)
    cls = _some_class(shown, rng) if p.cls == NAMELESS or rng.random() < 0.5 else p.cls
    color = p.color if rng.random() < 0.5 else rng.choice(COLORS)
    if color is None or rng.random() < 0.4:
        found = any(o.cls == cls for o in shown.objects)
        return Turn(f"Is there {articled(cls)}?", "yes" if found else "no", "atomic")
    if has_held_out_pair(Scene((Group(cls, color),))):
        return _how_many(shown, rng)
    verdicts = {satisfies(Scene((Group(cls, color),)), [o]) for o in shown.objects}
    if True not in verdicts and None in verdicts:
        return _how_many(shown, rng)
    answer = "yes" if True in verdicts else "no"
    return Turn(f"Is there {articled(f'{color} {cls}')}?", answer, "atomic")


def _color(shown: Drawn, rng: random.Random) -> Turn:
    p = rng.choice(shown.objects)
    alike = {o.color for o in shown.objects if o.cls == p.cls}
    if p.cls == NAMELESS or len(alike) > 1:
        return _how_many(shown, rng)
    name = p.cls if sum(o.cls == p.cls for o in shown.objects) == 1 else plural(p.cls)
    return Turn(f"What colour: the {name}?", p.color or "natural", "atomic")


def _side(shown: Drawn, rng: random.Random) -> Turn:
    names = [p.cls for p in shown.objects]
    single = [p for p in shown.objects if names.count(p.cls) == 1 and p.cls != NAMELESS]
    if len(single) < 2:
        return _place(shown, rng)
    first, second = rng.sample(single, 2)
    relation = rng.choice(tuple(INVERSE))
    stated = Scene((Group(first.cls), Group(second.cls)), relation)
    value = offset(relation, [first], [second])
    if has_held_out_pair(stated) or abs(value) < SURE_OFFSET:
        return _place(shown, rng)
    words = f"to the {relation}" if "of" in relation else relation
    answer = "yes" if value > 0 else "no"
    return Turn(f"Is the {first.cls} {words} the {second.cls}?", answer, "atomic")


def _place(shown: Drawn, rng: random.Random) -> Turn:
    p = rng.choice(shown.objects)
    if rng.random() < 0.3 and len(shown.objects) > 2:
        slot = rng.choice([s for s in SLOT_CENTERS if " " in s])
        found = [o for o in shown.objects if o.slot == slot]
        if found or all(" " in o.slot for o in shown.objects):
            answer = _words(found[0]) if found else "nothing"
            return Turn(f"What is at the {slot}?", f"{slot}: {answer}", "atomic")
    return Turn(f"What is at the {p.slot}?", f"{p.slot}: {_words(p)}", "atomic")


def _where(shown: Drawn, rng: random.Random) -> Turn:
    """Where one thing lies: what a relation is read off, the way round that ``_place`` is not."""
    names = [p.cls for p in shown.objects]
    single = [p for p in shown.objects if names.count(p.cls) == 1 and p.cls != NAMELESS]
    if not single:
        return _place(shown, rng)
    p = rng.choice(single)
    return Turn(f"Where is the {p.cls}?", p.slot, "atomic")


_ATOMIC = {
    _how_many: 0.2,
    _presence: 0.2,
    _color: 0.1,
    _side: 0.25,
    _where: 0.15,
    _place: 0.1,
}


def _said_turn(shown: Drawn, rng: random.Random) -> Turn | None:
    scene = told_scene(shown.objects, rng)
    if scene is None:
        return None
    return Turn(_SAY, _text(scene, rng, _SAID_KINDS), "caption")


def _text_turn(rng: random.Random) -> Turn:
    """A user's prompt of another scene and what it means in plain words."""
    while True:
        prompt = training_prompt(rng.getrandbits(48))
        sentence = STYLES["sentence"](prompt.scene, [], rng).removeprefix("exactly ")
        plain = sentence.partition(" on a plain")[0]
        if split_of(plain) == "train":  # a user may type the very same
            return Turn(_PLAINLY.format(prompt.text), plain, "text")


def sample_turns(
    shown: Drawn,
    rng: random.Random,
    *,
    verify: int = 5,
    atomic: int = 2,
    easy: float = 0.1,
    plain: float = 0.4,
) -> list[Turn]:
    """Questions about one picture: its description, some to verify, some atomic, rarely others.

    ``easy``: share of false texts about another scene altogether; ``plain``: of plain texts.
    """
    turns = [caption_turn(shown)]
    turns += [verify_turn(shown, rng, easy=easy, plain=plain) for _ in range(verify)]
    makers = rng.choices(list(_ATOMIC), list(_ATOMIC.values()), k=atomic)
    turns += [make(shown, rng) for make in makers]
    if rng.random() < 0.3:
        turns.append(_text_turn(rng))
    if rng.random() < 0.1 and (said := _said_turn(shown, rng)):
        turns.append(said)
    return turns
