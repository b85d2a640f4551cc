"""What memory the machine has, that it ran out, and giving it back."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from t2x.errors import T2XError

if TYPE_CHECKING:
    import torch

MEMORY = Path("/proc/meminfo")
MESSAGES = (
    "not enough memory",
    "out of memory",
    "can't allocate memory",
    "cublas_status_alloc_failed",
)

UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}

__all__ = [
    "available_bytes",
    "is_out_of_memory",
    "parse_bytes",
    "readable_bytes",
    "release_memory",
]


def available_bytes(device: str | torch.device = "cpu") -> int | None:
    """Give the bytes that a model can take on a device now, or None where the system does not
    tell.

    Memory that only caches files counts: the system gives it back when it is asked for.
    """
    import torch

    kind = torch.device(device)
    if kind.type == "cuda":
        return torch.cuda.mem_get_info(kind)[0]
    try:
        found = re.search(r"^MemAvailable:\s+(\d+) kB$", MEMORY.read_text("ascii"), re.MULTILINE)
    except OSError:  # not Linux
        found = None
    if found is not None:
        return int(found.group(1)) * 1024
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


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


def readable_bytes(size: int | None) -> str:
    """Three digits and a unit in powers of 1000; "unknown" for None."""
    if size is None:
        return "unknown"
    value, units = float(size), ["B", "KB", "MB", "GB"]
    while value >= 1000 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def parse_bytes(size: int | str) -> int:
    """Read a size: bytes, or text such as "20GB" (10**9) or "16 GiB" (2**30).

    Raises T2XError for anything else, and for a size of nothing.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", str(size))
    unit = UNITS.get(found.group(2).lower()) if found else None
    if found is None or unit is None or float(found.group(1)) <= 0:
        raise T2XError(f"{size!r} is no size of memory; write it like 20GB or 16GiB")
    return int(float(found.group(1)) * unit)
