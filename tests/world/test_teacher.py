"""The teacher: right about content, spread over styles, without held-out material."""

from __future__ import annotations

import random
from collections import Counter
from itertools import permutations

from t2x.world.captions import caption
from t2x.world.content import same_scene, style_of, tells_scene
from t2x.world.corpus import corpus_text, corpus_turns
from t2x.world.english import ADJECTIVES, NOUNS, PEOPLE
from t2x.world.kinds import HELD_OUT_KINDS
from t2x.world.lexicon import COLOR_SYNONYMS, SYNONYMS
from t2x.world.scene import CLASSES, COLORS, Group, Scene
from t2x.world.split import has_held_out_pair, has_held_out_relation, is_held_out_color
from t2x.world.teacher import (
    MISSING_KINDS,
    STYLE_SHARES,
    placeable,
    plan,
    teacher_pair,
    teaching_prompt,
)


def pairs(count: int) -> list[tuple[Scene, str, str]]:
    out = []
    for number in range(count):
        prompt = teaching_prompt(number)
        out.append((prompt.scene, *teacher_pair(prompt, random.Random(number))))
    return out


def test_answers_tell_exactly_the_scene() -> None:
    previous = None
    for scene, think, answer in pairs(600):
        assert tells_scene(answer, scene), answer
        assert think == plan(scene)
        if previous is not None and not same_scene(previous, scene):
            assert not tells_scene(answer, previous)
        previous = scene


def test_styles_are_mixed_and_no_style_rules() -> None:
    styles = Counter(style_of(answer) for _, _, answer in pairs(1200))
    assert 0.42 < styles["layout"] / 1200 < 0.58
    assert min(styles[s] for s in ("sentence", "tags", "stock", "poetic")) > 40
    assert abs(sum(STYLE_SHARES.values()) - 1) < 1e-9


def test_missing_kinds_are_missing() -> None:
    kinds = {teaching_prompt(i).kind for i in range(1200)}
    assert not kinds & {*MISSING_KINDS, *HELD_OUT_KINDS}
    assert len(kinds) >= 12


def test_no_layout_shows_a_held_out_relation() -> None:
    rng = random.Random(0)
    for first, second in permutations(CLASSES, 2):
        scene = placeable(Scene((Group(first), Group(second))), rng)
        assert scene.relation is not None
        assert not has_held_out_pair(scene)
    one = Scene((Group("cat", None, 3),))
    assert placeable(one, rng) == one


def test_a_held_out_colour_is_placed_like_any_other() -> None:
    """Only relations are chosen here; no choice of one makes a colour right."""
    held_out = [Group(c, k) for c in CLASSES for k in COLORS if is_held_out_color(c, k)]
    assert held_out
    for group in held_out:
        other = Group("dog" if group.cls == "cat" else "cat")
        scene = placeable(Scene((group, other)), random.Random(0))
        assert scene.relation is not None
        assert not has_held_out_relation(scene)
        assert has_held_out_pair(scene)


def test_plan_by_hand() -> None:
    scene = Scene((Group("cat", None, 2), Group("pizza", "red")), "left of")
    assert plan(scene) == "2 x cat; 1 x red pizza; left of"


def test_reading_captions_back_sees_every_fault() -> None:
    scene = Scene((Group("cat", None, 2), Group("pizza", "red")), "left of")
    good = "three objects. top left: a cat. right: a red pizza. bottom left: a cat."
    assert tells_scene(good, scene)
    faults = (
        good.replace("red ", ""),
        good.replace("three", "two"),
        good.replace("right: a red pizza", "top left: a red pizza"),
        good.replace("bottom left: a cat.", "bottom left: a dog."),
        good.replace("bottom left: a cat.", "").replace("three", "two"),
        "three objects. top right: a cat. left: a red pizza. bottom right: a cat.",
        "exactly two cats right of one red pizza on a plain background, high quality",
        "two cats, red pizza, sticker, sharp",
        "",
    )
    assert [tells_scene(text, scene) for text in faults] == [False] * len(faults)
    for style in ("layout", "sentence", "stock", "poetic", "plain"):
        assert tells_scene(caption(scene, style, 1), scene)
        assert style_of(caption(scene, style, 1)) in (style, "other")


def test_corpus_is_drawn_by_number_and_holds_echoes_and_chats() -> None:
    assert corpus_text(5) == corpus_text(5)
    entries = [corpus_turns(i) for i in range(400)]
    echoes = [turns for turns in entries if turns[0].is_echo]
    assert echoes
    assert all(turns[0].text.endswith(turns[1].text) for turns in echoes)
    assert {len(turns) for turns in entries} == {1, 2}


def test_general_english_shares_no_word_with_the_world() -> None:
    names = [n for cls in CLASSES for n in (cls, *SYNONYMS[cls])]
    world = {word for name in names for word in name.split()} | set(COLORS)
    world |= {word for words in COLOR_SYNONYMS.values() for word in words}
    assert not world & {*NOUNS, *PEOPLE, *ADJECTIVES}
