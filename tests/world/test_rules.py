"""The rule-based arm: what it understands, what it gives back, and that it stays small."""

from __future__ import annotations

import inspect
from collections import defaultdict

import pytest

from t2x.types import Rewriter
from t2x.world import lexicon, rules
from t2x.world.content import same_scene, tells_scene
from t2x.world.kinds import HELD_OUT_KINDS, PLAIN_KINDS
from t2x.world.prompts import held_out_prompts, validation_prompts
from t2x.world.rules import RulesRewriter, parse
from t2x.world.scene import Group, Scene

CAT, DOG = Group("cat"), Group("dog")


@pytest.mark.parametrize(
    ("text", "scene"),
    [
        ("A photo of a cat.", Scene((CAT,))),
        ("two kittens to the left of a crimson slice of pizza",
         Scene((Group("cat", None, 2), Group("pizza", "red")), "left of")),
        ("above a dog there is a cat", Scene((CAT, DOG), "above")),
        ("a cat with a dog on the left", Scene((DOG, CAT), "left of")),
        ("a cat and a dog. the cat is under the dog", Scene((CAT, DOG), "below")),
        ("dog (right), cat (left)", Scene((CAT, DOG), "left of")),
        ("could you draw me a trio of ties, and no hot dogs?", Scene((Group("tie", None, 3),))),
        ("a green bear, not white", Scene((Group("bear", "green"),))),
        ("the animal with a trunk", Scene((Group("elephant"),))),
        ("a bear, green like grass, and a hot dog as red as blood",
         Scene((Group("bear", "green"), Group("hot dog", "red")))),
        ("a yelow girafe", Scene((Group("giraffe", "yellow"),))),
    ],
)  # fmt: skip
def test_parses(text: str, scene: Scene) -> None:
    assert same_scene(parse(text), scene), parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "   ", "hello there", "a spaceship", "nine cats", "five cats and six dogs",
     "a cat that is red", "a cat and a dog, both red", "一只猫", "🐈", "a" * 5000],
)  # fmt: skip
def test_gives_back_what_it_does_not_understand(text: str) -> None:
    ((rewrite,),) = RulesRewriter().rewrite([text])
    assert rewrite.status == "unchanged"
    assert rewrite.text == text


def test_rewriter_contract() -> None:
    arm = RulesRewriter()
    assert isinstance(arm, Rewriter)
    prompts = ["a cat and a dog", "a red bus", "nonsense"]
    groups = arm.rewrite(prompts, num_generations=3, seed=5)
    assert [len(g) for g in groups] == [3, 3, 3]
    assert arm.rewrite(prompts[1:2], num_generations=3, seed=5)[0] == groups[1]
    assert groups[1][0].text == "one object. center: a red bus."
    assert groups[1][0].status == "accepted"
    assert len({r.text for seed in range(8) for r in arm.rewrite(prompts[:1], seed=seed)[0]}) > 1


def test_strong_on_training_kinds_and_honest_on_the_others() -> None:
    hits: dict[str, list[bool]] = defaultdict(list)
    for p in [*validation_prompts(500, seed=2), *held_out_prompts(500, seed=2)]:
        ((rewrite,),) = RulesRewriter().rewrite([p.text])
        hits[p.kind].append(tells_scene(rewrite.text, p.scene))
    rate = {kind: sum(v) / len(v) for kind, v in hits.items()}
    assert min(rate[k] for k in PLAIN_KINDS) == 1
    assert min(v for k, v in rate.items() if k not in HELD_OUT_KINDS) > 0.75
    assert max(rate[k] for k in HELD_OUT_KINDS) < 0.6


def test_at_most_300_lines() -> None:
    """Synonym table and parser together, blank lines left aside."""
    lines = [
        line for m in (rules, lexicon) for line in inspect.getsource(m).splitlines() if line.strip()
    ]
    assert len(lines) <= 300
