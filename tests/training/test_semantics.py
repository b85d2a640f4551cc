"""Weights of Sem-DPO by name of the embedder, and what is left out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from t2x.errors import T2XError
from t2x.rewriters.similarity import load_embedder
from t2x.rewriters.templates import Template
from t2x.rollouts.reading import policy_text
from t2x.training.semantics import SemanticSection, weigh_pairs

pytestmark = pytest.mark.extra("train")

TEMPLATE = Template(require_answer=True, domain="emoji")


def rows(*pairs: tuple[str, str]) -> Any:
    from datasets import Dataset

    return Dataset.from_list(
        [
            {
                "original_prompt": prompt,
                "chosen": [
                    {"role": "assistant", "content": f"<think>p</think><answer>{text}</answer>"}
                ],
            }
            for prompt, text in pairs
        ]
    )


def test_weight_is_that_of_the_prompt_without_its_reasoning() -> None:
    data = rows(("two red cats", "two red cats"), ("two red cats", "two red cats on a wall"))
    section = SemanticSection(alpha=2.0, embedder="clip")
    kept, found = weigh_pairs(data, TEMPLATE, section)
    same, other = kept["weight"]
    one, two = load_embedder("clip")(["two red cats", "two red cats on a wall"])
    assert same == pytest.approx(1.0, abs=1e-5)
    assert other == pytest.approx(math.exp(-2 * (1 - float(one @ two))), abs=1e-5)
    assert other < 0.99
    assert found["mean_weight"] == pytest.approx((same + other) / 2)
    kept, found = weigh_pairs(data, TEMPLATE, SemanticSection(2.0, "clip", divide_by_mean=True))
    assert sum(kept["weight"]) == pytest.approx(2.0)
    assert found["mean_weight"] == pytest.approx((same + other) / 2)
    kept, _ = weigh_pairs(data, TEMPLATE, SemanticSection(0.0, "clip"))
    assert list(kept["weight"]) == [1.0, 1.0]


def test_gates_see_what_a_cosine_does_not() -> None:
    """The other count and the other side lie near the prompt, and break it."""
    data = rows(
        ("three dogs", "three brown dogs"),
        ("three dogs", "four brown dogs"),
        ("a cat to the left of a bus", "a cat to the right of a bus"),
    )
    kept, found = weigh_pairs(data, TEMPLATE, SemanticSection(1.0, "clip"))
    assert kept["original_prompt"] == ["three dogs"]
    assert (found["pairs"], found["gated"], found["unreadable"]) == (1, 2, 0)
    loose, _ = weigh_pairs(data, TEMPLATE, SemanticSection(1.0, "clip", gates=False))
    three, four, right = loose["weight"]
    assert right > 0.99
    assert four == pytest.approx(three, abs=0.1)


@pytest.mark.parametrize(
    "prompt",
    [
        'a sign that says "Open late"',
        "a (red:1.3) cat [blurry]",
        "a cat <lora:fur:0.8>",
        "two __animal__ on a hill",
        "a {red|blue} bus",
        "a dog --ar 16:9",
        "two cats",
    ],
)
@pytest.mark.parametrize("gates", [True, False])
def test_a_winner_that_changes_nothing_weighs_one(prompt: str, gates: bool) -> None:
    """What stands aside for the policy stands aside on both sides."""
    data = rows((prompt, policy_text(prompt)), ("two red cats", "a blue bus"))
    section = SemanticSection(4.0, "clip", gates=gates)
    kept, _ = weigh_pairs(data, Template(require_answer=True), section)
    assert kept["weight"][0] == pytest.approx(1.0, abs=1e-4)


def test_a_prompt_in_parts_is_left_out() -> None:
    data = rows(("two cats BREAK a dog", "two cats"), ("two cats", "two cats"))
    _, found = weigh_pairs(data, TEMPLATE, SemanticSection(1.0, "clip", gates=False))
    assert (found["pairs"], found["unreadable"]) == (1, 1)


def test_nothing_left_is_an_error() -> None:
    from datasets import Dataset

    data = Dataset.from_list([{"original_prompt": "a cat", "chosen": "no tags here"}])
    with pytest.raises(T2XError, match="1 winners can't be read"):
        weigh_pairs(data, TEMPLATE, SemanticSection(1.0, "clip"))
    with pytest.raises(T2XError, match=r"semantic\.alpha"):
        SemanticSection(alpha=-1.0)


@pytest.mark.extra("minilm")
def test_minilm_weighs_drift() -> None:
    data = rows(
        ("a winding road seen from the air", "aerial view of a winding road"),
        ("a winding road seen from the air", "close-up of two smiling people"),
    )
    kept, _ = weigh_pairs(data, Template(require_answer=True), SemanticSection(1.0, gates=False))
    near, far = kept["weight"]
    assert near > 0.7 > 0.5 > far
