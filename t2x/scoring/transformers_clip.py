"""transformers' CLIP and SigLIP in the shape that :class:`t2x.scoring.clip_encoder.ClipEncoder`
takes, which is that of open_clip.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from t2x.errors import T2XError
from t2x.failures import UNUSED, reading

__all__ = ["TransformersClip", "TransformersTokens", "from_pretrained"]


class TransformersClip(nn.Module):
    """A ``CLIPModel`` or ``SiglipModel`` with open_clip's methods. ``context_length``: positions of
    the text tower that are used.
    """

    def __init__(self, model: Any, context_length: int) -> None:
        super().__init__()
        self.clip = model
        self.context_length = context_length

    @property
    def logit_scale(self) -> Tensor:
        """Logarithm of the temperature."""
        scale: Tensor = self.clip.logit_scale
        return scale

    @property
    def logit_bias(self) -> Tensor | None:
        """What SigLIP adds to its logits."""
        return getattr(self.clip, "logit_bias", None)

    def encode_image(self, pixels: Tensor) -> Tensor:
        """(N, 3, H, W), normalised, to (N, D)."""
        return _embedding(self.clip.get_image_features(pixel_values=pixels))

    def encode_text(self, ids: Tensor) -> Tensor:
        """(N, T) ids to (N, D).

        No attention mask: CLIP reads up to the end token alone, and SigLIP was trained to read its
        padding.
        """
        return _embedding(self.clip.get_text_features(input_ids=ids))


def _embedding(output: Any) -> Tensor:
    """transformers 4 gives the embedding, 5 an object that holds it."""
    embedding: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    return embedding


class TransformersTokens:
    """Texts to (N, ``length``) ids: padded to the full length, which SigLIP needs and CLIP does not
    mind, and cut on the right with the end token kept.
    """

    def __init__(self, tokenizer: Any, config: Any) -> None:
        positions = int(config.text_config.max_position_embeddings)
        self.tokenizer = tokenizer
        self.length = min(positions, int(tokenizer.model_max_length or positions))

    @property
    def special(self) -> Sequence[str]:
        """Strings that are single tokens of their own."""
        tokens: list[str] = self.tokenizer.all_special_tokens
        return tokens

    def __call__(self, texts: list[str]) -> Tensor:
        ids: Tensor = self.tokenizer(
            texts,
            padding="max_length",
            padding_side="right",
            truncation=True,
            max_length=self.length,
            return_tensors="pt",
        )["input_ids"]
        return ids

    def count(self, text: str) -> int:
        """Ids that ``text`` needs, special ones included."""
        return len(self.tokenizer(text, truncation=False, verbose=False)["input_ids"])


def from_pretrained(
    source: str, processor: str | Path | None, dtype: torch.dtype | str
) -> tuple[Any, Any]:
    """Load (model, processor) from a folder or hub id; ``processor``: another one for the latter.

    Raises ``T2XError`` for a source that can't be loaded or that is no CLIP.
    """
    from transformers import AutoModel, AutoProcessor

    with reading(source, "the CLIP", otherwise=(OSError, ValueError, ImportError), unused=UNUSED):
        model = AutoModel.from_pretrained(source, dtype=dtype)
        second = AutoProcessor.from_pretrained(str(processor or source))
    if not hasattr(model, "get_image_features") or not hasattr(second, "image_processor"):
        raise T2XError(
            f"{source!r} is a {type(model).__name__} with a {type(second).__name__}; give a CLIP "
            "or SigLIP checkpoint with its processor"
        )
    return model, second
