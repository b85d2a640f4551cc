"""From a hub id, a local folder or a loaded object to a quiet diffusers pipeline on its device.

Weights come from safetensors only, and code that a model repository brings along runs only if the
caller passes ``trust_remote_code=True`` himself.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from t2x.devices import resolve_device
from t2x.errors import MissingDependencyError, T2XError
from t2x.generators.folders import base_of, load_parts
from t2x.generators.memory import is_out_of_memory
from t2x.settings import INDEX_FILE

if TYPE_CHECKING:
    import torch

Offload = Literal["model", "sequential"]
DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "float16": "float16",
    "fp16": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}

LOAD_OPTIONS = (
    "cache_dir",
    "custom_pipeline",
    "custom_revision",
    "device_map",
    "disable_mmap",
    "force_download",
    "local_files_only",
    "low_cpu_mem_usage",
    "max_memory",
    "offload_folder",
    "offload_state_dict",
    "proxies",
    "quantization_config",
    "token",
    "trust_remote_code",
    "use_safetensors",
    "variant",
)

__all__ = [
    "Offload",
    "check_options",
    "device_of",
    "holds_modules",
    "load_pipeline",
    "place",
    "place_loaded",
    "quiet",
    "resolve_dtype",
]


def resolve_dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """Give the number format asked for, or the device's own: float32 on a CPU, bfloat16 or float16
    elsewhere."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is not None:
        if dtype not in DTYPES:
            raise T2XError(f"unknown dtype {dtype!r}; allowed: {', '.join(DTYPES)}")
        resolved: torch.dtype = getattr(torch, DTYPES[dtype])
        return resolved
    if device.type == "cpu":
        return torch.float32
    bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if bfloat16 else torch.float16


@contextmanager
def quiet(*, bars: bool = False) -> Iterator[None]:
    """Silence diffusers and transformers, but for ``bars`` of progress, and undo it afterwards.

    Errors still raise. Verbosity belongs to the process, so this is for one thread at a time.
    """
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    libraries = (diffusers_logging, transformers_logging)
    before = [(lib, lib.get_verbosity(), lib.is_progress_bar_enabled()) for lib in libraries]
    for lib in libraries:
        lib.set_verbosity_error()
        if not bars:
            lib.disable_progress_bar()
    try:
        yield
    finally:
        for lib, level, enabled in before:
            lib.set_verbosity(level)
            if enabled and not bars:
                lib.enable_progress_bar()


def load_pipeline(
    source: str | Path,
    *,
    dtype: torch.dtype,
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Load a pipeline from a folder in diffusers' format or from the hub, on the CPU, without a
    word printed.

    A folder with only some parts takes the others from its base (``t2x.generators.folders``).
    ``options`` go to ``DiffusionPipeline.from_pretrained`` as they are. Raises T2XError in one line
    when the folder is no pipeline, when the hub cannot be reached or when there are no safetensors.
    """
    from diffusers import DiffusionPipeline

    base = base_of(source) if Path(source).is_dir() else None
    whole = base or str(source)
    local = Path(whole).is_dir()
    if local and not (Path(whole) / INDEX_FILE).is_file():
        raise T2XError(
            f"{whole} has no {INDEX_FILE}; give a folder written by pipeline.save_pretrained"
        )
    given = dict(options or {})
    arguments: dict[str, Any] = {"use_safetensors": True, "revision": revision, **given}
    try:
        with quiet(bars=not local):  # a download of gigabytes shows its progress
            if base is not None:
                arguments = {**load_parts(source, dtype=dtype), **arguments}
            pipeline = DiffusionPipeline.from_pretrained(whole, dtype=dtype, **arguments)
    except T2XError:
        raise
    except ImportError as error:
        raise MissingDependencyError(f"cannot load {str(source)!r}: {_line(error)}") from error
    except Exception as error:
        raise T2XError(
            f"cannot load {str(source)!r} as a diffusers pipeline with safetensors weights: "
            f"{_line(error)}; give a hub id, a local folder or a loaded pipeline"
        ) from error
    check_options(given, type(pipeline))
    return pipeline


def check_options(given: Mapping[str, Any], kind: type) -> None:
    """Refuse ``given`` options of loading that neither ``DiffusionPipeline.from_pretrained`` nor
    ``kind``, a class of pipelines, takes; T2XError lists those that are taken.
    """
    known = {*LOAD_OPTIONS, *inspect.signature(kind.__init__).parameters}  # type: ignore[misc]
    if unknown := sorted(given.keys() - known):
        raise T2XError(
            f"{', '.join(unknown)}: no option of DiffusionPipeline.from_pretrained and no part of "
            f"{kind.__name__}; allowed: {', '.join(sorted(known - {'self'}))}"
        )


def _line(error: Exception, limit: int = 300) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:limit] if lines else type(error).__name__


def place(pipeline: Any, device: torch.device, *, offload: Offload | None) -> None:
    """Move a pipeline to its device, or let accelerate move its parts there one at a time.

    ``offload`` "model" moves whole components (a little slower), "sequential" single layers (much
    slower, least memory). Raises T2XError when memory does not suffice.
    """
    if offload not in (None, "model", "sequential"):
        raise T2XError(f"unknown offload {offload!r}; allowed: model, sequential, or None")
    if offload is not None and device.type == "cpu":
        raise T2XError(f"offload {offload!r} needs an accelerator; leave it out on a CPU")
    try:
        if offload == "model":
            pipeline.enable_model_cpu_offload(device=device)
        elif offload == "sequential":
            pipeline.enable_sequential_cpu_offload(device=device)
        else:
            pipeline.to(device)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise T2XError(
            f"{type(pipeline).__name__} does not fit into the memory of {device}; use "
            'offload="model" or "sequential", or a shorter dtype'
        ) from error


def place_loaded(
    pipeline: Any,
    *,
    dtype: str | torch.dtype | None,
    device: str | torch.device | None,
    offload: Offload | None,
) -> None:
    """Leave a loaded pipeline as and where it is, but for what the caller asks for."""
    if not callable(pipeline) or not hasattr(pipeline, "components"):
        raise T2XError(
            f"{type(pipeline).__name__} is no generator; give a hub id, a folder or a pipeline"
        )
    if dtype is not None:
        with quiet():
            pipeline.to(dtype=resolve_dtype(dtype, device_of(pipeline)))
    if device is not None or offload is not None:
        place(pipeline, resolve_device(device), offload=offload)


def device_of(pipeline: Any) -> torch.device:
    """Give the device that a pipeline computes on, offloaded or not."""
    import torch

    device: torch.device = getattr(pipeline, "_execution_device", torch.device("cpu"))
    return device


def holds_modules(options: Mapping[str, Any]) -> bool:
    """Tell whether load options replace parts of the checkpoint by the caller's own modules."""
    import torch

    return any(isinstance(value, torch.nn.Module) for value in options.values())
