"""Telling that memory ran out, and giving it back."""

from __future__ import annotations

import gc

MESSAGES = (
    "not enough memory",
    "out of memory",
    "can't allocate memory",
    "cublas_status_alloc_failed",
)

__all__ = ["is_out_of_memory", "release_memory"]


def is_out_of_memory(error: BaseException) -> bool:
    """Tell a lack of memory (CUDA, MPS or CPU) from every other failure."""
    import torch

    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(part in text for part in MESSAGES)


def release_memory() -> None:
    """Collect garbage and hand cached blocks back to the driver."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
