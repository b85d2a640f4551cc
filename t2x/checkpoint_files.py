"""What is wrong with the files of a checkpoint on disk, read without loading them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from t2x.errors import T2XError
from t2x.settings import INDEX_FILE, read_object

PICKLES = (".bin", ".ckpt", ".pt", ".pth")
_POINTER = b"version https://git-lfs"
_AT_ROOT = ("config.json", "tokenizer.json", "tokenizer_config.json")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

__all__ = [
    "POINTER",
    "cached_folder",
    "faults",
    "is_hub_id",
    "is_pointer",
    "local_folder",
    "missing_parts",
    "pickled_weights",
]

POINTER = "is a git-LFS pointer, a line of text in place of the weights"


def is_hub_id(source: object) -> bool:
    """Whether a text reads as ``owner/model`` and no folder of that name is here."""
    return (
        isinstance(source, str)
        and _HUB_ID.fullmatch(source) is not None
        and not Path(source).exists()
    )


def local_folder(source: object) -> Path | None:
    """Give the folder of what is loaded, its own or the hub's cached copy; None for a file."""
    path = Path(str(source)).expanduser()
    try:
        if path.exists():
            return path if path.is_dir() else None
    except OSError:  # longer than any path
        return None
    return cached_folder(str(source)) if is_hub_id(source) else None


def cached_folder(repository: str) -> Path | None:
    """Give the newest copy of a hub repository in the local cache, whole or not; None without."""
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    name = repo_folder_name(repo_id=repository, repo_type="model")
    copies = [p for p in (Path(HF_HUB_CACHE) / name / "snapshots").glob("*") if p.is_dir()]
    return max(copies, key=lambda path: path.stat().st_mtime, default=None)


def faults(folder: Path) -> list[tuple[str, str]]:
    """List the safetensors files of a folder that can't be right, each with what it is; of a file
    itself alone."""
    if folder.is_file():
        fault = _fault(folder) if folder.suffix == ".safetensors" else ""
        return [(folder.name, fault)] if fault else []
    found = [(path.relative_to(folder).as_posix(), _fault(path)) for path in _weights(folder)]
    return [(name, fault) for name, fault in found if fault]


def _weights(folder: Path) -> Iterator[Path]:
    yield from sorted(path for path in folder.rglob("*.safetensors") if path.is_file())


def is_pointer(path: Path) -> bool:
    """Whether a file holds the address that git-LFS leaves in the place of a large one."""
    try:
        with path.open("rb") as file:
            return file.read(len(_POINTER)) == _POINTER
    except OSError:
        return False


def _fault(path: Path) -> str:
    """Compare a file with what its own header says of it."""
    size = path.stat().st_size
    if is_pointer(path):
        return POINTER
    with path.open("rb") as file:
        start = file.read(8)
        if size == 0:
            return "is empty"
        length = int.from_bytes(start, "little")
        if size < 10 or length > size - 8:
            return f"is cut off or no safetensors file ({size:,} bytes)"
        file.seek(8)
        text = file.read(length)
    try:
        header = json.loads(text)
        ends = [e["data_offsets"][1] for name, e in header.items() if name != "__metadata__"]
        whole = 8 + length + max(ends, default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        return "is no safetensors file"
    return "" if size == whole else f"has {size:,} of {whole:,} bytes"


def pickled_weights(folder: Path) -> list[str]:
    """List files of weights that only unpickling reads, in folders without safetensors."""
    found = sorted(p for p in folder.rglob("*") if p.suffix in PICKLES and p.is_file())
    plain = [p for p in found if not any(p.parent.glob("*.safetensors"))]
    return [path.relative_to(folder).as_posix() for path in plain]


def missing_parts(folder: Path, given: Collection[str] = ()) -> list[str]:
    """List the parts that a pipeline's index names and that have no folder, but for ``given`` ones.

    diffusers makes an empty tokenizer of a missing folder and says nothing. Empty for a folder
    without an index, and for one whose files lie at the top in place of subfolders.
    """
    index = folder / INDEX_FILE
    if not index.is_file() or any((folder / name).is_file() for name in _AT_ROOT):
        return []
    try:
        entries = read_object(index)
    except T2XError:
        return []  # loading says what is wrong with it
    named = [
        name
        for name, entry in entries.items()
        if not name.startswith("_") and isinstance(entry, list) and any(entry)
    ]
    return sorted(n for n in named if n not in given and not (folder / n).is_dir())
