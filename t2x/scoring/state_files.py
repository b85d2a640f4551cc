"""Files of tensors as their authors publish them, read safely."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from t2x.errors import T2XError

__all__ = ["SUFFIXES", "affine_layers", "hub_file", "read_state"]

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")

_WRAPPERS = ("state_dict", "model")


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Tensors of a ``.safetensors`` file or of one that ``torch.save`` wrote, by name.

    A state dict inside ``{"state_dict": ...}`` or ``{"model": ...}`` is taken out. Nothing but
    tensors is unpickled. Raises ``T2XError`` for a file that is missing or holds no state dict.
    """
    path = Path(path)
    if not path.is_file():
        raise T2XError(f"there is no file {str(path)!r}; give the path of a checkpoint")
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return dict(load_file(path))
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    for key in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping):
        raise T2XError(
            f"{str(path)!r} holds a {type(loaded).__name__}; give a file with a state dict"
        )
    return {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}


def hub_file(repository: str, name: str) -> Path:
    """Fetch one file of a hub repository ``owner/model``, or find it in the local cache.

    Raises ``T2XError`` if the hub can't be reached or has no such file.
    """
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, name))
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise T2XError(
            f"can't fetch {name} of {repository!r}: {reason}; give a local folder or file, or a "
            "hub id owner/model while the hub can be reached"
        ) from error


def affine_layers(
    weights: Mapping[str, Tensor], *, source: str | Path, what: str = "head"
) -> list[tuple[Tensor, Tensor]]:
    """Layers (weight, bias) of a head that is a chain of them, in the order of the number in their
    name; numbers may have gaps, a single layer may have none.

    Raises ``T2XError`` if anything in ``weights`` is no such layer or widths don't follow.
    """
    stems = sorted({name.rpartition(".")[0] for name in weights}, key=_number)
    layers = [(weights.get(_join(s, "weight")), weights.get(_join(s, "bias"))) for s in stems]
    pairs = [(w, b) for w, b in layers if w is not None and b is not None]
    fits = all(a[0].shape[0] == b[0].shape[-1] for a, b in pairwise(pairs))
    if not pairs or 2 * len(pairs) != len(weights) or not fits:
        raise T2XError(f"{str(source)!r} is no {what}; its tensors: {_shown(weights)}")
    return pairs


def _join(stem: str, leaf: str) -> str:
    return f"{stem}.{leaf}" if stem else leaf


def _number(stem: str) -> int:
    return int("".join(c for c in stem if c.isdigit()) or 0)


def _shown(names: Iterable[str], most: int = 6) -> str:
    ordered = sorted(names)
    return ", ".join(ordered[:most]) + (", ..." if len(ordered) > most else "")
