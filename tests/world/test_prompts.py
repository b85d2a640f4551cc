"""User prompts: true scenes, splits that never meet, and the promised mixture."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from t2x.world.content import same_scene
from t2x.world.kinds import HELD_OUT_KINDS, KINDS, PLAIN_KINDS
from t2x.world.lexicon import (
    COLOR_SYNONYMS,
    COLOR_THINGS,
    COUNT_NOUNS,
    RELATION_PHRASES,
    RIDDLES,
    SYNONYMS,
    plural_of,
)
from t2x.world.phrasing import CHAT_FRAMES, RAMBLE_FRAMES, add_typos
from t2x.world.prompts import (
    SEEN_KINDS,
    held_out_prompts,
    kinds_for,
    sample_prompt,
    split_of,
    training_prompt,
    training_prompts,
    validation_prompts,
)
from t2x.world.scene import CLASSES, COLORS, TASKS, Group, Scene, sample_scene
from t2x.world.split import has_held_out_pair

KITTENS = Scene((Group("cat", None, 2), Group("pizza", "red")), "left of")


def test_enough_kinds_and_the_held_out_ones_are_whole() -> None:
    assert len(KINDS) >= 14
    assert len(HELD_OUT_KINDS) >= 4
    assert set(HELD_OUT_KINDS) | set(SEEN_KINDS) == set(KINDS)
    assert not set(HELD_OUT_KINDS) & set(SEEN_KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_tells_the_scene_that_it_carries(kind: str) -> None:
    """The scene is kept, and each of its classes and colours, or a known word for it, is said."""
    rng = random.Random(0)
    written = 0
    while written < 40:
        scene = sample_scene(rng.choice((*TASKS, "mixed")), rng)
        if kind == "shared_attribute":
            groups = (Group("cat", rng.choice(COLORS)), Group("bus"))
            scene = Scene((groups[0], Group("bus", groups[0].color)))
        if kind not in kinds_for(scene):
            continue
        prompt = sample_prompt(scene, kind, rng)
        written += 1
        assert same_scene(prompt.scene, scene)
        assert prompt.task == scene.task
        text = prompt.text.casefold()
        for group in scene.groups:
            if kind == "typo":
                break
            names = (group.cls, *SYNONYMS[group.cls])
            words = (*names, *map(plural_of, names), *RIDDLES[group.cls])
            assert any(word in text for word in words), (text, group)
            tints = (group.color or "", *COLOR_SYNONYMS.get(group.color or "", ()))
            tints += COLOR_THINGS.get(group.color or "", ())
            assert any(tint in text for tint in tints), (text, group)


def test_known_phrasings_of_one_scene() -> None:
    """A user's own example, and the sides of held-out kinds, by hand."""
    texts = {sample_prompt(KITTENS, "compound", random.Random(i)).text for i in range(400)}
    assert any("kitten" in t or "kitties" in t for t in texts)
    cat_dog = Scene((Group("cat"), Group("dog")), "left of")
    relative = {sample_prompt(cat_dog, "relative_clause", random.Random(i)).text for i in range(99)}
    assert {"a cat that has a dog on its right", "a dog that is right of a cat"} <= relative
    pronoun = {sample_prompt(cat_dog, "pronoun", random.Random(i)).text for i in range(300)}
    assert {"a cat, and to its right a dog", "a dog. to the left of it a cat"} <= pronoun
    shared = Scene((Group("cat", "red"), Group("dog", "red")))
    assert "both red" in " ".join(
        sample_prompt(shared, "shared_attribute", random.Random(i)).text for i in range(20)
    )


def test_unknown_and_unfit_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="allowed: plain"):
        sample_prompt(KITTENS, "haiku", random.Random(0))
    with pytest.raises(ValueError, match="can't ask for"):
        sample_prompt(Scene((Group("cat"),)), "active", random.Random(0))


def test_training_prompts_show_nothing_held_out() -> None:
    prompts = training_prompts(1500, seed=3)
    assert not any(has_held_out_pair(p.scene) for p in prompts)
    assert {p.kind for p in prompts} == set(SEEN_KINDS)
    assert all(split_of(p.text) == "train" for p in prompts)
    assert "mixed" in {p.task for p in prompts}
    assert training_prompts(5, seed=3) == prompts[:5]
    assert training_prompt(8) == training_prompt(8) != training_prompt(9)


def test_splits_never_share_a_text() -> None:
    key = [{p.text.casefold().rstrip(".") for p in ps} for ps in (
        training_prompts(1500), validation_prompts(600), held_out_prompts(600)
    )]  # fmt: skip
    assert not key[0] & key[1]
    assert not key[0] & key[2]
    assert not key[1] & key[2]
    assert split_of("A cat.") == split_of("a cat")


def test_held_out_mixture() -> None:
    prompts = held_out_prompts(1000, seed=7)
    assert prompts == held_out_prompts(1000, seed=7)
    tasks = Counter(p.task for p in prompts)
    assert set(tasks) == set(TASKS)
    assert max(tasks.values()) - min(tasks.values()) <= 1
    kinds = Counter(p.kind for p in prompts)
    plain = sum(kinds[k] for k in PLAIN_KINDS)
    held = sum(kinds[k] for k in HELD_OUT_KINDS)
    assert plain >= 550
    assert 0.4 <= held / (1000 - plain) <= 0.65
    assert set(kinds) == set(KINDS)
    for p in prompts:
        assert has_held_out_pair(p.scene) == (p.task in ("colors", "position", "color_attr"))


def test_validation_is_for_tuning() -> None:
    prompts = validation_prompts(600, seed=0)
    assert not any(has_held_out_pair(p.scene) for p in prompts)
    assert not {p.kind for p in prompts} & set(HELD_OUT_KINDS)
    assert {p.task for p in prompts} == set(TASKS)


def test_words_mean_one_thing() -> None:
    """No synonym or riddle stands for two classes, and no riddle holds a colour."""
    meanings: Counter[str] = Counter()
    for table in (SYNONYMS, RIDDLES):
        meanings.update(word for words in table.values() for word in words)
    meanings.update(CLASSES)
    meanings.update(word for words in COLOR_SYNONYMS.values() for word in words)
    meanings.update(COLORS)
    assert max(meanings.values()) == 1
    assert min(len(words) for words in (*SYNONYMS.values(), *RIDDLES.values())) >= 2
    assert set(COLOR_SYNONYMS) == set(COLOR_THINGS) == set(COLORS)
    assert set(COUNT_NOUNS) == {2, 3, 4}
    for words in RIDDLES.values():
        for riddle in words:
            assert not set(riddle.split()) & set(COLORS), riddle


def test_small_talk_names_nothing() -> None:
    relations = {w for phrases in RELATION_PHRASES.values() for w in phrases}
    for frame in (*CHAT_FRAMES, *RAMBLE_FRAMES):
        assert frame.count("{}") == 1
        for word in (*CLASSES, *COLORS, *relations):
            assert f" {word} " not in f" {frame} ", (frame, word)


def test_a_slip_never_makes_another_name() -> None:
    rng = random.Random(0)
    known = {word for name in (*CLASSES, *COLORS) for word in name.split()}
    for cls in CLASSES:
        for _ in range(20):
            slipped = add_typos(cls, rng)
            if slipped != cls:
                assert not (set(slipped.split()) - set(cls.split())) & known
    assert add_typos("a cat", rng) == "a cat"
    assert add_typos("giraffe", rng) != "giraffe"
