"""Files of tensors as their authors publish them, read safely."""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from t2x.checkpoint_files import POINTER, is_pointer
from t2x.errors import T2XError
from t2x.failures import reading

__all__ = ["SUFFIXES", "affine_layers", "hub_file", "read_file", "read_state"]

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")

_WRAPPERS = ("state_dict", "model")
_FORBIDDEN = re.compile(r"GLOBAL (\S+)")


def read_state(path: str | Path) -> dict[str, Tensor]:
    """Tensors of a ``.safetensors`` file or of one that ``torch.save`` wrote, by name.

    A state dict inside ``{"state_dict": ...}`` or ``{"model": ...}`` is taken out. Nothing but
    tensors is unpickled. Raises ``T2XError`` for a file that is missing, can't be read so or holds
    no state dict.
    """
    loaded = read_file(path)
    for key in _WRAPPERS:
        if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
            loaded = loaded[key]
    if not isinstance(loaded, Mapping):
        raise T2XError(
            f"{str(path)!r} holds a {type(loaded).__name__}; give a file with a state dict"
        )
    return {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}


def read_file(path: str | Path, *, device: str = "cpu") -> Any:
    """What a ``.safetensors`` file or one that ``torch.save`` wrote holds; tensors on ``device``,
    where "meta" reads shapes alone.

    Raises ``T2XError`` for a file that is missing, damaged, or holds anything beside tensors and
    plain values, which is not run.
    """
    path = Path(path)
    if not path.is_file():
        raise T2XError(f"there is no file {str(path)!r}; give the path of a checkpoint")
    try:
        if path.suffix.lower() == ".safetensors":
            from safetensors import safe_open
            from safetensors.torch import load_file

            if device != "meta":
                return load_file(path, device=device)
            with safe_open(path, "pt") as file:
                shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            return {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickle protocols
            return torch.load(path, map_location=device, weights_only=True)
    except pickle.UnpicklingError as error:
        _refuse_pointer(path, error)
        found = _FORBIDDEN.search(str(error))
        what = f"names {found[1]}" if found else "holds more than tensors"
        raise T2XError(
            f"{str(path)!r} is a pickle that {what}, which reading it could run, so it was not "
            "read; take the .safetensors of the same weights, or ask its author for one"
        ) from error
    except (OSError, ValueError, RuntimeError, EOFError, SafetensorError) as error:
        _refuse_pointer(path, error)
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)[:200]
        raise T2XError(
            f"cannot read {str(path)!r}: {reason}; it is damaged or not what its name says, fetch "
            "it again"
        ) from error


def _refuse_pointer(path: Path, error: Exception) -> None:
    """Say so of a file that couldn't be read because git left its address in its place."""
    if is_pointer(path):
        raise T2XError(
            f"{str(path)!r} {POINTER}; fetch it: git lfs pull in its folder, or hf download "
            "owner/model FILE"
        ) from error


def hub_file(repository: str, name: str, *, revision: str | None = None) -> Path:
    """Fetch one file of a hub repository ``owner/model``, or find it in the local cache.

    Raises ``T2XError`` if the hub can't be reached or has no such file.
    """
    from huggingface_hub import hf_hub_download

    with reading(repository, f"{name} of", advice="give a local folder or file"):
        return Path(hf_hub_download(repository, name, revision=revision))


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
