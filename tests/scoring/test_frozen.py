"""Scoring with a model that is somebody's own."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import nn

from t2x.scoring.frozen import frozen


def model() -> nn.Sequential:
    made = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 1)).train()
    made[0].requires_grad_(False)
    made[2].eval()
    return made


def state(module: nn.Module) -> tuple[list[bool], list[bool]]:
    return [m.training for m in module.modules()], [p.requires_grad for p in module.parameters()]


def test_it_is_frozen_inside_and_as_before_behind() -> None:
    made = model()
    before = state(made)
    with frozen(made):
        assert not any(state(made)[0]) and not any(state(made)[1])
    assert state(made) == before
    with pytest.raises(RuntimeError), frozen(made):
        raise RuntimeError
    assert state(made) == before


def test_a_graph_from_inside_leads_to_the_input_alone() -> None:
    made = model()
    x = torch.rand(2, 4, requires_grad=True)
    with frozen(made):
        y = made(x)
    y.sum().backward()
    assert x.grad is not None and bool((x.grad != 0).any())
    assert all(p.grad is None for p in made.parameters())


def test_what_only_the_parameters_gradient_needs_is_freed() -> None:
    """The input of a linear layer is kept for the gradient of its weight and for nothing else."""
    layer = nn.Linear(4, 4)
    kept = []
    for guard in (True, False):
        x = torch.rand(2, 4, requires_grad=True)
        hidden = x * 2
        watched = weakref.ref(hidden)
        if guard:
            with frozen(layer):
                y = layer(hidden)
        else:
            y = layer(hidden)
        del hidden
        kept.append(watched() is not None)
        y.sum().backward()
    assert kept == [False, True]
