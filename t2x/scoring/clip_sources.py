"""Where the weights of a CLIP come from, and open_clip's way of loading them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.scoring.state_files import hub_file
from t2x.world.weights import EMBEDDED, require_model

if TYPE_CHECKING:
    import torch

    from t2x.devices import Device

__all__ = ["find_clip", "load_open_clip"]


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
        is_open_clip = (Path(source) / "open_clip_config.json").is_file()
        return f"{'local-dir' if is_open_clip else 'transformers'}:{Path(source).resolve()}"
    architecture, colon, tag = source.partition(":")
    if colon:
        plain = architecture.removesuffix("-quickgelu")
        return f"{plain}:{tag}" if _tuned_with_quick_gelu(plain, tag) else source
    if source.count("/") == 1:
        try:
            hub_file(source, "open_clip_config.json")
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
    try:
        model = open_clip.create_model(
            name if is_schema else architecture,
            pretrained=None if is_schema else tag,
            require_pretrained=True,
            force_quick_gelu=not is_schema and _tuned_with_quick_gelu(architecture, tag),
        )
        tokenizer = open_clip.get_tokenizer(name if is_schema else architecture)
    except (OSError, RuntimeError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise T2XError(f"can't load the CLIP {name!r}: {reason}") from error
    return model.eval().requires_grad_(False).to(device, dtype), tokenizer
