"""The emoji world's words, so that a translation is not taken for a loss."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.rewriters.domain import domain_named
from t2x.rewriters.guarded import Guarded
from t2x.world.captions import caption
from t2x.world.prompts import UserPrompt, validation_prompts
from t2x.world.scene import CLASSES, Scene
from t2x.world.teacher import STYLE_SHARES

emoji = domain_named("emoji")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the animal with a trunk", "the elephant"),
        ("Two kittens to the left of a crimson slice of pizza", "two cats the of a red pizza"),
        ("a long day at work, so cheer me up with one blue bus", "a , one blue bus"),
        ("not cakes but a giraffe", "not cakes but a giraffe"),
        ("a road seen from the air", "a road seen from the air"),
        ("a hot summer day with a dog", "a a dog"),
        ("3 hot-dogs and x2 teddy  bears, no bikes", "3 hot dogs and 2 teddy bears , no bicycles"),
        ("a jet black cat and a jet", "a black cat and a airplane"),
        ("a large kite in the sky", "a kite the"),
        ("a boat on the sea", "a boat the"),
        ("a kite the colour of the sky", "a kite the blue"),
        ("a cup coloured like grass", "a cup green"),
        ("one zbera and a greeen teddy baer", "one zebra and a green teddy bear"),
        ("i don't want any cakes but a sheep", "don't any cakes but a sheep"),
    ],
)
def test_canonical(text: str, words: str) -> None:
    assert emoji.canonical(text) == words


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a hot dog and a dog", ["hot dog", "dog"]),
        ("two hot dogs", ["hot dog"]),
        ("the teddy bear's cup", ["teddy bear", "cup"]),
        ("a red hot-dog", ["hot dog"]),
        ("a doghouse by a catwalk", []),
    ],
)
def test_things_are_whole_names(text: str, names: list[str]) -> None:
    assert list(emoji.things(text)) == names


SWAPS = [
    ("a dog", "a hot dog on a plain background"),
    ("a puppy", "one hot dog, studio"),
    ("a bear", "a teddy bear"),
    ("a teddy bear", "a bear"),
    ("a zbera", "a horse"),
    ("a cat and a lemon", "a yellow bus and a car"),
    ("3 cats", "four cats"),
    ("x2 cups", "three cups"),
    ("two zebras", "three objects. top left: a zebra. bottom left: a zebra. right: a zebra."),
    ("half a dozen apples", "twelve apples"),
    ("a cat and nothing else", "two objects. left: a cat. right: a horse."),
    ("just a cat", "a cat and a dog"),
    ("not only a cat but also a dog", "a dog, studio"),
    ("no dogs, a cat", "a puppy and a cat"),
    ("((two cats)) and [dog]", "three objects. bottom: a dog. top left: a cat. top right: a cat."),
    ("a (kitten:1.2)", "one cat, studio"),
]
SCENES = [
    ("a cat to the left of a dog", "a dog to the left of a cat"),
    ("a cat to the left of a dog", "two objects. left: a dog. right: a cat."),
    ("a cat above a dog", "a cat below a dog"),
    ("two cats and one dog", "one cat and two dogs"),
    ("a red cat and a blue dog", "a blue cat and a red dog"),
    ("exactly one cat", "three cats"),
]


@pytest.mark.parametrize(("prompt", "answer"), SCENES)
def test_a_swapped_scene_is_seen(scripted: Any, prompt: str, answer: str) -> None:
    result = Guarded(scripted(lambda _: answer), domain=emoji).rewrite([prompt])[0][0]
    assert [c.name for c in result.checks if not c.passed] == ["scene_kept"]


@pytest.mark.parametrize(("prompt", "answer"), SWAPS)
def test_a_swapped_thing_is_seen(scripted: Any, prompt: str, answer: str) -> None:
    guarded = Guarded(scripted(lambda _: answer), domain=emoji)
    assert guarded.rewrite([prompt])[0][0].status == "reverted"


RIGHT = [
    ("a large kite in the sky", "one kite, white background"),
    ("a boat on the sea", "a boat, studio"),
    ("a jet black cat", "a black cat, white background"),
    ("a kite the colour of the sky", "a blue kite"),
    ("a puppy", "one dog"),
    ("a tedyd bear and a zbera", "two objects. left: a teddy bear. right: a zebra."),
    ("hot-dogs", "several hot dogs"),
    ("i don't want any cakes, show a sheep", "one sheep"),
    ("photo of four buses", "four objects. a bus. a bus. a bus. a bus."),
    ("a cat and nothing else", "one object. center: a cat."),
    ("not only a cat but also a dog", "two objects. left: a cat. right: a dog."),
    ("no less than two cats", "two cats, studio"),
    ("half a dozen apples", "6 apples"),
    ("don't forget the dog next to a cat", "a dog and a cat"),
    ("why not draw a cat", "one cat, studio"),
    ("wouldn't a cat be nice", "one cat, studio"),
    ("don't leave out the dog", "one dog, studio"),
    ("a cat to the left of a dog", "two objects. left: a cat. right: a dog."),
    ("a cat to the left of a dog", "a dog to the right of a cat"),
    ("a cat to the left of a dog", "cat, dog, sticker, studio"),
    ("cats", "three cats"),
    ("two cats, one red and one blue", "two objects. left: a red cat. right: a blue cat."),
    ("a tv with the colour of coal", "a black tv"),
]


@pytest.mark.parametrize(("prompt", "answer"), RIGHT)
def test_what_is_right_is_accepted(scripted: Any, prompt: str, answer: str) -> None:
    guarded = Guarded(scripted(lambda _: answer), domain=emoji)
    result = guarded.rewrite([prompt])[0][0]
    assert result.status == "accepted", result.checks


def test_no_domain_leaves_text_alone() -> None:
    assert domain_named("").canonical("a  Kitten") == "a  Kitten"
    with pytest.raises(T2XError, match="emoji"):
        domain_named("martian")


def told(prompts: list[UserPrompt], shift: int) -> dict[str, str]:
    """Captions of each prompt's scene, or with ``shift`` of another one's."""
    rng = random.Random(0)
    styles = tuple(STYLE_SHARES)
    return {
        p.text.strip(): caption(
            prompts[(i + shift) % len(prompts)].scene, rng.choice(styles), rng.getrandbits(32)
        )
        for i, p in enumerate(prompts)
    }


@pytest.mark.parametrize(("shift", "low", "high"), [(0, 0.0, 0.005), (7, 0.98, 1.0)])
def test_the_guard_tells_right_from_wrong_captions(
    scripted: Any, shift: int, low: float, high: float
) -> None:
    """Measured on 1,500 prompts: 0.2 % of right captions are reverted, and 99.4 % of those of other
    scenes.
    """
    prompts = validation_prompts(400)
    answers = told(prompts, shift)
    guarded = Guarded(scripted(answers.__getitem__), domain=emoji)
    results = [group[0] for group in guarded.rewrite([p.text for p in prompts])]
    share = sum(r.status == "reverted" for r in results) / len(results)
    assert low <= share <= high


def test_the_guard_sees_a_dropped_thing(scripted: Any) -> None:
    """A caption of the first group alone, every count, colour and style of which is right."""
    pairs = [p for p in validation_prompts(400) if len(p.scene.groups) == 2]
    first = [Scene(p.scene.groups[:1]) for p in pairs]
    answers = {p.text.strip(): caption(s, "sentence", 0) for p, s in zip(pairs, first, strict=True)}
    guarded = Guarded(scripted(answers.__getitem__), domain=emoji)
    results = [group[0] for group in guarded.rewrite([p.text for p in pairs])]
    assert len(results) > 100
    assert sum(r.status == "reverted" for r in results) / len(results) >= 0.99
    reasons = [c.reason for r in results for c in r.checks if c.name == "things_kept"]
    assert sum("is gone" in reason for reason in reasons) > 0.9 * len(results)


NEAR = {"dog": "hot dog", "hot dog": "dog", "bear": "teddy bear", "teddy bear": "bear"}


def test_the_guard_sees_a_swapped_thing(scripted: Any) -> None:
    """A caption with one class in the place of another, close names among them; all else right."""
    prompts = validation_prompts(400)
    rng = random.Random(0)

    def swapped(scene: Scene) -> Scene:
        groups, at = list(scene.groups), rng.randrange(len(scene.groups))
        had = {group.cls for group in groups}
        other = NEAR.get(groups[at].cls, rng.choice(CLASSES))
        if other in had:
            other = rng.choice([name for name in CLASSES if name not in had])
        groups[at] = replace(groups[at], cls=other)
        return Scene(tuple(groups), scene.relation)

    answers = {p.text.strip(): caption(swapped(p.scene), "sentence", 0) for p in prompts}
    guarded = Guarded(scripted(answers.__getitem__), domain=emoji)
    results = [group[0] for group in guarded.rewrite([p.text for p in prompts])]
    assert sum(r.status == "reverted" for r in results) / len(results) >= 0.99


def test_nothing_like_rules_out(scripted: Any) -> None:
    guarded = Guarded(scripted(lambda _: "one object. center: a zebra."), domain=emoji)
    assert guarded.rewrite(["a zebra and nothing like bears"])[0][0].status == "accepted"


def test_a_synonym_is_not_ruled_out(scripted: Any) -> None:
    inner = scripted(lambda p: f"{p}, studio")
    made = inner.rewrite

    def with_negative(prompts: Any, **options: Any) -> Any:
        return [[replace(row[0], negative="kitten")] for row in made(prompts, **options)]

    inner.rewrite = with_negative
    result = Guarded(inner, domain=emoji).rewrite(["a cat"])[0][0]
    assert [c.name for c in result.checks if not c.passed] == ["negative_apart"]


def test_a_rewriter_brings_its_domain(chat_model: Any, chat_tokenizer: Any) -> None:
    from t2x.rewriters.language_model import LanguageModelRewriter
    from t2x.rewriters.templates import Template

    rewriter = LanguageModelRewriter(chat_model, chat_tokenizer, template=Template(domain="emoji"))
    assert rewriter.domain.canonical("a kitten") == "a cat"
