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

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from t2x.devices import Device, resolve_device
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


def load(
    source: str | Path = "THUDM/ImageReward",
    *,
    tokenizer: str | Path | None = None,
    name: str = "imagereward",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int = 16,
) -> EncoderReward:
    """Load the reward from a hub id, a folder that holds ``ImageReward.pt``, or that file.

    ``tokenizer``: a folder or hub id of BERT's; by default the source's own folder if it has a
    ``vocab.txt`` or ``tokenizer.json``, else ``google-bert/bert-base-uncased``. Without ``device``
    and ``dtype`` it goes to the best device in float32, in which the head always computes. Raises
    ``T2XError`` for a source that can't be loaded or lacks a tensor.
    """
    place, number = resolve_device(device), dtype or torch.float32
    path = _find(source)
    state = read_state(path)
    blip = {n.removeprefix(_BLIP): t for n, t in state.items() if n.startswith(_BLIP)}
    vision, text = blip_towers(blip, source=path)
    mlp = {n.removeprefix(_MLP): t for n, t in state.items() if n.startswith(_MLP)}
    layers = affine_layers(mlp, source=path, what="ImageReward checkpoint")
    tokenizer = tokenizer or _tokenizer_beside(path)
    encoder = BlipEncoder(
        vision.to(place, number),
        text.to(place, number),
        bert_tokenizer(tokenizer),
        key=f"imagereward {path} {tokenizer} {place} {number}",
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
