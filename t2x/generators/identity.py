"""What a picture's key in the store must hold, so that two pictures share it only if they are the
same.

Weights are named by hub id and commit where there are such, and by a digest of their bytes where
there are not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from t2x.errors import T2XError
from t2x.generators.folders import base_of
from t2x.plain import plain

WHOLE_FILE = 256 * 2**20
LIBRARIES = ("t2x", "torch", "diffusers", "transformers")  # decide what a seed looks like
SCORING_LIBRARIES = ("t2x", "torch", "transformers", "open_clip", "PIL")  # decide a score
# Told by what is installed, without importing: a request that reads a picture's recipe must not be
# the first to import what a worker is importing from another end.
_INSTALLED = {
    "PIL": "pillow",
    "diffusers": "diffusers",
    "open_clip": "open_clip_torch",
    "transformers": "transformers",
}
_WRAPPED = ".base_layer."  # where peft keeps the layer that adapters act on

__all__ = [
    "LIBRARIES",
    "SCORING_LIBRARIES",
    "file_digest",
    "folder_digest",
    "hub_commit",
    "origin_name",
    "parameter_digest",
    "source_revision",
    "versions",
]


def versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Give the versions of libraries by the name under which each is imported, torch's with its
    build (2.14.1+cpu)."""
    return {name: _version(name) for name in libraries}


def _version(name: str) -> str:
    installed = _INSTALLED.get(name)
    return version(installed) if installed else str(import_module(name).__version__)


def folder_digest(folder: str | Path) -> str:
    """Name the content of a folder in 16 hex digits.

    Files up to 256 MiB count with every byte, larger ones with size, time of change and their first
    and last MiB. Names that begin with a dot and Markdown (model cards) don't count.
    """
    root = Path(folder)
    total = hashlib.sha256()
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        relative = path.relative_to(root)
        if path.suffix == ".md" or any(part.startswith(".") for part in relative.parts):
            continue
        total.update(f"{relative.as_posix()}\0{path.stat().st_size}\0".encode())
        total.update(_file_digest(path))
    return total.hexdigest()[:16]


def file_digest(path: str | Path) -> str:
    """Name the content of one file in 16 hex digits, large ones as :func:`folder_digest` does."""
    return _file_digest(Path(path)).hex()[:16]


def _file_digest(path: Path) -> bytes:
    stat = path.stat()
    with path.open("rb") as file:
        if stat.st_size <= WHOLE_FILE:
            return hashlib.file_digest(file, "sha256").digest()
        digest = hashlib.sha256(f"{stat.st_mtime_ns}".encode())
        digest.update(file.read(2**20))
        file.seek(-(2**20), 2)
        digest.update(file.read())
        return digest.digest()


def parameter_digest(pipeline: Any) -> str:
    """Name a loaded pipeline's weights, vocabularies and configurations in 16 hex digits.

    Reads every byte of every parameter and buffer once (about a second per gigabyte). The
    scheduler does not count, nor do adapters of peft (``t2x.generators.adapters``). Raises T2XError
    for weights that are offloaded out of reach.
    """
    import torch

    total = hashlib.sha256()
    for name, component in sorted(pipeline.components.items()):
        if name == "scheduler":
            continue
        total.update(f"{name}\0{type(component).__name__}\0{_configuration(component)}\0".encode())
        if not isinstance(component, torch.nn.Module):
            continue
        for key, value in sorted(_without_adapters(component.state_dict()).items()):
            if value.is_meta:
                raise T2XError(
                    "the weights of this pipeline are offloaded and can't be read; name them with "
                    "revision=... when making the generator"
                )
            total.update(f"{key}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
            total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return total.hexdigest()[:16]


def _without_adapters(state: dict[str, Any]) -> dict[str, Any]:
    """The tensors of a model as they are called before peft wraps its layers."""
    wrapped = {key.partition(_WRAPPED)[0] for key in state if _WRAPPED in key}
    if not wrapped:
        return state

    def inside(key: str) -> bool:
        parts = key.split(".")
        return any(".".join(parts[:i]) in wrapped for i in range(1, len(parts)))

    own = {key: value for key, value in state.items() if _WRAPPED in key or not inside(key)}
    return {key.replace(_WRAPPED, "."): value for key, value in own.items()}


def _configuration(component: Any) -> str:
    """Write down what decides a component's behaviour besides weights."""
    if hasattr(component, "get_vocab"):
        limit = getattr(component, "model_max_length", None)
        return json.dumps([limit, sorted(component.get_vocab().items())])
    config: Any = getattr(component, "config", None)
    config = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(config, dict):
        return ""
    skipped = ("transformers_version", "dtype", "torch_dtype")
    kept = {k: v for k, v in config.items() if k[0] != "_" and k not in skipped}
    return json.dumps(plain(kept, exact=True), sort_keys=True)


def hub_commit(repository: str, revision: str | None) -> str | None:
    """Give the commit of a hub model in the local cache, or None where that is unknown; asks no
    server."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, "model_index.json", revision=revision)
    return Path(found).parent.name if isinstance(found, str) else None


def source_revision(source: str | Path, revision: str | None, pipeline: Callable[[], Any]) -> str:
    """Name the weights behind a source: a folder's digest, with its base's if it has one, or the
    commit of a hub id; if that is unknown by those of the loaded ``pipeline``."""
    if not Path(source).is_dir():
        return hub_commit(str(source), revision) or parameter_digest(pipeline())
    base = base_of(source)
    own = folder_digest(source)
    return own if base is None else f"{own}+{source_revision(base, revision, pipeline)}"


def origin_name(pipeline: Any) -> str:
    """Name a loaded pipeline by the hub id or the folder it came from, else by its class."""
    name = str(getattr(getattr(pipeline, "config", None), "_name_or_path", None) or "")
    return (Path(name).name if Path(name).is_dir() else name) or type(pipeline).__name__
