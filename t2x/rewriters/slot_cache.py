"""Keys and values of rows that come and go: one buffer per layer and kind, (slots, heads, tokens,
width), that grows with its longest row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

_GROWTH = 64  # tokens by which buffers become longer

__all__ = ["SlotCache"]


class SlotCache(DynamicCache):
    """Cache of transformers whose reads and writes go where it was last aimed."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        self._rows = slice(0, 0)
        self._begin: int | Tensor = 0
        self._end = 0

    def aim(self, rows: slice, begin: int | Tensor, end: int) -> None:
        """Let slots ``rows`` write from ``begin`` on, one number or one per row, and read up to
        ``end``."""
        self._rows, self._begin, self._end = rows, begin, end

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Write (rows, heads, tokens, width) and give all that the rows hold."""
        keys, values = self._buffers.get(layer_idx, (None, None))
        pair = self._room(keys, key_states), self._room(values, value_states)
        self._buffers[layer_idx] = pair
        self._write(pair[0], key_states)
        self._write(pair[1], value_states)
        return pair[0][self._rows, :, : self._end], pair[1][self._rows, :, : self._end]

    def _write(self, buffer: Tensor, new: Tensor) -> None:
        if isinstance(self._begin, int):
            buffer[self._rows, :, self._begin : self._end] = new
        else:  # one token per row, each at its own place
            rows = torch.arange(len(new), device=new.device)
            buffer[rows, :, self._begin.to(new.device)] = new[:, :, 0]

    def _room(self, buffer: Tensor | None, new: Tensor) -> Tensor:
        if buffer is not None and buffer.shape[2] >= self._end:
            return buffer
        size = -(-self._end // _GROWTH) * _GROWTH
        larger = new.new_zeros(self.slots, new.shape[1], size, new.shape[3])
        if buffer is not None:
            larger[:, :, : buffer.shape[2]] = buffer
        return larger

    def spread(self) -> None:
        """Give what the first slot holds to every other one."""
        for pair in self._buffers.values():
            for buffer in pair:
                buffer[1:, :, : self._end] = buffer[:1, :, : self._end]

    def move(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` tokens of a slot into another."""
        for pair in self._buffers.values():
            for buffer in pair:
                buffer[target, :, :length] = buffer[source, :, :length]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens before those that come next, of the longest row."""
        return self._begin if isinstance(self._begin, int) else int(self._begin.max())

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Tokens that are read, and where they begin."""
        return self._end, 0
