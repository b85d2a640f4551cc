"""How many bytes a model's weights take, before anything is downloaded.

They are read from safetensors headers, here or on the hub; what a run holds beside them is
``t2x.memory.plan``'s. What is unknown is None, never 0.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.devices import named_dtype
from t2x.errors import T2XError
from t2x.generators.folders import base_of, part_names

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

ITEM_BYTES = {
    "F64": 8,
    "I64": 8,
    "U64": 8,
    "F32": 4,
    "I32": 4,
    "U32": 4,
    "F16": 2,
    "BF16": 2,
    "I16": 2,
    "U16": 2,
}
VARIANT = re.compile(r"\.(fp16|bf16|fp32|non_ema|ema)\b")

__all__ = ["module_bytes", "weight_bytes"]


def weight_bytes(source: Any, *, dtype: str | torch.dtype | None = None) -> int | None:
    """Give the bytes of a model's weights in memory, or None where the hub does not tell.

    ``source`` is a local folder, a hub id or a loaded pipeline. ``dtype`` is the format it will
    be loaded in; None counts the weights as they are stored. Of a component with variants (fp16,
    ema) the plain files count, as they load by default. To a folder of parts, what it takes from
    its base is added.
    """
    width = _width(dtype)
    if not isinstance(source, (str, Path)):
        return _loaded_bytes(source, width)
    if not Path(source).is_dir():
        return _hub_bytes(str(source), width)
    base = base_of(source)
    own = _folder_bytes(Path(source), width)
    if base is None:
        return own
    replaced = part_names(source)
    if Path(base).is_dir():
        return own + _folder_bytes(Path(base), width, without=replaced)
    rest = _hub_bytes(base, width, without=replaced)
    return None if rest is None else own + rest


def _width(dtype: str | torch.dtype | None) -> int | None:
    if dtype is None:
        return None
    number = named_dtype(dtype, half=True) if isinstance(dtype, str) else dtype
    return number.itemsize


def _loaded_bytes(pipeline: Any, width: int | None) -> int:
    import torch

    parts = pipeline.components.values()
    return sum(module_bytes(part, width) for part in parts if isinstance(part, torch.nn.Module))


def module_bytes(module: torch.nn.Module, width: int | None = None) -> int:
    """Give the bytes of a module's parameters and buffers, those that are shared once; of
    quantised ones what they are stored in. ``width``: bytes of a floating point number in place of
    its own."""
    return sum(_bytes(t, width) for t in (*module.parameters(), *module.buffers()))


def _bytes(tensor: Any, width: int | None) -> int:
    if hasattr(tensor, "__tensor_flatten__"):  # quantised by torchao
        names, _ = tensor.__tensor_flatten__()
        return sum(_bytes(getattr(tensor, name), None) for name in names)
    size = width if width and tensor.is_floating_point() else tensor.element_size()
    return int(tensor.numel() * size)


def _plain_files(files: Iterable[str]) -> list[str]:
    """Keep what loads by default: component folders only, no variant where a plain file exists."""
    names = sorted(name for name in files if name.endswith(".safetensors"))
    inside = [name for name in names if "/" in name] or names
    plain = [name for name in inside if not VARIANT.search(name)]
    covered = {name.rpartition("/")[0] for name in plain}
    return plain + [name for name in inside if name.rpartition("/")[0] not in covered]


def _folder_bytes(root: Path, width: int | None, *, without: Sequence[str] = ()) -> int:
    files = [p.relative_to(root).as_posix() for p in root.rglob("*.safetensors")]
    chosen = _plain_files(files)
    if not chosen:
        raise T2XError(f"{root} holds no safetensors weights")
    return sum(_header_bytes(root / f, width) for f in chosen if f.split("/")[0] not in without)


def _header_bytes(path: Path, width: int | None) -> int:
    """Count the tensors of one safetensors file by its header alone."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length))
        except ValueError as error:
            raise T2XError(f"{path} is no safetensors file") from error
    header.pop("__metadata__", None)
    return sum(_tensor_bytes(entry, width) for entry in header.values())


def _tensor_bytes(entry: Mapping[str, Any], width: int | None) -> int:
    begin, end = entry["data_offsets"]
    stored = int(end - begin)
    kind = entry["dtype"]
    if width is None or "F" not in kind:
        return stored
    return stored // ITEM_BYTES.get(kind, 1) * width


def _hub_bytes(repository: str, width: int | None, *, without: Sequence[str] = ()) -> int | None:
    """Ask the hub for the headers of a repository's safetensors; None when it can't be reached."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        found = _plain_files(api.list_repo_files(repository))
        files = [name for name in found if name.split("/")[0] not in without]
        headers = [api.parse_safetensors_file_metadata(repository, name) for name in files]
    except Exception as error:  # offline, no such repository, gated, a proxy in between, ...
        log.info("size of %s is unknown: %s", repository, error)
        return None
    entries = [
        {"dtype": info.dtype, "data_offsets": info.data_offsets}
        for header in headers
        for info in header.tensors.values()
    ]
    return sum(_tensor_bytes(entry, width) for entry in entries) if entries else None
