"""Textual inversions (Gal et al. 2022, arXiv 2208.01618): words learned from pictures, as files.

A file holds vectors for the token table of a CLIP text encoder: one tensor under its token
(diffusers), ``emb_params`` in a file named after the token or a pickle with ``string_to_param``
(web UIs), or one tensor each for the two encoders of Stable Diffusion XL (``clip_l``, ``clip_g``).
The token then stands in prompts like a word; of several vectors it takes as many places.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.generators.identity import file_digest
from t2x.generators.loading import quiet
from t2x.weight_files import find_weights

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

PREFERRED = ("learned_embeds.safetensors", "learned_embeds.bin")  # diffusers' own names
_ENCODERS = {"clip_l": "text_encoder", "clip_g": "text_encoder_2"}
_UNNAMED = ("emb_params", "*")

__all__ = ["Embedding", "load_embedding"]


@dataclass(frozen=True, slots=True)
class Embedding:
    """A textual inversion that is loaded: its token in prompts, how many vectors stand for it, and
    the digest of its file."""

    token: str
    vectors: int
    digest: str


def load_embedding(pipeline: Any, source: str | Path, token: str | None = None) -> Embedding:
    """Teach the text encoders of a diffusers pipeline the word in a file, for as long as it lives.

    ``source``: a file, a folder that holds one, a hub id, or OWNER/MODEL/FILE. ``token`` replaces
    the file's own name for it. Pickles are read under ``torch.load(weights_only=True)``. Raises
    T2XError for a file that is no textual inversion or belongs to encoders of another width, and
    for a token that prompts could not hold.
    """
    if not hasattr(pipeline, "load_textual_inversion"):
        raise T2XError(
            f"diffusers puts no textual inversion into a {type(pipeline).__name__}; leave it out"
        )
    path = find_weights(source, what="textual inversion", preferred=PREFERRED)
    named, vectors = _read(path)
    word = _checked_token(token or named)
    for name, tensor in _by_encoder(pipeline, vectors, path).items():
        encoder = getattr(pipeline, name)
        tokenizer = getattr(pipeline, name.replace("text_encoder", "tokenizer"))
        _pool_at_the_end(encoder, tokenizer)
        try:
            with quiet():
                pipeline.load_textual_inversion(
                    tensor, token=word, tokenizer=tokenizer, text_encoder=encoder
                )
        except ValueError as error:
            raise T2XError(f"cannot load {str(path)!r} as {word!r}: {error}") from error
        if word not in tokenizer.tokenize(f"a {word} b"):
            raise T2XError(
                f"the tokenizer reads {word!r} as other words; give another token, as <name>"
            )
    return Embedding(word, len(next(iter(vectors.values()))), file_digest(path))


def _read(path: Path) -> tuple[str, dict[str, Tensor]]:
    """The token of a file, and vectors (n, D) by the name of their encoder, "" where it is not
    told."""
    from torch import Tensor

    from t2x.scoring.state_files import read_file

    held = read_file(path)
    name = path.parent.name if path.name in PREFERRED else path.stem
    if isinstance(held, Mapping) and isinstance(held.get("string_to_param"), Mapping):
        name, held = str(held.get("name") or name), held["string_to_param"]
    tensors = dict(held) if isinstance(held, Mapping) else {"*": held}
    if set(tensors) == set(_ENCODERS):
        found = {_ENCODERS[key]: value for key, value in tensors.items()}
    elif len(tensors) == 1:
        key, value = next(iter(tensors.items()))
        name, found = name if key in _UNNAMED else str(key), {"": value}
    else:
        found = {}
    if not found or not all(isinstance(v, Tensor) and v.ndim in (1, 2) for v in found.values()):
        shown = ", ".join(sorted(map(str, tensors))[:4])
        raise T2XError(f"{str(path)!r} is no textual inversion; it holds {shown}")
    return name, {key: v if v.ndim > 1 else v.unsqueeze(0) for key, v in found.items()}


def _checked_token(token: str) -> str:
    if not token.strip() or token != token.strip() or any(c.isspace() for c in token):
        raise T2XError(f"a token is one word, got {token!r}; give another, as <name>")
    return token


def _by_encoder(pipeline: Any, vectors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Find the text encoder that each tensor belongs to, by its name or its width."""
    widths = {
        name: int(encoder.get_input_embeddings().weight.shape[1])
        for name in _ENCODERS.values()
        if (encoder := getattr(pipeline, name, None)) is not None
    }
    found: dict[str, Tensor] = {}
    for name, tensor in vectors.items():
        width = int(tensor.shape[1])
        fitting = [name] if name else [n for n, w in widths.items() if w == width]
        if not fitting or widths.get(fitting[0]) != width:
            known = ", ".join(f"{n} {w}" for n, w in widths.items())
            raise T2XError(
                f"{str(path)!r} is a textual inversion of width {width}, the text encoders of this "
                f"{type(pipeline).__name__} are {known} wide; take one that was made for this model"
            )
        found[fitting[0]] = tensor
    if left := sorted(set(widths) & set(_ENCODERS.values()) - set(found)):
        kind = type(getattr(pipeline, left[0])).__name__
        if kind.startswith("CLIPText"):
            log.warning("%s has no vectors for %s, which reads the bare word", path.name, left[0])
    return found


def _pool_at_the_end(encoder: Any, tokenizer: Any) -> None:
    """Let CLIP find the end of a text by its token: configurations that call it 2 take the highest
    token for the end, which the learned one would be."""
    for module in encoder.modules():
        if getattr(module, "eos_token_id", None) == 2 != tokenizer.eos_token_id:
            module.eos_token_id = tokenizer.eos_token_id
