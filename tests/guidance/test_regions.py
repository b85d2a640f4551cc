"""Places that the words of a prompt tell."""

from __future__ import annotations

import pytest

from t2x.guidance.primitives import read_prompt
from t2x.guidance.regions import regions_of

LEFT, RIGHT = (0.0, 0.0, 0.5, 1.0), (0.5, 0.0, 1.0, 1.0)
THIRD = 1 / 3


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a cat on the left of a dog", {"a cat": LEFT, "a dog": RIGHT}),
        ("a red cat to the right of two dogs", {"a red cat": RIGHT, "a dog": LEFT}),
        ("a bird above a cat", {"a bird": (0.0, 0.0, 1.0, 0.5), "a cat": (0.0, 0.5, 1.0, 1.0)}),
        ("a cat below a bird", {"a cat": (0.0, 0.5, 1.0, 1.0), "a bird": (0.0, 0.0, 1.0, 0.5)}),
        (
            "a cat left of a dog left of a bird",
            {
                "a cat": (0.0, 0.0, THIRD, 1.0),
                "a dog": (THIRD, 0.0, 2 * THIRD, 1.0),
                "a bird": (2 * THIRD, 0.0, 1.0, 1.0),
            },
        ),
        ("a cat on the right and a dog on the left", {"a cat": RIGHT, "a dog": LEFT}),
        ("a cat next to a dog", {"a cat": None, "a dog": None}),
        ("a black cat and a white cat", {"a black cat": None, "a white cat": None}),
        ("a cat left of a dog, the dog is left of the cat", {"a cat": None, "a dog": None}),
        ("watercolor", {}),
    ],
)
def test_boxes_of_a_prompt(prompt, expected):
    assert {r.phrase: r.box for r in regions_of(read_prompt(prompt, editing=False))} == {
        phrase: box if box is None else pytest.approx(box) for phrase, box in expected.items()
    }


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("make the car red", {"a red car": None}),
        ("replace the cat with a blue dog", {"a blue dog": None}),
        ("add a hat on the left", {"a hat": LEFT}),
        ("add a dog to the left of the cat", {"a dog": None, "a cat": None}),
        ("remove the cat", {}),
        ("turn it into watercolor", {}),
    ],
)
def test_an_edit_tells_what_shall_be_there(instruction, expected):
    """Not what was: a reward that looks for the thing that goes would keep it."""
    found = regions_of(read_prompt(instruction, editing=True))
    assert {region.phrase: region.box for region in found} == expected
