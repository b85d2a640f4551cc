"""A network that does not compute the same thing twice: for the goldens and tests of full size."""

from __future__ import annotations

from typing import Any

import torch


def remember(network: torch.nn.Module) -> None:
    """Run a network once for inputs that are equal, as one picture is for several prompts: its
    last output is kept, and given as a copy.
    """
    plain, last = network.forward, []

    def forward(*args: Any, **options: Any) -> Any:
        given = [*args, *options.values()]
        if not last or not same(last[0], given):
            last[:] = [given, plain(*args, **options)]
        output = last[1]
        return output.clone() if isinstance(output, torch.Tensor) else output

    network.forward = forward  # type: ignore[method-assign]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x is y
        for x, y in zip(a, b, strict=True)
    )
