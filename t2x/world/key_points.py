"""Which of PromptEnhancer's key points a prompt of the emoji world raises, by text rules, each with
questions in the words that emoji-vlm was taught.

Seven of the 24 occur in this world. Counting starts at two here, where four is the most; prompts
that the rules can't read raise none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from t2x.prompts.forms import stem
from t2x.prompts.negations import negated
from t2x.scoring.vlm_encoder import Question
from t2x.settings import read_settings
from t2x.world.captions import NUMBER_WORDS, plural
from t2x.world.lexicon import RIDDLES
from t2x.world.render import Placed
from t2x.world.rules import parse
from t2x.world.scene import CLASSES, COLORS, MAX_OBJECTS, RELATIONS, Group, Scene
from t2x.world.truth import SURE_OFFSET, offset, satisfies
from t2x.world.words import articled

__all__ = ["denied_classes", "emoji_key_points", "knows_emoji", "read_scene", "true_answer"]

_PRONOUNS = re.compile(r"\b(it|its|them|they|their|(first|other) one|former|latter)\b")
_SHARED = re.compile(r",? \b(both|each|the two)\b")
_FILLERS = re.compile(r"\b(make|it|them|they)\b")
_PRESENCE = re.compile(rf"Is there an? (?:({'|'.join(COLORS)}) )?(.+)\?")
_NUMBER = re.compile(r"How many (.+)\?")
_RELATION = re.compile(rf"Is the (.+?) (?:to the )?({'|'.join(RELATIONS)}) the (.+)\?")


def emoji_key_points(prompt: str) -> list[tuple[str, Question]]:
    """Key points of ``prompt``, names of ``t2x.scoring.key_points.KEY_POINTS``, with a question
    each; a point may come several times.
    """
    text = prompt.casefold()
    found = [("negation", _absent(cls)) for cls in denied_classes(text)]
    if (scene := read_scene(text)) is not None:
        found += list(_raised(scene, text))
    return found


def knows_emoji(source: str | Path | tuple[Any, Any]) -> bool:
    """Whether a vision-language model was taught the questions of this world's text rules:
    emoji-vlm, and a folder whose ``t2x.json`` says ``{"key_points": "emoji"}``.
    """
    if isinstance(source, tuple) or source == "emoji-vlm":
        return source == "emoji-vlm"
    return read_settings(source).get("key_points") == "emoji"


def true_answer(question: str, objects: Sequence[Placed]) -> str | None:
    """What a question of :func:`emoji_key_points` is truly answered by a picture of ``objects``, in
    the words that emoji-vlm was taught; None where it is too close to call.

    Raises ``ValueError`` for a question of another form.
    """
    if found := _PRESENCE.fullmatch(question):
        alone = Scene((Group(found[2], found[1]),))
        verdicts = {satisfies(alone, [o]) for o in objects if o.cls == found[2]}
        return "yes" if True in verdicts else None if None in verdicts else "no"
    if found := _NUMBER.fullmatch(question):
        cls = next(c for c in CLASSES if plural(c) == found[1])
        return NUMBER_WORDS[sum(o.cls == cls for o in objects)]
    if found := _RELATION.fullmatch(question):
        first, second = ([o for o in objects if o.cls == cls] for cls in (found[1], found[3]))
        if not first or not second:
            return "no"
        value = offset(found[2], first, second)
        return None if abs(value) < SURE_OFFSET else "yes" if value > 0 else "no"
    raise ValueError(f"no question of this world's key points: {question!r}")


def read_scene(text: str) -> Scene | None:
    """The scene of a prompt in lower case, with an attribute that several share and a colour told
    of a pronoun.

    A side told of a pronoun is left unread: whose side it is can't be seen from the words alone.
    """
    if shared := _SHARED.search(text):
        scene = parse(text[: shared.start()])
        color = next((c for c in COLORS if c in text[shared.end() :].split()), None)
        if scene is None or color is None:
            return None
        return replace(scene, groups=tuple(replace(g, color=color) for g in scene.groups))
    if (scene := parse(text)) is not None or not _PRONOUNS.search(text):
        return scene
    scene = parse(_FILLERS.sub(" ", text))
    return scene if scene is not None and scene.relation is None else None


def _raised(scene: Scene, text: str) -> Iterator[tuple[str, Question]]:
    groups = scene.groups
    colors = [g.color for g in groups]
    for group in groups:
        if group.count > 1:
            yield "counting", _how_many(group)
    if len(groups) > 1 and any(colors):
        shared = len(set(colors)) == 1
        name = "attribute consistency" if shared else "attribute binding"
        yield from ((name, _is_there(g)) for g in groups)
    if scene.relation is not None:
        yield "layout", _side(scene)
    if _PRONOUNS.search(text):
        yield from (("pronoun resolution", q) for q in _meant(scene))
    for group in groups:
        if any(riddle in text for riddle in RIDDLES[group.cls]):
            yield "knowledge application", _is_there(group)


def denied_classes(text: str) -> list[str]:
    """Classes that the text rules out."""
    heads = set(negated(text))
    return [
        c
        for c in CLASSES
        if stem(c.split()[-1]) in heads and re.search(rf"\b({c}|{plural(c)})\b", text)
    ]


def _is_there(group: Group) -> Question:
    name = f"{group.color} {group.cls}" if group.color else group.cls
    return Question(f"Is there {articled(name)}?")


def _absent(cls: str) -> Question:
    there = _is_there(Group(cls))
    return Question(there.text, yes=there.no, no=there.yes)


def _how_many(group: Group) -> Question:
    wanted = NUMBER_WORDS[group.count]
    others = tuple(w for w in NUMBER_WORDS[: MAX_OBJECTS + 1] if w != wanted)
    return Question(f"How many {plural(group.cls)}?", yes=(wanted,), no=others)


def _side(scene: Scene) -> Question:
    first, second = scene.groups
    relation = scene.relation or ""
    words = f"to the {relation}" if "of" in relation else relation
    return Question(f"Is the {first.cls} {words} the {second.cls}?")


def _meant(scene: Scene) -> Iterator[Question]:
    """What a pronoun says something about: the side, else a colour, else a number."""
    if scene.relation is not None:
        yield _side(scene)
    elif any(g.color for g in scene.groups):
        yield from (_is_there(g) for g in scene.groups if g.color)
    else:
        yield from (_how_many(g) for g in scene.groups)
