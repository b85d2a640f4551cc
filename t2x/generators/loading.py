"""From a hub id, a local folder or a loaded object to a quiet diffusers pipeline on its device.

Weights come from safetensors only, and code that a model repository brings along runs only if the
caller passes ``trust_remote_code=True`` himself.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.devices import auto_dtype, named_dtype, resolve_device
from t2x.errors import T2XError
from t2x.failures import UNUSED, check_parts, check_vocabulary, reading
from t2x.generators.folders import base_of, load_parts
from t2x.generators.placement import Placement
from t2x.settings import INDEX_FILE, read_index
from t2x.weight_files import names_file

if TYPE_CHECKING:
    import torch

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
    "LOAD_OPTIONS",
    "check_options",
    "device_of",
    "holds_parts",
    "load_pipeline",
    "place_loaded",
    "quiet",
    "resolve_dtype",
]


def resolve_dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """Give the number format asked for, by name or not ("auto" is bfloat16 where it is fast), or
    the device's own: float32 on a CPU, bfloat16 or float16 elsewhere."""
    import torch

    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is not None:
        return named_dtype(dtype, device, half=True)
    return torch.float32 if device.type == "cpu" else auto_dtype(device, half=True)


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
    dtype: torch.dtype | Mapping[str, torch.dtype],
    revision: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Load a pipeline from a folder in diffusers' format or from the hub, on the CPU, without a
    word printed.

    ``dtype`` may differ by component, with the "default" of the others. A folder with only some
    parts takes the others from its base (``t2x.generators.folders``). ``source`` may be one file,
    and components in ``options`` files or folders, too (``t2x.generators.single_file``). Other
    ``options`` go to ``DiffusionPipeline.from_pretrained`` as they are. Raises T2XError in one line
    when the folder is no pipeline, when the hub cannot be reached or when there are no safetensors.
    """
    from t2x.generators.single_file import load_single_file, loaded_parts
    from t2x.loading_reports import quiet_imports

    with quiet_imports():
        from diffusers import DiffusionPipeline

    if names_file(source) and not Path(source).is_dir():
        return load_single_file(source, dtype=dtype, revision=revision, options=options)
    base = base_of(source) if Path(source).is_dir() else None
    whole = base or str(source)
    local = Path(whole).is_dir()
    if local and not (Path(whole) / INDEX_FILE).is_file():
        raise T2XError(
            f"{whole} has no {INDEX_FILE}; give a folder written by pipeline.save_pretrained"
        )
    if local:
        read_index(whole)
    given = loaded_parts(whole, options or {}, dtype=dtype)
    arguments: dict[str, Any] = {"use_safetensors": True, "revision": revision, **given}
    advice = "give a hub id, a local folder or a loaded pipeline"
    with (
        reading(source, "the pipeline", advice=advice, unused=UNUSED, otherwise=(Exception,)),
        quiet(bars=not local),  # a download of gigabytes shows its progress
    ):
        if base is not None:
            own = dtype["default"] if isinstance(dtype, Mapping) else dtype
            arguments = {**load_parts(source, dtype=own), **arguments}
        check_parts(whole, arguments)
        number = dict(dtype) if isinstance(dtype, Mapping) else dtype
        pipeline = DiffusionPipeline.from_pretrained(whole, dtype=number, **arguments)
    check_options(given, type(pipeline))
    for part in pipeline.components.values():
        check_vocabulary(part, source, "the pipeline")
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


def place_loaded(
    pipeline: Any,
    *,
    dtype: str | torch.dtype | None,
    device: str | torch.device | None,
    placement: Placement,
) -> None:
    """Leave a loaded pipeline as and where it is, but for what the caller asks for."""
    if not callable(pipeline) or not hasattr(pipeline, "components"):
        raise T2XError(
            f"{type(pipeline).__name__} is no generator; give a hub id, a folder or a pipeline"
        )
    placement.refuse_loaded()
    if dtype is not None:
        with quiet():
            pipeline.to(dtype=resolve_dtype(dtype, device_of(pipeline)))
    moved = device is not None or placement.offload is not None
    placement.apply(pipeline, resolve_device(device) if moved else None)


def device_of(pipeline: Any) -> torch.device:
    """Give the device that a pipeline computes on, offloaded or not."""
    import torch

    device: torch.device = getattr(pipeline, "_execution_device", torch.device("cpu"))
    return device


def holds_parts(options: Mapping[str, Any]) -> bool:
    """Tell whether load options replace parts of the checkpoint, but for its scheduler, by objects
    of the caller's own: modules, tokenizers, image processors."""
    plain = (str, Path, bool, int, float, type(None))
    return any(
        not isinstance(value, plain)
        for name, value in options.items()
        if name not in (*LOAD_OPTIONS, "scheduler")
    )
