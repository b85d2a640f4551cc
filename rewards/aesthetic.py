"""Aesthetic predictors of LAION form: a small head on the L2-normalised CLIP image embedding, about
1 to 10; the prompt plays no part.

    load_reward("aesthetic")     the embedded emoji-aesthetic, whose encoder is emoji-clip
    load_reward("laion-v1")      LAION's linear head on OpenAI's ViT-L/14 (MIT)
    load_reward("laion-v2")      its successor "sac+logos+ava1", five layers (Apache-2.0)

A head is a folder with ``head.safetensors`` and ``config.json`` (``encoder``, ``activation``), or a
state dict file of LAION's own, v1 (``weight``, ``bias``) or v2 (``layers.0.weight``, ...), together
with ``encoder``. Both of LAION's heads read the encoder of CLIPScore L/14 and share its picture
pass. OpenAI's weights need QuickGELU; with plain GELU a picture that scores 5.05 scores 4.44.

Parity: ``tests/parity/test_clip_parity.py``, against both repositories. Not run on real weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.scores import aesthetic_score
from t2x.registry import looks_local
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.loaded import loaded_layers, loaded_objects
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.state_files import SUFFIXES, affine_layers, read_state
from t2x.scoring.web_files import web_file
from t2x.weight_files import find_weights, names_file
from t2x.world.weights import EMBEDDED, require_model

__all__ = ["LAION", "load", "load_laion_v1", "load_laion_v2"]

_RAW = "https://raw.githubusercontent.com"
# Published heads: address at a fixed commit, SHA-256, and the CLIP that they were fitted on.
LAION = {
    "laion-v1": (
        f"{_RAW}/LAION-AI/aesthetic-predictor/6d122adad522ab246644d9dc1c6d7a3810ee255f/"
        "sa_0_4_vit_l_14_linear.pth",
        "2cd4e60f4f24ae3bcd57b847b13c1f3ba27edc28cc1a7f9ce74ee9f421243cba",
        "ViT-L-14:openai",
    ),
    "laion-v2": (
        f"{_RAW}/christophschuhmann/improved-aesthetic-predictor/"
        "6934dd81792f086e613a121dbce43082cb8be85e/sac%2Blogos%2Bava1-l14-linearMSE.pth",
        "21dd590f3ccdc646f0d53120778b296013b096a035a2718c9cb0d511bff0f1e0",
        "ViT-L-14:openai",
    ),
}


def load(
    source: str | Path | Any = "emoji-aesthetic",
    *,
    encoder: str | Path | tuple[Any, Any] | None = None,
    activation: str | None = None,
    name: str = "aesthetic",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load a head and its encoder; ``source``: an embedded name, a key of ``LAION``, a folder, a
    file, also of the hub (OWNER/MODEL/FILE), or a loaded head (``t2x.scoring.loaded``); ``encoder``
    and ``activation`` ("none", "relu") replace what the folder's config says.

    Heads compute in float32 or wider. Raises ``T2XError`` for a missing file, an unknown layout or
    a head that does not fit the encoder.
    """
    what = "aesthetic head"
    if isinstance(source, (str, Path)):
        weights, config = _read(source)
        layers = affine_layers(weights, source=source, what=what)
    else:
        loaded_objects((source,), what=what, forms=(("layers",),))
        layers, config, source = loaded_layers(source, what=what), {}, type(source).__name__
    clip = load_clip(_known(encoder or config.get("encoder"), source), device=device, dtype=dtype)
    layers = [(w.float(), b.float()) for w, b in layers]
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
        here = [(w.to(embedding.device), b.to(embedding.device)) for w, b in layers]
        return aesthetic_score(embedding, here, relu=activation == "relu")

    return EncoderReward(
        name=name,
        encoders={"clip": clip},
        head=head,
        parts=frozenset({"image"}),
        scale="1 to 10",
        range=(1.0, 10.0),
    )


def load_laion_v1(
    source: str | Path = "laion-v1",
    *,
    encoder: str | Path | tuple[Any, Any] = LAION["laion-v1"][2],
    name: str = "laion-v1",
    **options: Any,
) -> EncoderReward:
    """LAION's first predictor; ``source``: a file in place of the published one. Other options of
    :func:`load`.
    """
    return load(source, encoder=encoder, name=name, **options)


def load_laion_v2(
    source: str | Path = "laion-v2",
    *,
    encoder: str | Path | tuple[Any, Any] = LAION["laion-v2"][2],
    name: str = "laion-v2",
    **options: Any,
) -> EncoderReward:
    """LAION's second predictor; options as of :func:`load_laion_v1`."""
    return load(source, encoder=encoder, name=name, **options)


def _known(encoder: Any, source: str | Path) -> Any:
    if encoder is None:
        raise T2XError(
            f"the head {str(source)!r} does not say which CLIP it belongs to; give encoder="
        )
    return encoder


def _read(source: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and config of a head."""
    if str(source) in LAION:
        url, sha256, encoder = LAION[str(source)]
        return read_state(web_file(url, sha256)), {"encoder": encoder}
    path = require_model(str(source)) if str(source) in EMBEDDED else Path(source)
    config: dict[str, Any] = {}
    if path.is_dir():
        settings = path / "config.json"
        config = json.loads(settings.read_text()) if settings.is_file() else {}
        path = path / "head.safetensors"
    if not path.is_file() and names_file(source) and not looks_local(str(source)):
        path = find_weights(source, what="aesthetic head", suffixes=SUFFIXES)
    if not path.is_file():
        raise T2XError(
            f"there is no aesthetic head at {str(path)!r}; give an embedded name, one of "
            f"{', '.join(LAION)}, a folder with head.safetensors, or a file"
        )
    return read_state(path), config
