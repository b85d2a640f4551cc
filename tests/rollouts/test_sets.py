"""What a rewrite adds to its group, in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from t2x.functional.diversity import relevance
from t2x.rollouts.config import SetSection
from t2x.rollouts.sets import set_scores, sets_column

PLACES = {"query": [1.0, 1.0], "x": [1.0, 0.0], "y": [0.0, 1.0]}


def embed(texts: Sequence[str]) -> Tensor:
    return torch.nn.functional.normalize(torch.tensor([PLACES[t] for t in texts]), dim=-1)


def test_relevance_in_closed_form() -> None:
    rows = embed(["x", "y", "query"])
    query, reference = rows[2], rows[:2]
    # cos(x, query) = 1 / sqrt(2), and the mean of cos(x, x) = 1 and cos(x, y) = 0 is one half.
    found = relevance(rows[:1], query, reference)
    assert found.item() == pytest.approx(0.5 / math.sqrt(2))
    assert relevance(rows[:1], query, reference[:0]).item() == pytest.approx(1 / math.sqrt(2))


def test_copies_add_less_than_what_is_new() -> None:
    found = set_scores("query", ["x", "x", "y"], embed, gain=1.0)
    # y beside two x: orthogonal, log 2. x beside x and y: log(2 - 1/2).
    torch.testing.assert_close(
        found, torch.tensor([math.log(1.5), math.log(1.5), math.log(2)], dtype=torch.float64)
    )
    mixed = set_scores("query", ["x", "y"], embed)
    assert mixed.tolist() == pytest.approx([0.5 * math.log(2) + 0.0] * 2)


def test_what_is_not_drawn_is_in_no_set() -> None:
    column = sets_column(
        SetSection(gain=1.0),
        embed,
        originals=["query"] * 3,
        texts=["x", None, "y"],
        groups=[0, 0, 1],
    )
    assert column[0].item() == pytest.approx(math.log(2))
    assert column[1].isnan()
    assert column[2].item() == pytest.approx(math.log(2))
