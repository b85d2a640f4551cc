"""What prompts of the emoji world say and leave open."""

from __future__ import annotations

import random

import pytest

from t2x.asking.emoji_world import scene_values
from t2x.asking.kinds import ROOT, Node, node_of, split
from t2x.asking.reading import ANYTHING, read_prompt
from t2x.world.asked import vague_prompt
from t2x.world.captions import training_scene
from t2x.world.scene import CLASSES


def _nodes(node: Node) -> list[Node]:
    return [node, *(n for child in node.children for n in _nodes(child))]


def test_the_tree_holds_each_class_once_and_divides_in_two_to_four() -> None:
    leaves = [node.name for node in _nodes(ROOT) if not node.children]
    assert sorted(leaves) == sorted(CLASSES)
    assert all(2 <= len(node.children) <= 4 for node in _nodes(ROOT) if node.children)


def test_a_part_is_named_by_the_smallest_kind() -> None:
    assert dict(split(frozenset(("cat", "dog", "bird", "horse", "cow")))) == {
        "pet": frozenset(("cat", "dog", "bird")),
        "farm animal": frozenset(("horse", "cow")),
    }
    assert [name for name, _ in split(frozenset(("bus", "cat")))] == ["cat", "bus"]
    assert node_of(frozenset(("cat", "bus"))) is ROOT


def test_words_for_several_classes() -> None:
    (reading,) = read_prompt("a photo of an animal and a bus")
    first, second = reading.things
    assert "cat" in first.kinds and "bus" not in first.kinds and first.counts == {1}
    assert second.kinds == {"bus"}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("a cat", {1}),
        ("cats", {2, 3, 4}),
        ("three kittens", {3}),
        ("sheep", {1, 2, 3, 4}),
        ("a black sheep", {1}),
        ("food", {1, 2, 3, 4}),
        ("some food and a cat", {1, 2, 3}),
        ("pets", {2, 3, 4}),
    ],
)
def test_counts(text: str, counts: set[int]) -> None:
    assert read_prompt(text)[0].things[0].counts == counts


def test_a_number_of_a_kind_may_mean_different_ones() -> None:
    same, different = read_prompt("two pets")
    assert [thing.counts for thing in same.things] == [{2}]
    assert [thing.counts for thing in different.things] == [{1}, {1}]
    assert len(read_prompt("two cats")) == 1


def test_what_is_said_is_settled() -> None:
    (reading,) = read_prompt("a red thing to the left of a dog")
    assert reading.relation == "left of"
    assert reading.things[0].color == "red"
    assert reading.things[0].kinds == ANYTHING.kinds - {"dog"} | {"dog"}


@pytest.mark.parametrize("text", ["the animal that barks", "a pet that fetches sticks"])
def test_riddles_hold_words_for_kinds_and_are_no_such(text: str) -> None:
    assert read_prompt(text)[0].things[0].kinds == {"dog"}


def test_other_worlds_are_not_read() -> None:
    assert read_prompt("a castle on a hill") == ()


def test_what_the_rules_do_not_read_still_names_things() -> None:
    (reading,) = read_prompt("a cat whose neighbour twelve dislikes a dog")
    assert [thing.kinds for thing in reading.things] == [{"cat"}, {"dog"}]


def test_every_vague_prompt_is_read_as_it_is_meant() -> None:
    rng = random.Random(3)
    for _ in range(60):
        prompt = vague_prompt(training_scene(rng), rng)
        things = read_prompt(prompt.text)[0].things
        values = scene_values(prompt.scene, prompt.stated)
        assert len(things) == prompt.stated, prompt
        for at, thing in enumerate(things):
            assert values[f"kind {at}"] in thing.kinds, prompt
            assert int(str(values[f"count {at}"])) in thing.counts, prompt
