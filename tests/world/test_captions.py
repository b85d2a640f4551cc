"""Captions: exact words of each style, and how styles go with pictures."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from t2x.world.captions import (
    NUMBER_WORDS,
    STYLES,
    caption,
    dense_prompt,
    noun_phrase,
    plural,
    sample_pair,
)
from t2x.world.render import SLOT_CENTERS
from t2x.world.scene import CLASSES, Group, Scene, sample_scene

SCENE = Scene((Group("cat", "red", 2), Group("umbrella")), "left of")


def test_noun_phrases() -> None:
    assert noun_phrase(Group("cat", "red", 2)) == "two red cats"
    assert noun_phrase(Group("airplane")) == "an airplane"
    assert noun_phrase(Group("airplane", "red")) == "a red airplane"
    assert plural("sheep") == "sheep"
    assert plural("bus") == "buses"


def test_layout_style_names_the_slot_of_every_object() -> None:
    assert caption(SCENE, "layout", 0) == (
        "three objects. right: an umbrella. top left: a red cat. bottom left: a red cat."
    )


def test_other_styles_are_exact_in_content() -> None:
    assert caption(SCENE, "sentence", 0).startswith(
        "exactly two red cats left of one umbrella on a plain background, "
    )
    assert "two red cats to the left of an umbrella" in caption(SCENE, "plain", 0)
    assert caption(SCENE, "tags", 0).startswith("red 2 cats, umbrella, ")


def test_unknown_style_is_told() -> None:
    with pytest.raises(ValueError, match="unknown style 'haiku'; allowed: layout, sentence"):
        caption(SCENE, "haiku", 0)


def test_dense_prompt_tells_every_object_once() -> None:
    rng = random.Random(2)
    for seed in range(200):
        scene = sample_scene("mixed", rng)
        text = dense_prompt(scene, seed)
        assert text.startswith(NUMBER_WORDS[scene.num_objects])
        named = Counter()
        for part in text.rstrip(".").split(". ")[1:]:
            slot, _, phrase = part.partition(": ")
            assert slot in SLOT_CENTERS
            named[phrase.split(" ", 1)[1]] += 1
        told = Counter()
        for g in scene.groups:
            told[f"{g.color} {g.cls}" if g.color else g.cls] += g.count
        assert named == told


def test_pairs_are_reproducible_and_styles_follow_picture_quality() -> None:
    first, again = sample_pair(11), sample_pair(11)
    assert first.text == again.text
    assert np.array_equal(first.picture, again.picture)
    pairs = [sample_pair(i) for i in range(1500)]
    plain = [p for p in pairs if p.style == "plain"]
    dense = [p for p in pairs if p.style == "layout"]
    assert all(p.studio for p in dense)
    assert sum(not p.studio for p in plain) / len(plain) > 0.75
    assert {p.style for p in pairs} == set(STYLES)
    assert {g.cls for p in pairs for g in p.scene.groups} == set(CLASSES)
