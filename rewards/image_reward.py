"""ImageReward v1.0: which picture of one prompt people prefer (Xu et al. 2023, arXiv 2304.05977).

    load_reward("imagereward")                                  THUDM/ImageReward on the hub
    load_reward("imagereward", source="/models/ImageReward")    a folder with ImageReward.pt

A BLIP reads the prompt beside the picture, an affine head scores what it read; about -2.3 to 2.3,
0 in the middle of its authors' pictures. The prompt is cut at 35 tokens, and a wide or tall picture
loses its sides (CLIP's centre crop). Equal to the ``image-reward`` 1.5 package on the same weights
(``tests/parity``). Not run on real weights.

Differs from the package: special tokens inside a prompt are text, transparent pictures are laid on
white and 16 bits are scaled before they get here (``t2x.from_pil``), N prompts with N pictures give
N scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from t2x.devices import Device, move_loaded, resolve_device
from t2x.functional.matching import image_reward
from t2x.scoring.blip_encoder import BlipEncoder, bert_tokenizer
from t2x.scoring.blip_weights import blip_towers
from t2x.scoring.resize import Preprocess
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.state_files import SUFFIXES, affine_layers, hub_file, read_state

__all__ = ["load"]

_FILE = "ImageReward.pt"
_TOKENIZER = "google-bert/bert-base-uncased"
_BLIP, _MLP = "blip.", "mlp."
_Parts: TypeAlias = tuple[Any, Any, Any, Sequence[tuple[Tensor, Tensor]]]


def load(
    source: str | Path | _Parts = "THUDM/ImageReward",
    *,
    tokenizer: str | Path | None = None,
    name: str = "imagereward",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int = 16,
) -> EncoderReward:
    """Load the reward from a hub id, a folder that holds ``ImageReward.pt``, that file, or loaded
    ``(BlipVisionModel, BlipTextModel, tokenizer, affine layers of the head)``.

    ``tokenizer``: a folder or hub id of BERT's; by default the source's own folder if it has a
    ``vocab.txt`` or ``tokenizer.json``, else ``google-bert/bert-base-uncased``. Without ``device``
    and ``dtype`` a file's goes to the best device in float32, in which the head always computes,
    and what is loaded stays where and as it is. Raises ``T2XError`` for a source that can't be
    loaded or lacks a tensor.
    """
    if isinstance(source, tuple):
        vision, text, words, layers = source
        vision, text = (move_loaded(tower, device, dtype) for tower in (vision, text))
        label = f"object {id(vision)} {id(text)} {device} {dtype}"
    else:
        vision, text, words, layers = _from_file(_find(source), tokenizer)
        place, number = resolve_device(device), dtype or torch.float32
        vision, text = (tower.to(place, number) for tower in (vision, text))
        label = f"{source} {tokenizer} {place} {number}"
    encoder = BlipEncoder(
        vision,
        text,
        words,
        key=f"imagereward {label}",
        preprocess=Preprocess.of_clip(vision.config.image_size, rounded=True),
        batch_size=batch_size,
    )

    def head(features: Mapping[str, Features]) -> Tensor:
        fused = features["blip"]["fused"]
        return image_reward(fused, [(w.to(fused.device), b.to(fused.device)) for w, b in layers])

    return EncoderReward(
        name=name,
        encoders={"blip": encoder},
        head=head,
        scale="standardised preference, about -2.3 to 2.3",
        parts=frozenset({"text", "fused"}),
    )


def _from_file(path: Path, tokenizer: str | Path | None) -> _Parts:
    state = read_state(path)
    blip = {n.removeprefix(_BLIP): t for n, t in state.items() if n.startswith(_BLIP)}
    vision, text = blip_towers(blip, source=path)
    mlp = {n.removeprefix(_MLP): t for n, t in state.items() if n.startswith(_MLP)}
    layers = affine_layers(mlp, source=path, what="ImageReward checkpoint")
    return vision, text, bert_tokenizer(tokenizer or _tokenizer_beside(path)), layers


def _find(source: str | Path) -> Path:
    path = Path(source)
    if path.is_dir():
        return path / _FILE
    if path.suffix in SUFFIXES or path.exists() or str(source).count("/") != 1:
        return path
    return hub_file(str(source), _FILE)


def _tokenizer_beside(path: Path) -> str | Path:
    found = any((path.parent / n).is_file() for n in ("vocab.txt", "tokenizer.json"))
    return path.parent if found else _TOKENIZER
