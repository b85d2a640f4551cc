"""Other people's models, used for scoring and left as they were."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

__all__ = ["frozen"]


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Hold modules in evaluation mode and their parameters out of any graph, then put both back.

    A graph built inside leads to the pixels alone, also after the end: its backward pass gives the
    parameters no gradient, and what only that would have needed is not kept. So a model that is
    being trained can score between two steps, in the thread that trains it.
    """
    training = [m for root in modules for m in root.modules() if m.training]
    learning = [p for root in modules for p in root.parameters() if p.requires_grad]
    try:
        for module in training:
            module.training = False
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for module in training:
            module.training = True
        for parameter in learning:
            parameter.requires_grad_(True)
