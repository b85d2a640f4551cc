"""Maps, boxes and leakage in closed form."""

from __future__ import annotations

import math

import torch

from t2x.functional.grounding import leakage, map_box, mask_box, phrase_map, phrase_similarity


def test_similarity_is_the_cosine_of_each_patch() -> None:
    """(3, 4) and (0, 2) against (1, 0): 3/5 and 0."""
    patches = torch.tensor([[[3.0, 4.0], [0.0, 2.0]]])
    got = phrase_similarity(patches, torch.tensor([[5.0, 0.0]]))
    assert torch.allclose(got, torch.tensor([[0.6, 0.0]]))


def test_map_is_the_softmax_of_standard_scores() -> None:
    """Of 1 and 3 the standard scores are -1 and 1: at temperature 2, odds of e. Scale and shift
    have no say; equal patches share evenly.
    """
    similarity = torch.tensor([[[1.0, 3.0]], [[0.2, 0.2]]], dtype=torch.float64)
    got = phrase_map(similarity, temperature=2.0)
    share = math.e / (1 + math.e)
    expected = torch.tensor([[[1 - share, share]], [[0.5, 0.5]]], dtype=torch.float64)
    assert torch.allclose(got, expected, atol=1e-9)
    assert torch.allclose(phrase_map(7 * similarity + 3, temperature=2.0), got, atol=1e-9)


def test_an_even_rectangle_is_its_own_box() -> None:
    """Columns 2 to 4 of 8 and rows 1 to 1 of 4: x from 0.25 to 0.625, y from 0.25 to 0.5."""
    weights = torch.zeros(1, 4, 8, dtype=torch.float64)
    weights[0, 1, 2:5] = 1 / 3
    expected = torch.tensor([[0.25, 0.25, 0.625, 0.5]], dtype=torch.float64)
    assert torch.allclose(map_box(weights), expected, atol=1e-12)
    whole = torch.full((1, 4, 8), 1 / 32, dtype=torch.float64)
    assert torch.allclose(
        map_box(whole), torch.tensor([[0.0, 0.0, 1.0, 1.0]], dtype=torch.float64), atol=1e-12
    )


def test_leakage_is_the_size_of_what_changed_outside() -> None:
    """Two of four pixels are outside, changed by 3 and 4: sqrt((9 + 16) / 2). The 100 inside has no
    say; without an outside it is 0, with a gradient of 0.
    """
    change = torch.tensor([[[[3.0, 4.0], [100.0, 0.0]]]], requires_grad=True)
    inside = torch.tensor([[[[0.0, 0.0], [1.0, 1.0]]]])
    got = leakage(change, inside)
    assert torch.allclose(got, torch.tensor([math.sqrt(12.5)]))
    nothing = leakage(change, torch.ones_like(inside))
    (slope,) = torch.autograd.grad(nothing.sum(), change)
    assert nothing == 0 and bool((slope == 0).all())


def test_box_of_a_mask_touches_its_outermost_cells() -> None:
    mask = torch.zeros(4, 8)
    mask[1:3, 2:4] = 1.0
    mask[3, 7] = 0.5  # not over 1/2
    assert mask_box(mask).tolist() == [0.25, 0.25, 0.5, 0.75]
    assert bool(mask_box(torch.zeros(4, 8)).isnan().all())
