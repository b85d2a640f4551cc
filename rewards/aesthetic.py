"""Aesthetic predictors of LAION form: a small head on the L2-normalised CLIP image embedding, about
1 to 10; the prompt plays no part.

    load_reward("aesthetic")     the embedded emoji-aesthetic, whose encoder is emoji-clip

A head is a folder with ``head.safetensors`` and ``config.json`` (``encoder``, ``activation``), or a
state dict file of LAION's own, v1 (``weight``, ``bias``) or v2 (``layers.0.weight``, ...), together
with ``encoder``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.scores import aesthetic_score
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.reward import EncoderReward, Features
from t2x.world.weights import EMBEDDED, require_model

__all__ = ["load"]


def load(
    source: str | Path = "emoji-aesthetic",
    *,
    encoder: str | Path | tuple[Any, Any] | None = None,
    activation: str | None = None,
    name: str = "aesthetic",
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> EncoderReward:
    """Load a head and its encoder; ``encoder`` and ``activation`` ("none", "relu") replace what the
    folder's config says.

    Raises ``T2XError`` for a missing file, an unknown layout or a head that does not fit the
    encoder.
    """
    weights, config = _read(source)
    clip = load_clip(_known(encoder or config.get("encoder"), source), device=device, dtype=dtype)
    layers = [(w.to(device, dtype), b.to(device, dtype)) for w, b in _layers(weights, source)]
    activation = activation or config.get("activation", "none")
    if activation not in ("none", "relu"):
        raise T2XError(f"unknown activation {activation!r}; allowed: none, relu")

    def head(features: Mapping[str, Features]) -> Tensor:
        embedding = features["clip"]["image"]
        if embedding.shape[-1] != layers[0][0].shape[-1]:
            raise T2XError(
                f"the head {str(source)!r} takes embeddings of width {layers[0][0].shape[-1]}, "
                f"the encoder gives {embedding.shape[-1]}; load the head's own encoder"
            )
        return aesthetic_score(embedding, layers, relu=activation == "relu")

    return EncoderReward(
        name=name,
        encoders={"clip": clip},
        head=head,
        parts=frozenset({"image"}),
        scale="1 to 10",
        range=(1.0, 10.0),
    )


def _known(encoder: Any, source: str | Path) -> Any:
    if encoder is None:
        raise T2XError(
            f"the head {str(source)!r} does not say which CLIP it belongs to; give encoder="
        )
    return encoder


def _read(source: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and config of a head: an embedded name, a folder, or one file."""
    path = require_model(str(source)) if str(source) in EMBEDDED else Path(source)
    config: dict[str, Any] = {}
    if path.is_dir():
        settings = path / "config.json"
        config = json.loads(settings.read_text()) if settings.is_file() else {}
        path = path / "head.safetensors"
    if not path.is_file():
        raise T2XError(
            f"there is no aesthetic head at {str(path)!r}; give an embedded name, a folder with "
            "head.safetensors, or a file"
        )
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path), config
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    return loaded.get("state_dict", loaded), config


def _layers(weights: Mapping[str, Tensor], source: str | Path) -> list[tuple[Tensor, Tensor]]:
    """Affine layers in order: v1 has one without a name, v2 numbers them with gaps where dropout
    lies.
    """
    names = [k.removesuffix("weight") for k in weights if k.endswith("weight")]
    names.sort(key=lambda n: int("".join(c for c in n if c.isdigit()) or 0))
    layers = [(weights[f"{n}weight"], weights[f"{n}bias"]) for n in names if f"{n}bias" in weights]
    if not layers or len(layers) * 2 != len(weights):
        raise T2XError(
            f"{str(source)!r} is no aesthetic head; its tensors: {', '.join(sorted(weights)[:6])}"
        )
    return layers
