"""Text features that an encoder has already computed, by text."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import Module

__all__ = ["CachedText", "TextCache", "weights_state"]


@dataclass(frozen=True)
class CachedText:
    """Features of one text, (D,), and whether the text was cut to fit."""

    row: Tensor
    cut: bool


class TextCache:
    """The ``size`` texts asked for last, as long as ``state`` (what their features depend on beside
    the text) stays the same; another state empties it.
    """

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self._state: Hashable = None
        self._rows: dict[str, CachedText] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, text: str, state: Hashable) -> CachedText | None:
        """What is known about ``text``, which becomes the last to be forgotten."""
        if state != self._state:
            self._state, self._rows = state, {}
        found = self._rows.pop(text, None)
        if found is not None:
            self._rows[text] = found
        return found

    def keep(self, text: str, entry: CachedText) -> None:
        """Remember ``text`` under the state of the last :meth:`take`."""
        self._rows[text] = entry
        for old in list(self._rows)[: max(len(self._rows) - self.size, 0)]:
            self._rows.pop(old, None)


def weights_state(module: Module) -> Hashable:
    """Changes whenever weights move to another device or dtype, are replaced or trained."""
    return hash(
        tuple(
            (id(p), p.device, p.dtype, p.data_ptr(), 0 if p.is_inference() else p._version)
            for p in module.parameters()
        )
    )
