"""BLIP checkpoints in the layout of their authors, put into transformers' classes.

Sizes are read from the tensors themselves, for the ``med_config.json`` that travels with such
files does not state them all, and its width of the picture tower is wrong for ViT-L. Every tensor
of the two towers must be there and be used: a missing or a spare one is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError

__all__ = ["blip_towers", "linear_head"]

# ViT-B, ViT-L and BERT-base all have heads of 64; no tensor tells.
_HEAD_WIDTH = 64
_VISION = "visual_encoder."
_TEXT = "text_encoder."
_NO_WEIGHTS = {"text_encoder.embeddings.position_ids"}
_RENAMES = (
    (r"^cls_token$", "embeddings.class_embedding"),
    (r"^pos_embed$", "embeddings.position_embedding"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embedding."),
    (r"^norm\.", "post_layernorm."),
    (r"^blocks\.(\d+)\.", r"encoder.layers.\1."),
    (r"\.norm([12])\.", r".layer_norm\1."),
    (r"\.attn\.qkv\.", ".self_attn.qkv."),
    (r"\.attn\.proj\.", ".self_attn.projection."),
)


def blip_towers(state: Mapping[str, Tensor], *, source: str | Path = "BLIP") -> tuple[Any, Any]:
    """Build ``BlipVisionModel`` and ``BlipTextModel`` from tensors named ``visual_encoder.*`` and
    ``text_encoder.*``; other names are left alone.

    Raises ``T2XError`` if a tensor of either tower is missing, spare or of another shape.
    """
    from transformers import BlipTextModel, BlipVisionModel

    vision = {_vision_name(n): t for n, t in _under(state, _VISION).items()}
    text = _under(state, _TEXT)
    try:
        vision_config, text_config = _vision_config(vision), _text_config(text)
    except (KeyError, IndexError, ValueError) as error:
        raise T2XError(
            f"{str(source)!r} is no BLIP checkpoint: {error} is missing or of another shape; "
            "tensors named visual_encoder.* and text_encoder.* are needed"
        ) from error
    with torch.device("meta"):
        towers = BlipVisionModel(vision_config), BlipTextModel(text_config, add_pooling_layer=False)
    for tower, tensors, prefix in zip(towers, (vision, text), (_VISION, _TEXT), strict=True):
        _load(tower, tensors, f"{source} {prefix.rstrip('.')}")
    # The one buffer that checkpoints need not hold.
    positions = torch.arange(text_config.max_position_embeddings)
    towers[1].embeddings.position_ids = positions[None]
    return towers


def linear_head(state: Mapping[str, Tensor], stem: str, *, source: str | Path = "BLIP") -> Any:
    """Build the linear layer of the tensors ``stem.weight`` and ``stem.bias``.

    Raises ``T2XError`` if one is missing.
    """
    layer = {n: state[f"{stem}.{n}"] for n in ("weight", "bias") if f"{stem}.{n}" in state}
    if len(layer) < 2:
        raise T2XError(f"{str(source)!r} lacks {stem}.weight or {stem}.bias; it has another head")
    out, width = layer["weight"].shape
    head = torch.nn.Linear(width, out, device="meta")
    head.load_state_dict(layer, strict=True, assign=True)
    return head


def _under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    names = (n for n in state if n.startswith(prefix) and n not in _NO_WEIGHTS)
    return {n.removeprefix(prefix): state[n] for n in names}


def _vision_name(name: str) -> str:
    for pattern, new in _RENAMES:
        name = re.sub(pattern, new, name)
    return name


def _depth(tensors: Mapping[str, Tensor], layers: str) -> int:
    """Number of layers; one left out in the middle shows as missing when they are loaded."""
    found = [re.match(rf"{re.escape(layers)}\.(\d+)\.", n) for n in tensors]
    return max(int(m.group(1)) for m in found if m) + 1


def _vision_config(tensors: Mapping[str, Tensor]) -> Any:
    from transformers import BlipVisionConfig

    width, _, _, patch = tensors["embeddings.patch_embedding.weight"].shape
    grid = isqrt(tensors["embeddings.position_embedding"].shape[1] - 1)
    return BlipVisionConfig(
        hidden_size=width,
        intermediate_size=tensors["encoder.layers.0.mlp.fc1.weight"].shape[0],
        num_hidden_layers=_depth(tensors, "encoder.layers"),
        num_attention_heads=width // _HEAD_WIDTH,
        image_size=grid * patch,
        patch_size=patch,
        layer_norm_eps=1e-6,  # transformers' default is 1e-5
    )


def _text_config(tensors: Mapping[str, Tensor]) -> Any:
    from transformers import BlipTextConfig

    vocabulary, width = tensors["embeddings.word_embeddings.weight"].shape
    first = "encoder.layer.0."
    return BlipTextConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        encoder_hidden_size=tensors[f"{first}crossattention.self.key.weight"].shape[1],
        intermediate_size=tensors[f"{first}intermediate.dense.weight"].shape[0],
        num_hidden_layers=_depth(tensors, "encoder.layer"),
        num_attention_heads=width // _HEAD_WIDTH,  # transformers' default is 8
        max_position_embeddings=tensors["embeddings.position_embeddings.weight"].shape[0],
        layer_norm_eps=1e-12,
        bos_token_id=None,  # of captioning; the default would have to be in the vocabulary
        sep_token_id=None,
    )


def _load(tower: Any, tensors: Mapping[str, Tensor], source: str) -> None:
    try:
        tower.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise T2XError(
            f"{source} does not fit {type(tower).__name__}: {reason[:400]}; give the authors' own "
            "file, whole"
        ) from error
