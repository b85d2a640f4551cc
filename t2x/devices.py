"""Which device and number format models get when nobody says: one rule for generators, rewriters
and rewards.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError

if TYPE_CHECKING:
    import torch

Device: TypeAlias = "str | torch.device"

__all__ = [
    "Device",
    "loading_dtype",
    "move_loaded",
    "named_dtype",
    "resolve_device",
    "set_threads",
]


def resolve_device(device: Device | None) -> torch.device:
    """Give the device asked for, or the best one here: CUDA, then Apple's MPS, then the CPU.

    Of several GPUs it is the one of this process, where a launcher (accelerate, torchrun) started
    one for each; what is loaded before the trainer says so would all lie on the first.
    """
    import torch

    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        own = os.environ.get("LOCAL_RANK", "")
        return torch.device("cuda", int(own)) if own.isdecimal() else torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def loading_dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype | str:
    """Give what ``from_pretrained`` of transformers takes: the number format asked for, else
    float32 on a CPU, where shorter ones are slow, and "auto", the checkpoint's own, elsewhere.
    """
    import torch

    if dtype is not None:
        return dtype
    return torch.float32 if device.type == "cpu" else "auto"


def named_dtype(name: str) -> torch.dtype:
    """Give torch's number format of that name, as configurations write it: "bfloat16", ..."""
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise T2XError(f"there is no number format {name!r}; give float32, bfloat16 or float16")
    return found


def move_loaded(model: Any, device: Device | None, dtype: torch.dtype | None) -> Any:
    """Give a loaded model back as and where it is, but for what is asked for; that is done in
    place."""
    if device is not None:
        model = model.to(device)
    return model if dtype is None else model.to(dtype)


def set_threads(threads: int | None) -> None:
    """Fix the number of CPU threads; None keeps what the environment says."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
