"""Random numbers of guidance's own, on the CPU: a stream for each sample, so that it depends
neither on the device nor on its batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["hash_seed", "normal_rows"]


def hash_seed(*parts: int | str) -> int:
    """A seed that depends on all of ``parts`` and is far from each."""
    digest = hashlib.sha256(" ".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def normal_rows(streams: Sequence[torch.Generator], like: Tensor) -> Tensor:
    """Standard normal numbers (N, ...), a row from each of N streams, otherwise as ``like``."""
    rows = [torch.randn(like.shape[1:], generator=stream) for stream in streams]
    return torch.stack(rows).to(like)
