"""Questions about the emoji world: intents agree with prompt and answers, options differ in one
thing."""

from __future__ import annotations

from t2x.asking.emoji_world import FAMILIES, EmojiWorld, scene_values
from t2x.asking.records import DOESNT_MATTER, SOMETHING_ELSE, Feature, Known
from t2x.world.content import tells_scene
from t2x.world.rules import parse
from t2x.world.scene import COLORS, Group, Scene


def _feature(world: EmojiWorld, key: str, known: Known | None = None) -> Feature:
    known = known or Known()
    (found,) = [f for f in world.features(known, world.intents(known)) if f.key == key]
    return found


def test_intents_agree_with_the_prompt() -> None:
    world = EmojiWorld("cats to the left of a red vehicle")
    intents = world.intents(Known())
    assert len(intents) > 2
    for values in (intent.values for intent in intents):
        assert values["kind 0"] == "cat" and values["count 0"] in ("2", "3")
        assert values["color 1"] == "red" and values["place"] == "left of"


def test_intents_agree_with_the_answers() -> None:
    world = EmojiWorld("an animal and a bus")
    color = _feature(world, "color 0")
    known = Known().after(color, SOMETHING_ELSE).after(_feature(world, "color 1"), DOESNT_MATTER)
    intents = world.intents(known)
    shown = {next(iter(option.values)) for option in color.options}
    assert intents
    assert all(i.values["color 0"] in set(COLORS) - shown for i in intents)
    assert all(i.values["color 1"] is None for i in intents)


def test_pairs_that_training_holds_out_are_as_likely_as_others() -> None:
    from t2x.world.split import is_held_out_color

    held_out = {c for c in COLORS if is_held_out_color("cat", c)}
    assert held_out
    seen = {i.values["color 0"] for i in EmojiWorld("a cat").intents(Known())}
    assert held_out <= seen


def test_the_same_gives_the_same() -> None:
    one, two = (EmojiWorld("an animal", 5) for _ in range(2))
    assert one.intents(Known()) == two.intents(Known())
    assert one.text(Known()) == two.text(Known())
    assert set(one.order[1:]) == set(FAMILIES)
    assert one.order[1] == "kind"


def test_a_row_differs_in_one_thing() -> None:
    world = EmojiWorld("an animal and a bus")
    color = _feature(world, "color 1")
    base = world.text(Known())
    for option in color.options:
        text = world.text(Known().after(color, option.label))
        assert text == base.replace("a bus", f"{'an' if option.label[0] in 'o' else 'a'} "
                                    f"{option.label} bus")  # fmt: skip


def test_kinds_are_narrowed_question_by_question() -> None:
    world, known = EmojiWorld("a thing"), Known()
    asked = []
    while found := [f for f in world.features(known, world.intents(known)) if f.family == "kind"]:
        (option,) = [o for o in found[0].options if "zebra" in o.values]
        known = known.after(found[0], option.label)
        asked.append(option.label)
    assert asked == ["animal", "wild animal", "zebra"]
    assert tells_scene(world.text(known), Scene((Group("zebra"),)))


def test_whether_several_are_alike_comes_first() -> None:
    world = EmojiWorld("two pets")
    (only,) = world.features(Known(), world.intents(Known()))
    assert only.key == "alike"
    different = Known().after(only, "different pets")
    assert len(world.scene(different).groups) == 2
    assert world.scene(Known().after(only, DOESNT_MATTER)).groups[0].count == 2


def test_more_brings_another_thing() -> None:
    world = EmojiWorld("a cat")
    known = Known().after(_feature(world, "more"), "one more kind of thing")
    assert _feature(world, "kind 1", known).question == "What is the other thing?"
    assert "place" in {f.key for f in world.features(known, world.intents(known))}
    assert len(world.scene(known).groups) == 2


def test_answers_of_a_scene_lead_to_the_scene() -> None:
    hidden = Scene((Group("dog", "pink"), Group("bus", None, 2)), "above")
    world, known = EmojiWorld("a pet and buses"), Known()
    values = scene_values(hidden, 2)
    for _ in range(12):
        for feature in world.features(known, world.intents(known)):
            value = values[feature.key]
            label = next((o.label for o in feature.options if value in o.values), None)
            label = label or (SOMETHING_ELSE if value in feature.rest else DOESNT_MATTER)
            known = known.after(feature, label)
            break
    assert world.scene(known) == hidden


def test_a_prompt_of_another_world_begins_at_a_thing() -> None:
    world = EmojiWorld("a castle on a hill")
    assert _feature(world, "kind 0").options[0].label == "animal"
    assert parse(world.text(Known())) is not None or world.text(Known())
