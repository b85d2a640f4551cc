"""From an instruction to the prompt of the edited picture."""

from __future__ import annotations

import pytest

from t2x.errors import T2XError
from t2x.guidance.instructions import instruction_to_target

SOURCE = "a photo of a red cat and a small dog"
CARS, CATS = "two green cars to the left of a pizza", "a red cat and a blue cat"


@pytest.mark.parametrize(
    ("source", "instruction", "target"),
    [
        (SOURCE, "make the cat blue", "a photo of a blue cat and a small dog"),
        (SOURCE, "Set the cat's color to orange.", "a photo of an orange cat and a small dog"),
        (SOURCE, "make the dog fluffy", "a photo of a red cat and a fluffy small dog"),
        (SOURCE, "replace the cat with a pizza", "a photo of a pizza and a small dog"),
        (SOURCE, "turn the dog into an elephant", "a photo of a red cat and an elephant"),
        (SOURCE, "add a blue bus", "a photo of a red cat and a small dog and a blue bus"),
        (SOURCE, "please give the cat a hat", f"{SOURCE} and a hat on the cat"),
        (SOURCE, "remove the dog", "a photo of a red cat"),
        (SOURCE, "remove the cat", "a photo of a small dog"),
        (SOURCE, "make it a watercolor painting", f"{SOURCE}, a watercolor painting style"),
        (CARS, "remove the cars", "a pizza"),
        (CARS, "remove the pizza", "two green cars"),
        (CARS, "make the cars red", "two red cars to the left of a pizza"),
        (CATS, "remove the blue cat", "a red cat"),
        (CATS, "change the color of the blue cat to green", "a red cat and a green cat"),
        ("", "make the cat blue", "a blue cat"),
        ("", "replace the cat with a dog", "a dog"),
        ("", "add a dog", "a dog"),
    ],
)  # fmt: skip
def test_targets(source, instruction, target):
    assert instruction_to_target(source, instruction) == target


@pytest.mark.parametrize(
    ("source", "instruction", "said"),
    [
        (SOURCE, "remove the elephant", "tells of no"),
        (SOURCE, "make the bus blue", "tells of no"),
        ("", "remove the cat", "source prompt"),
        ("", "make it a watercolor", "source prompt"),
        ("a red cat", "remove the cat", "nothing is left"),
    ],
)
def test_says_what_it_can_not_do(source, instruction, said):
    with pytest.raises(T2XError, match=said):
        instruction_to_target(source, instruction)
