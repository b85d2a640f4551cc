"""Counting the bytes of tensors that are alive, of real ones or of ones with shapes and no data."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

__all__ = [
    "Footprint",
    "Live",
    "RealIntegers",
    "count_graph",
    "footprint",
    "is_tensor",
    "peak_bytes",
    "shadow",
]


@dataclass(frozen=True)
class Footprint:
    """Bytes of one part: ``held`` from its forward to its backward pass, and the most at any moment
    of both (``peak``). Weights and input don't count."""

    held: int
    peak: int


class Live(TorchDispatchMode):
    """Counts bytes of the storages that operations made and that are still there, of fake tensors
    or of real ones.

    With the mode that the fake ones are of, real tensors that they meet don't count either.
    """

    def __init__(self, fake: bool, mode: FakeTensorMode | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._fake, self._mode = fake, mode
        self._seen: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves = [t for t in tree_leaves((args, kwargs)) if is_tensor(t)]
        if self._mode is not None:  # the mode remembers what it makes of a real tensor
            leaves += [self._mode.from_tensor(t) for t in leaves if not isinstance(t, FakeTensor)]
        found = func(*args, **(kwargs or {}))
        given = {id(t.untyped_storage()) for t in leaves}
        for tensor in tree_leaves(found):
            if is_tensor(tensor) and isinstance(tensor, FakeTensor) == self._fake:
                self._count(tensor.untyped_storage(), given)
        return found

    def _count(self, storage: Any, given: set[int]) -> None:
        if id(storage) not in self._seen and id(storage) not in given:
            self.add(storage, storage.nbytes())

    def add(self, storage: Any, size: int) -> None:
        """Count a storage as ``size`` bytes for as long as it is there."""
        key = id(storage)
        self.now += size - self._sizes.get(key, 0)
        self.peak = max(self.peak, self.now)
        self._sizes[key] = size

        def gone(_: Any) -> None:
            if self._seen.pop(key, None) is not None:
                self.now -= self._sizes.pop(key)

        self._seen[key] = weakref.ref(storage, gone)

    def size(self, storage: Any) -> int:
        """What a storage counts; 0 if it is none that operations made."""
        return self._sizes.get(id(storage), 0)


class RealIntegers(TorchDispatchMode):
    """Computes whole numbers and truth values for real while all else is of ``fake``: for networks
    that look at positions and sizes of pictures among their tokens."""

    def __init__(self, fake: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._fake = fake

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = [t for t in tree_leaves((args, kwargs)) if is_tensor(t)]
        if any(isinstance(t, FakeTensor) for t in leaves):
            with self._fake:
                return func(*tree_map(_placed, args), **kwargs)
        if not any(t.is_floating_point() for t in leaves):
            try:
                with self._fake:
                    found = func(*args, **kwargs)
            except (DataDependentOutputException, DynamicOutputShapeException):
                return func(*args, **kwargs)
            made = [t for t in tree_leaves(found) if is_tensor(t)]
            return found if any(t.is_floating_point() for t in made) else func(*args, **kwargs)
        with self._fake:
            return func(*args, **kwargs)


def _placed(value: Any) -> Any:
    """Places of what a mask chooses, whose number a mask without data would not tell."""
    if isinstance(value, list) and any(is_tensor(t) and t.dtype == torch.bool for t in value):
        found: list[Any] = []
        for item in value:
            is_mask = is_tensor(item) and item.dtype == torch.bool
            found += item.nonzero(as_tuple=True) if is_mask else [item]
        return found
    return value


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def footprint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Footprint:
    """Count a function's graph from its tensor arguments that require gradients, forward and
    backward, by shapes alone: nothing is computed and no memory taken.

    Raises whatever the function raises for tensors without data.
    """
    leaves: list[Tensor] = []
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:

        def convert(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            copy = fake.from_tensor(value.detach()).requires_grad_(value.requires_grad)
            leaves.extend([copy] if value.requires_grad else [])
            return copy

        given, named = tree_map(convert, (args, kwargs))
        return count_graph(lambda: function(*given, **named), leaves, fake=True, mode=fake)


def peak_bytes(run: Callable[[], Any]) -> int:
    """Bytes of the tensors that ``run`` makes, at the fullest moment; for real, at full cost."""
    with Live(fake=False) as live:
        run()
    peak: int = live.peak
    return peak


def count_graph(
    run: Callable[[], Any],
    leaves: Sequence[Tensor],
    *,
    fake: bool,
    mode: FakeTensorMode | None = None,
) -> Footprint:
    """Run forward and backward, for real or for fake, and count. ``mode``: the one of the fake
    tensors, where they meet real ones (weights), which then don't count."""
    with torch.enable_grad(), Live(fake, mode) as live:
        found = first_tensor(run())
        held = live.now - found.untyped_storage().nbytes()
        if found.requires_grad:
            torch.autograd.grad(found, leaves, torch.ones_like(found), allow_unused=True)
    return Footprint(max(held, 0), live.peak)


def first_tensor(value: Any) -> Tensor:
    leaves = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    if not leaves and hasattr(value, "sample"):
        return first_tensor(value.sample)
    return leaves[0]


def shadow(module: torch.nn.Module) -> torch.nn.Module:
    """The same weights in modules of their own, so that what a module caches (positions, say) while
    tensors have no data stays out of the real one."""
    twin = copy.copy(module)
    for name, value in vars(twin).items():
        if isinstance(value, dict):
            twin.__dict__[name] = copy.copy(value)
    for name, part in twin._modules.items():
        twin._modules[name] = None if part is None else shadow(part)
    return twin
