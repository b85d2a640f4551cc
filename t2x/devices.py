"""Which device and number format models get when nobody says: one rule for generators, rewriters
and rewards.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError

if TYPE_CHECKING:
    import torch

Device: TypeAlias = "str | torch.device"

log = logging.getLogger(__name__)

AUTO = "auto"  # bfloat16 where it is fast
STORED = "stored"  # as a checkpoint was saved
DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "float16": "float16",
    "fp16": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}

__all__ = [
    "AUTO",
    "DTYPES",
    "STORED",
    "Device",
    "auto_dtype",
    "fast_bfloat16",
    "loading_dtype",
    "move_loaded",
    "named_dtype",
    "present_device",
    "resolve_device",
    "set_threads",
    "warn_emulated",
]


def resolve_device(device: Device | None) -> torch.device:
    """Give the device asked for, or the best one here: CUDA, then Apple's MPS, then the CPU.

    Of several GPUs it is the one of this process, where a launcher (accelerate, torchrun) started
    one for each; what is loaded before the trainer says so would all lie on the first. Raises
    T2XError for what is no device.
    """
    import torch

    if device is not None:
        try:
            return torch.device(device)
        except RuntimeError as error:
            raise T2XError(f"there is no device {str(device)!r}; give cpu, cuda or mps") from error
    if torch.cuda.is_available():
        own = os.environ.get("LOCAL_RANK", "")
        return torch.device("cuda", int(own)) if own.isdecimal() else torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def present_device(device: Device | None) -> torch.device:
    """Give ``resolve_device`` of what a model is to be loaded on, before anything is downloaded.

    Raises T2XError for a GPU that this machine, or this build of PyTorch, has not.
    """
    import torch

    place = resolve_device(device)
    there: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
    }
    if place.type not in there:
        return place
    found = "none"
    if there[place.type]():
        number = torch.cuda.device_count() if place.type == "cuda" else 1
        if (place.index or 0) < number:
            return place
        found = f"{number}, numbered from 0"
    build = f"PyTorch {torch.__version__} sees {found}"
    raise T2XError(f"there is no {place} here: {build}; give cpu, or see `t2x doctor`")


def fast_bfloat16(device: Device | None = None) -> bool:
    """Whether products of bfloat16 matrices are faster on a device (None: the best one here) than
    those of float32, and not emulated.

    A CPU needs instructions for them (AVX512-BF16, AMX-BF16, Armv8.6 BF16) and oneDNN, which
    PyTorch for macOS is built without; an NVIDIA GPU is of 2020 or later. Apple's GPUs take
    bfloat16 from macOS 14 on and the older ones convert it: float16 is as fast on all.
    """
    import torch

    place = resolve_device(device)
    if place.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return place.type == "cpu" and torch.backends.mkldnn.is_available() and _cpu_has_bfloat16()


def _cpu_has_bfloat16() -> bool:
    import torch

    if hasattr(torch.cpu, "get_capabilities"):
        found = torch.cpu.get_capabilities()
        names = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")  # the last two are Arm's
        return any(bool(found.get(name)) for name in names)
    check = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # of older PyTorch
    return bool(check and check())


def auto_dtype(device: Device | None = None, *, half: bool = False) -> torch.dtype:
    """Give what ``dtype: auto`` is on a device: bfloat16 where it is fast, else float32, or with
    ``half`` float16 on an accelerator (for what is not trained and known to bear its range).
    """
    import torch

    place = resolve_device(device)
    if fast_bfloat16(place):
        return torch.bfloat16
    return torch.float16 if half and place.type != "cpu" else torch.float32


def loading_dtype(dtype: torch.dtype | str | None, device: torch.device) -> torch.dtype | str:
    """Give what ``from_pretrained`` of transformers takes: the number format asked for, else
    float32 on a CPU, where shorter ones are slow, and "auto", which to transformers is the
    checkpoint's own, elsewhere.

    Names are those of ``named_dtype``, and "stored" for the checkpoint's own.
    """
    import torch

    if dtype == STORED or (dtype is None and device.type != "cpu"):
        return "auto"
    if dtype is None:
        return torch.float32
    return named_dtype(dtype, device) if isinstance(dtype, str) else dtype


def named_dtype(name: str, device: Device | None = None, *, half: bool = False) -> torch.dtype:
    """Give torch's number format of that name, as configurations write it: "bfloat16", ..., or
    "auto", which is ``auto_dtype`` of the device with its ``half``.

    Raises T2XError for another name. On a CPU without bfloat16 that is asked for, the log says once
    that it is slow.
    """
    import torch

    if name == AUTO:
        return auto_dtype(device, half=half)
    if name not in DTYPES:
        raise T2XError(f"unknown dtype {name!r}; allowed: {', '.join([AUTO, *DTYPES])}")
    found: torch.dtype = getattr(torch, DTYPES[name])
    if found == torch.bfloat16:
        warn_emulated(f"dtype {name}", "dtype: auto", device)
    return found


def warn_emulated(given: str, instead: str, device: Device | None = None) -> None:
    """Say once for each ``given`` setting that this CPU emulates bfloat16, where it does, and what
    to write instead."""
    place = resolve_device(device)
    if place.type == "cpu" and not fast_bfloat16(place):
        _warn_once(given, instead)


@lru_cache(maxsize=16)
def _warn_once(given: str, instead: str) -> None:
    log.warning(
        "%s: this CPU has no instructions for bfloat16 and emulates it, which can take 40 times as "
        "long as float32; give %s, which is bfloat16 only where that is fast",
        given,
        instead,
    )


def move_loaded(model: Any, device: Device | None, dtype: torch.dtype | None) -> Any:
    """Give a loaded model back as and where it is, but for what is asked for; that is done in
    place."""
    if device is not None:
        model = model.to(present_device(device))
    return model if dtype is None else model.to(dtype)


def set_threads(threads: int | None) -> None:
    """Fix the number of CPU threads; None keeps what the environment says."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
