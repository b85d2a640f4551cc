"""Where the weights of a CLIP come from, and open_clip's way of loading and saving them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.failures import reading
from t2x.scoring.state_files import hub_file, read_file
from t2x.world.weights import EMBEDDED, require_model

if TYPE_CHECKING:
    import torch

    from t2x.devices import Device

__all__ = ["find_clip", "load_open_clip", "open_clip_config", "save_open_clip"]

_CONFIG = "open_clip_config.json"


def find_clip(source: str) -> str:
    """Where the weights of a CLIP are and which library loads them, in one way of writing it:
    ``local-dir:``, ``hf-hub:`` or ``ARCHITECTURE:`` (open_clip), or ``transformers:``.

    Raises ``T2XError`` for what can't be any of these.
    """
    if source in EMBEDDED:
        return f"local-dir:{require_model(source)}"
    if source.startswith(("hf-hub:", "local-dir:", "transformers:")):
        return source
    if Path(source).is_dir():
        is_open_clip = (Path(source) / _CONFIG).is_file()
        return f"{'local-dir' if is_open_clip else 'transformers'}:{Path(source).resolve()}"
    architecture, colon, tag = source.partition(":")
    if colon:
        plain = architecture.removesuffix("-quickgelu")
        return f"{plain}:{tag}" if _tuned_with_quick_gelu(plain, tag) else source
    if source.count("/") == 1:
        try:
            hub_file(source, _CONFIG)
        except T2XError:
            return f"transformers:{source}"
        return f"hf-hub:{source}"
    raise T2XError(
        f"can't find a CLIP {source!r}; give an embedded name, a folder with "
        "open_clip_config.json or config.json, a hub id owner/model, or ARCHITECTURE:TAG of "
        "open_clip's list"
    )


def _tuned_with_quick_gelu(architecture: str, tag: str) -> bool:
    """Whether the weights of a tag need QuickGELU: open_clip 3 warns of it and builds GELU."""
    from open_clip import get_pretrained_cfg

    return bool(get_pretrained_cfg(architecture, tag).get("quick_gelu"))


def load_open_clip(name: str, device: Device, dtype: torch.dtype) -> tuple[Any, Any]:
    """Load (model, tokenizer) of a name that :func:`find_clip` gave, frozen.

    Raises ``T2XError`` if it can't be loaded.
    """
    import open_clip

    architecture, _, tag = name.partition(":")
    is_schema = architecture in ("hf-hub", "local-dir")
    if not is_schema and Path(tag).is_file() and Path(tag).suffix not in (".npz", ".npy"):
        read_file(tag, device="meta")  # what could run code, or is damaged, is told and not read
    source = name.partition(":")[2] if is_schema else name
    with reading(source, "the CLIP", otherwise=(OSError, RuntimeError, ValueError)):
        model = open_clip.create_model(
            name if is_schema else architecture,
            pretrained=None if is_schema else tag,
            require_pretrained=True,
            force_quick_gelu=not is_schema and _tuned_with_quick_gelu(architecture, tag),
        )
        tokenizer = open_clip.get_tokenizer(name if is_schema else architecture)
    return model.eval().requires_grad_(False).to(device, dtype), tokenizer


def open_clip_config(name: str) -> dict[str, Any]:
    """Architecture and preprocessing of a name that :func:`find_clip` gave, as
    ``open_clip_config.json`` holds them.
    """
    from open_clip import get_model_config, get_pretrained_cfg

    schema, _, rest = name.partition(":")
    if schema in ("local-dir", "hf-hub"):
        path = Path(rest) / _CONFIG if schema == "local-dir" else hub_file(rest, _CONFIG)
        found: dict[str, Any] = json.loads(Path(path).read_text("utf-8"))
        return found
    listed = get_pretrained_cfg(schema, rest)
    known = ("mean", "std", "interpolation", "resize_mode")
    shown = {key: listed[key] for key in known if listed.get(key) is not None}
    return {"model_cfg": get_model_config(schema), "preprocess_cfg": shown}


def save_open_clip(
    model: Any, tokenizer: Any, config: Mapping[str, Any], folder: Path, *, half: bool = True
) -> None:
    """Write a folder that ``open_clip.create_model_and_transforms("local-dir:...")`` reads, weights
    in half precision unless told otherwise. ``tokenizer``: of transformers; None for open_clip's
    own, which needs no files.
    """
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    dtype = torch.float16 if half else torch.float32
    weights = {k: v.detach().cpu().to(dtype).contiguous() for k, v in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors", metadata={"format": "pt"})
    (folder / _CONFIG).write_text(json.dumps(config, indent=1) + "\n")
