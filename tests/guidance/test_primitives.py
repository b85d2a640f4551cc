"""Primitives of ordinary English, of edit instructions, and of the emoji world."""

from __future__ import annotations

import pytest

from t2x.guidance.intents import ACTIONS, SCOPES, Intent, intent_of
from t2x.guidance.primitives import KINDS, Primitive, read_prompt
from t2x.world.primitives import emoji_primitives, scene_primitives
from t2x.world.prompts import validation_prompts
from t2x.world.scene import Group, Scene

TOLD = {
    "two red cats to the left of a dog, no birds, watercolor": {
        "object cat",
        "object dog",
        "count cat 2",
        "attribute cat red",
        "relation cat left of dog",
        "style watercolor",
        "negation bird",
    },
    "a black cat and a white cat sitting on a wooden bench": {
        "object cat",
        "object bench",
        "count cat 2",
        "attribute cat black",
        "attribute cat white",
        "attribute bench wooden",
        "relation cat on bench",
    },
    "three traffic lights and one hot dog": {
        "object traffic light",
        "object hot dog",
        "count traffic light 3",
        "count hot dog 1",
    },
    "a cow. the cow is purple": {"object cow", "attribute cow purple"},
    "could you paint me a cat": {"object cat"},
    "An astronaut riding a horse": {
        "object astronaut",
        "object horse",
        "relation astronaut riding horse",
    },
    "a bowl between a lamp and a vase": {
        "object bowl",
        "object lamp",
        "object vase",
        "relation bowl between lamp and vase",
    },
    'a shop sign that says "OPEN 24h"': {"object shop sign", "text OPEN 24h"},
    "a photo of a man in the style of Rembrandt": {"object man", "style rembrandt"},
    "a street without cars or people": {"object street", "negation car", "negation person"},
    "": set(),
    "!!! ???": set(),
}
EDITS = {
    "replace the cat with a blue dog": (
        Intent("replace", "local", "the cat", "a blue dog"),
        {"object dog", "attribute dog blue", "negation cat"},
    ),
    "make the car red": (Intent("attribute", "local", "the car", "red"), {"attribute car red"}),
    "Please change the color of the umbrella to green.": (
        Intent("attribute", "local", "the umbrella", "green"),
        {"attribute umbrella green"},
    ),
    "make the dog a cat": (
        Intent("replace", "local", "the dog", "a cat"),
        {"object cat", "negation dog"},
    ),
    "remove the bird": (Intent("remove", "local", "the bird"), {"negation bird"}),
    "add a hat": (Intent("add", "local", "", "a hat"), {"object hat"}),
    "give the dog a red collar": (
        Intent("add", "local", "the dog", "a red collar"),
        {"object collar", "attribute collar red"},
    ),
    "turn this photo into a watercolor painting": (
        Intent("style", "global", "", "a watercolor painting"),
        {"style watercolor"},
    ),
}


@pytest.mark.parametrize("text", TOLD)
def test_what_a_prompt_tells(text: str) -> None:
    found = read_prompt(text, editing=False)
    assert {p.describe() for p in found.items} == TOLD[text]
    assert found.intent == Intent()


@pytest.mark.parametrize("text", EDITS)
def test_what_an_edit_changes(text: str) -> None:
    intent, items = EDITS[text]
    found = read_prompt(text)
    assert found.intent == intent
    assert {p.describe() for p in found.items} == items


def test_an_instruction_that_is_no_known_form_is_still_an_edit() -> None:
    assert intent_of("sunset instead of noon", editing=True).action == "add"
    assert intent_of("anime", editing=True) == Intent("style", "global", "", "anime")
    assert intent_of("put a cat next to the dog", editing=True).action == "add"
    assert intent_of("put a cat next to the dog").action == "generate"


def test_describe_shows_every_primitive_once() -> None:
    found = read_prompt("two red cats left of a dog, no birds")
    told = found.describe().splitlines()
    assert "generate, global" in told[0]
    assert [line.split(":")[0].strip() for line in told[1:]] == [k for k in KINDS if found.of(k)]
    assert "  count: cat 2" in told


def test_world_reader_gives_the_scene_in_the_worlds_words() -> None:
    scene = Scene((Group("cat", "red", 2), Group("wine glass")), "above")
    found = emoji_primitives("two crimson kittens on top of a goblet")
    assert found.items == scene_primitives(scene)
    assert Primitive("count", "cat", "2") in found.items and found.reader == "emoji"
    other = emoji_primitives("a lighthouse at dusk, no ships")
    assert other.reader == "rules" and Primitive("object", "lighthouse") in other.items
    assert emoji_primitives("remove the cat").intent.action == "remove"


def test_plain_prompts_of_the_world_are_read_as_their_scene() -> None:
    """By the rules of ordinary English, which know none of the world's words; measured: all of 132
    plain ones among 200, and 88 % of all kinds."""
    plain = [p for p in validation_prompts(120) if p.kind in ("plain", "photo")]
    right = 0
    for prompt in plain:
        found = read_prompt(prompt.text, editing=False).items
        kept = {p for p in found if p.kind != "count" or p.value != "1"}
        told = set(scene_primitives(prompt.scene))
        right += kept == {p for p in told}
    assert len(plain) > 50 and right >= 0.97 * len(plain)


def test_intents_are_among_those_named() -> None:
    for text in (*TOLD, *EDITS):
        intent = read_prompt(text).intent
        assert intent.action in ACTIONS and intent.scope in SCOPES
