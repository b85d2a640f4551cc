"""From a hub id, a local folder or a loaded object to a quiet diffusers pipeline on its device.

Weights come from safetensors only, and code that a model repository brings along runs only if the
caller passes ``trust_remote_code=True`` himself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from t2x.errors import T2XError

if TYPE_CHECKING:
    import torch

Offload = Literal["model", "sequential"]
SETTINGS_FILE = "t2x.json"
DTYPES = {
    "float32": "float32",
    "fp32": "float32",
    "float16": "float16",
    "fp16": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
}

__all__ = [
    "SETTINGS_FILE",
    "Offload",
    "folder_settings",
    "load_pipeline",
    "place",
    "quiet",
    "resolve_device",
    "resolve_dtype",
]


def resolve_device(device: str | torch.device | None) -> torch.device:
    """Give the device asked for, or the best one here: CUDA, then Apple's MPS, then the CPU."""
    import torch

    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


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
def quiet() -> Iterator[None]:
    """Silence the bars and remarks of diffusers and transformers, and give them back afterwards.

    Errors still raise. The verbosity is global to the process, so this is for one thread at a time.
    """
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    levels = [(lib, lib.get_verbosity()) for lib in (diffusers_logging, transformers_logging)]
    bars = [
        (lib, lib.is_progress_bar_enabled()) for lib in (diffusers_logging, transformers_logging)
    ]
    for lib, _ in levels:
        lib.set_verbosity_error()
        lib.disable_progress_bar()
    try:
        yield
    finally:
        for lib, level in levels:
            lib.set_verbosity(level)
        for lib, enabled in bars:
            if enabled:
                lib.enable_progress_bar()


def folder_settings(source: str | Path) -> dict[str, Any]:
    """Read the default sampling settings (``t2x.json``) of a local folder; empty when there are
    none.

    Keys are arguments of the pipeline's own call, such as num_inference_steps, guidance_scale,
    height, width.
    """
    path = Path(source) / SETTINGS_FILE
    if not path.is_file():
        return {}
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise T2XError(f"{path} is no valid JSON: {error}") from error
    if not isinstance(settings, dict):
        raise T2XError(f"{path} must hold one JSON object, got {type(settings).__name__}")
    return settings


def load_pipeline(
    source: str | Path,
    *,
    dtype: torch.dtype,
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Load a pipeline from a folder in diffusers' format or from the hub, on the CPU, without a
    word printed.

    ``options`` go to ``DiffusionPipeline.from_pretrained`` as they are. Raises T2XError in one line
    when the folder is no pipeline, when the hub cannot be reached or when there are no safetensors.
    """
    from diffusers import DiffusionPipeline

    path = Path(source)
    if path.is_dir() and not (path / "model_index.json").is_file():
        raise T2XError(
            f"{source} has no model_index.json; give a folder written by pipeline.save_pretrained"
        )
    arguments: dict[str, Any] = {"use_safetensors": True, "revision": revision, **(options or {})}
    try:
        with quiet():
            return DiffusionPipeline.from_pretrained(str(source), dtype=dtype, **arguments)
    except (OSError, ValueError, ImportError) as error:
        raise T2XError(
            f"cannot load {str(source)!r} as a diffusers pipeline with safetensors weights: "
            f"{_first_line(error)}; give a hub id, a local folder or a loaded pipeline"
        ) from error


def _first_line(error: Exception, limit: int = 300) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:limit] if lines else type(error).__name__


def place(pipeline: Any, device: torch.device, offload: Offload | None) -> None:
    """Move a pipeline to its device, or let accelerate move its parts there one at a time.

    ``offload`` "model" moves whole components (little slower), "sequential" single layers (much
    slower, least memory).
    """
    if offload is None:
        pipeline.to(device)
        return
    if offload not in ("model", "sequential"):
        raise T2XError(f"unknown offload {offload!r}; allowed: model, sequential, or None")
    if device.type == "cpu":
        raise T2XError(f"offload {offload!r} needs an accelerator; leave it out on a CPU")
    if offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    else:
        pipeline.enable_sequential_cpu_offload(device=device)
