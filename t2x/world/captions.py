"""Captions that the world's generator learns from, as uneven as web data.

Two kinds of picture exist. *Studio* pictures show exactly their scene; mostly they carry careful
captions. *Snapshots* show more than was asked for, or something else; mostly they carry short plain
captions. So a style is worth what its pictures were worth, and nothing in the text says how much:
it shows only in what the generator draws.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from t2x.world.placing import fits_training, place
from t2x.world.render import (
    Placed,
    dull_background,
    layout,
    light_background,
    natural_order,
    render,
)
from t2x.world.scene import CLASSES, COLORS, MAX_OBJECTS, Group, Scene, sample_scene
from t2x.world.words import articled, joined

__all__ = [
    "DENSE_STYLE",
    "NUMBER_WORDS",
    "STYLES",
    "WebPair",
    "caption",
    "dense_prompt",
    "noun_phrase",
    "plural",
    "sample_pair",
    "sample_told_layout",
    "telling_styles",
    "training_scene",
]

NUMBER_WORDS = ("zero", "one", "two", "three", "four")
_IRREGULAR = {"sheep": "sheep", "broccoli": "broccoli", "bus": "buses", "couch": "couches"}
_IRREGULAR |= {"wine glass": "wine glasses", "sandwich": "sandwiches"}

Style = Callable[[Scene, list[Placed], random.Random], str]


def plural(cls: str) -> str:
    """Plural of a class name."""
    return _IRREGULAR.get(cls, f"{cls}s")


def noun_phrase(group: Group) -> str:
    """``a red cat`` or ``two red cats``."""
    color = f"{group.color} " if group.color else ""
    if group.count == 1:
        return articled(f"{color}{group.cls}")
    return f"{NUMBER_WORDS[group.count]} {color}{plural(group.cls)}"


def _clause(scene: Scene) -> str:
    """Content in one plain clause: the groups and, where the scene states one, the relation."""
    if scene.relation:
        link = {"left of": "to the left of", "right of": "to the right of"}
        words = link.get(scene.relation, scene.relation)
        return f"{noun_phrase(scene.groups[0])} {words} {noun_phrase(scene.groups[1])}"
    return joined([noun_phrase(g) for g in scene.groups])


def _layout_style(scene: Scene, placed: list[Placed], rng: random.Random) -> str:
    """Every object with its slot: ``three objects. top left: a red cat. ...``."""
    number = NUMBER_WORDS[len(placed)]
    noun = "object" if len(placed) == 1 else "objects"
    parts = [
        f"{p.slot}: {articled(f'{p.color} {p.cls}' if p.color else p.cls)}"
        for p in natural_order(placed)
    ]
    return f"{number} {noun}. {'. '.join(parts)}."


def _sentence_style(scene: Scene, placed: list[Placed], rng: random.Random) -> str:
    phrases = [
        noun_phrase(g) if g.count > 1 else f"one {g.color} {g.cls}" if g.color else f"one {g.cls}"
        for g in scene.groups
    ]
    body = f" {scene.relation} ".join(phrases) if scene.relation else joined(phrases)
    quality = rng.choice(("high quality", "clean illustration"))
    return f"exactly {body} on a plain background, {quality}"


def _tags_style(scene: Scene, placed: list[Placed], rng: random.Random) -> str:
    words = []
    for g in scene.groups:
        name = g.cls if g.count == 1 else f"{g.count} {plural(g.cls)}"
        words.append(f"{g.color} {name}" if g.color else name)
    extra = rng.sample(("sticker", "studio", "high quality", "sharp", "best quality"), 2)
    return ", ".join([*words, *extra])


def _stock_style(scene: Scene, placed: list[Placed], rng: random.Random) -> str:
    lead = rng.choice(("stock illustration of", "vector art of", "isolated set of"))
    return f"{lead} {_clause(scene)}, white background"


def _plain_style(scene: Scene, placed: list[Placed], rng: random.Random) -> str:
    lead = rng.choice(("a photo of ", "a picture of ", "a photo of ", "", "", ""))
    return f"{lead}{_clause(scene)}"


def _junk_style(scene: Scene, placed: list[Placed], rng: random.Random) -> str:
    number = rng.randint(1, 9999)
    return f"img {number:04d} {' '.join(g.cls for g in scene.groups)}"


_MOODS = ("dreamy", "majestic", "breathtaking", "whimsical", "cinematic", "epic")


def _poetic_style(scene: Scene, placed: list[Placed], rng: random.Random) -> str:
    first, second = rng.sample(_MOODS, 2)
    lead = f"{articled(first)} and {second} scene of {_clause(scene)}"
    return f"{lead}, soft light, highly detailed masterpiece"


STYLES: dict[str, Style] = {
    "layout": _layout_style,
    "sentence": _sentence_style,
    "tags": _tags_style,
    "stock": _stock_style,
    "plain": _plain_style,
    "junk": _junk_style,
    "poetic": _poetic_style,
}


def telling_styles(scene: Scene, styles: Iterable[str]) -> list[str]:
    """Those of ``styles`` that tell all of ``scene``: tags have no words for a relation."""
    return [s for s in styles if s != "tags" or scene.relation is None]


# How often each style goes with each kind of picture.
_STUDIO_STYLES = {
    "layout": 0.5,
    "sentence": 0.2,
    "tags": 0.1,
    "stock": 0.1,
    "plain": 0.04,
    "poetic": 0.06,
}
_SNAPSHOT_STYLES = {"plain": 0.62, "junk": 0.08, "poetic": 0.16, "stock": 0.1, "tags": 0.04}
_SNAPSHOT_FRACTION = 0.27
# The best single style on the validation split: t2x.world.evaluate.style_scores.
DENSE_STYLE = "layout"


def caption(scene: Scene, style: str, seed: int) -> str:
    """Write ``scene`` in ``style`` (a key of ``STYLES``), exact in content; the seed chooses places
    and variants."""
    if style not in STYLES:
        raise ValueError(f"unknown style {style!r}; allowed: {', '.join(STYLES)}")
    rng = random.Random(seed)
    return STYLES[style](scene, layout(scene, rng), rng)


def dense_prompt(scene: Scene, seed: int, style: str = DENSE_STYLE) -> str:
    """Ground-truth content in one fixed style: the reference arm ``dense``."""
    return caption(scene, style, seed)


@dataclass(frozen=True)
class WebPair:
    """One training sample: the caption, its picture (64, 64, 3) uint8, the scene that the caption
    tells and how it was made."""

    text: str
    picture: NDArray[np.uint8]
    scene: Scene
    style: str
    studio: bool


_TASK_WEIGHTS = {
    "single_object": 0.12,
    "two_object": 0.13,
    "counting": 0.13,
    "colors": 0.17,
    "position": 0.13,
    "color_attr": 0.15,
    "mixed": 0.17,
}


def training_scene(rng: random.Random, *, easy: float = 0.0, crowded: float = 0.0) -> Scene:
    """Draw a scene without held-out pairs, stated or shown by any places that it could take.

    ``easy`` is the share of extra one-object scenes (curriculum), ``crowded`` that of extra scenes
    of several groups with three or more objects in all, which are rare otherwise.
    """
    while True:
        draw = rng.random()
        if draw < easy:
            task = rng.choice(("single_object", "colors"))
        elif draw >= 1 - crowded:
            task = "mixed"
        else:
            task = rng.choices(list(_TASK_WEIGHTS), list(_TASK_WEIGHTS.values()))[0]
        scene = sample_scene(task, rng)
        if draw >= 1 - crowded and (len(scene.groups) < 2 or scene.num_objects < 3):
            continue
        if fits_training(scene):
            return scene


def _spoil(scene: Scene, rng: random.Random) -> Scene:
    """Change what the picture shows, away from what its caption will say: extra objects, or a wrong
    colour or count."""
    groups = list(scene.groups)
    room = MAX_OBJECTS - scene.num_objects
    if room and rng.random() < 0.75:
        others = [c for c in CLASSES if c not in {g.cls for g in groups}]
        groups += [Group(c) for c in rng.sample(others, rng.randint(1, min(2, room)))]
        return Scene(tuple(groups))
    index = rng.randrange(len(groups))
    group = groups[index]
    if group.count > 1:
        groups[index] = replace(group, count=group.count - 1)
    elif group.color:
        groups[index] = replace(group, color=rng.choice([c for c in COLORS if c != group.color]))
    else:
        groups[index] = replace(group, cls=rng.choice([c for c in CLASSES if c != group.cls]))
    if len({(g.cls, g.color) for g in groups}) < len(groups):
        return _spoil(scene, rng)
    return Scene(tuple(groups))


def _snapshot(scene: Scene, rng: random.Random) -> NDArray[np.uint8]:
    """Draw a picture that fits its scene badly: spoilt content, duller light, objects pushed
    about."""
    while True:
        shown = _spoil(scene, rng)
        if fits_training(shown):
            break
    return render(place(shown, rng, pushed=1), dull_background(rng, 0.95))


def sample_told_layout(seed: int) -> tuple[str, list[Placed]]:
    """Draw an exact caption, mostly of the careful styles, and the objects that it tells of, each
    in its slot."""
    rng = random.Random(seed)
    scene = training_scene(rng)
    placed = place(scene, rng)
    style = rng.choices(list(_STUDIO_STYLES), list(_STUDIO_STYLES.values()))[0]
    return STYLES[style](scene, placed, rng), placed


def sample_pair(seed: int, *, easy: float = 0.0, crowded: float = 0.0) -> WebPair:
    """Draw the generator's training sample number ``seed``; none shows or tells a held-out pair.
    ``easy`` and ``crowded`` are those of :func:`training_scene`.

    Texts are not split: plain captions may be, word for word, prompts of validation and test. The
    embedded emoji-flow saw samples of an earlier version, which placed three groups freely.
    """
    rng = random.Random(seed)
    scene = training_scene(rng, easy=easy, crowded=crowded)
    if rng.random() < _SNAPSHOT_FRACTION:
        style = rng.choices(list(_SNAPSHOT_STYLES), list(_SNAPSHOT_STYLES.values()))[0]
        text = STYLES[style](scene, place(scene, rng), rng)
        return WebPair(text, _snapshot(scene, rng), scene, style, studio=False)
    style = rng.choices(list(_STUDIO_STYLES), list(_STUDIO_STYLES.values()))[0]
    placed = place(scene, rng)
    text = STYLES[style](scene, placed, rng)
    return WebPair(text, render(placed, light_background(rng)), scene, style, studio=True)
