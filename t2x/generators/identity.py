"""What a picture's key in the store must hold, so that two pictures share it only if they are the
same.

Weights are named by hub id and commit where there are such, and by a digest of their bytes where
there are not.
"""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

WHOLE_FILE = 256 * 2**20
LIBRARIES = ("t2x", "torch", "diffusers", "transformers")

__all__ = ["folder_digest", "hub_commit", "parameter_digest", "plain", "versions"]


def versions() -> dict[str, str]:
    """Give the versions of the libraries that decide what a seed looks like."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


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
    """Name the weights of a loaded pipeline in 16 hex digits, from every byte of every parameter
    and buffer.

    Reads all of them once (about a second per gigabyte); a caller who knows the name passes
    ``revision`` instead.
    """
    import torch

    total = hashlib.sha256()
    for name, component in sorted(pipeline.components.items()):
        if not isinstance(component, torch.nn.Module):
            continue
        for key, value in sorted(component.state_dict().items()):
            total.update(f"{name}.{key}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
            flat = value.detach().cpu().contiguous().flatten()
            total.update(flat.view(torch.uint8).numpy().tobytes())
    return total.hexdigest()[:16]


def hub_commit(repository: str, revision: str | None) -> str | None:
    """Give the commit of a hub model in the local cache, or None where that is unknown; asks no
    server."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, "model_index.json", revision=revision)
    return Path(found).parent.name if isinstance(found, str) else None


def plain(value: Any) -> Any:
    """Turn a setting or configuration into what JSON can hold, in a fixed order of keys."""
    if isinstance(value, dict):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value
