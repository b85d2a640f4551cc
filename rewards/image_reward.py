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

from t2x.devices import Device, move_loaded, present_device
from t2x.functional.matching import image_reward
from t2x.scoring.blip_encoder import BlipEncoder, bert_tokenizer
from t2x.scoring.blip_weights import blip_towers
from t2x.scoring.loaded import loaded_layers, loaded_objects
from t2x.scoring.resize import Preprocess
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.state_files import SUFFIXES, affine_layers, read_state
from t2x.weight_files import find_weights

__all__ = ["load"]

_FILE = "ImageReward.pt"
_TOKENIZER = "google-bert/bert-base-uncased"
_BLIP, _MLP = "blip.", "mlp."
_FORM = ("vision model", "text model", "tokenizer", "layers")
_WHAT = f"ImageReward checkpoint ({_FILE})"
_Parts: TypeAlias = tuple[Any, Any, Any, Sequence[tuple[Tensor, Tensor]]]


def load(
    source: str | Path | _Parts | torch.nn.Module = "THUDM/ImageReward",
    *,
    tokenizer: str | Path | None = None,
    name: str = "imagereward",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int = 16,
) -> EncoderReward:
    """Load the reward from a hub id, a folder that holds ``ImageReward.pt``, that file (also as
    safetensors), loaded ``(BlipVisionModel, BlipTextModel, tokenizer, affine layers of the head)``,
    or the model of the ``image-reward`` package, whose weights are shared.

    ``tokenizer``: a folder or hub id of BERT's; by default the source's own folder if it has a
    ``vocab.txt`` or ``tokenizer.json``, else ``google-bert/bert-base-uncased``. Without ``device``
    and ``dtype`` a file's goes to the best device in float32, in which the head always computes,
    and what is loaded stays where and as it is. Raises ``T2XError`` for a source that can't be
    loaded or lacks a tensor.
    """
    objects = (
        None
        if isinstance(source, torch.nn.Module)
        else loaded_objects(source, what="ImageReward", forms=(_FORM,))
    )
    if objects is not None:
        vision, text, words, layers = objects
        layers = loaded_layers(layers, what="head of ImageReward")
        vision, text = (move_loaded(tower, device, dtype) for tower in (vision, text))
        label = f"object {id(vision)} {id(text)} {device} {dtype}"
    elif isinstance(source, torch.nn.Module):
        state = {name: value.detach() for name, value in source.state_dict().items()}
        vision, text, words, layers = _from_state(state, type(source).__name__, tokenizer)
        vision, text = (move_loaded(tower, device, dtype) for tower in (vision, text))
        label = f"object {id(source)} {device} {dtype}"
    else:
        assert isinstance(source, (str, Path))
        place, number = present_device(device), dtype or torch.float32
        path = find_weights(source, what=_WHAT, suffixes=SUFFIXES, preferred=(_FILE,))
        words_of = tokenizer or _tokenizer_beside(path)
        vision, text, words, layers = _from_state(read_state(path), str(path), words_of)
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


def _from_state(state: Mapping[str, Tensor], source: str, tokenizer: str | Path | None) -> _Parts:
    blip = {n.removeprefix(_BLIP): t for n, t in state.items() if n.startswith(_BLIP)}
    vision, text = blip_towers(blip, source=source)
    mlp = {n.removeprefix(_MLP): t for n, t in state.items() if n.startswith(_MLP)}
    layers = affine_layers(mlp, source=source, what="ImageReward checkpoint")
    return vision, text, bert_tokenizer(tokenizer or _TOKENIZER), layers


def _tokenizer_beside(path: Path) -> str | Path:
    found = any((path.parent / n).is_file() for n in ("vocab.txt", "tokenizer.json"))
    return path.parent if found else _TOKENIZER
