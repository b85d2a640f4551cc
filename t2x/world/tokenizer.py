"""The world's CLIP tokenizer: the stock class, its merges learnt from the captions.

Byte-level, so that no text is unknown; words that no caption holds fall into small pieces, as they
would in any CLIP.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import CLIPTokenizer

__all__ = ["MAX_TOKENS", "build_clip_tokenizer", "tokenize"]

MAX_TOKENS = 48
_BOS, _EOS = "<|startoftext|>", "<|endoftext|>"


def build_clip_tokenizer(texts: Iterable[str], *, vocab_size: int = 1024) -> CLIPTokenizer:
    """Learn byte-pair merges from ``texts`` and give a ``CLIPTokenizer`` of ``MAX_TOKENS``
    positions.

    The trainer runs under CLIP's own normaliser and pre-tokeniser, taken from an empty instance of
    the class.
    """
    import json

    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    shell = CLIPTokenizer().backend_tokenizer
    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.normalizer, learner.pre_tokenizer = shell.normalizer, shell.pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=sorted(alphabet),
        end_of_word_suffix="</w>",
        show_progress=False,
        special_tokens=[_BOS, _EOS, *(f"{c}</w>" for c in sorted(alphabet))],
    )
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    return CLIPTokenizer(
        vocab=model["vocab"],
        merges=[tuple(m) for m in model["merges"]],
        model_max_length=MAX_TOKENS,
    )


def tokenize(tokenizer: Any, texts: Sequence[str]) -> Tensor:
    """Token ids exactly as StableDiffusionPipeline and open_clip make them, padded to the
    tokenizer's whole length: (N, T) int64."""
    ids: Tensor = tokenizer(
        list(texts),
        padding="max_length",
        max_length=tokenizer.model_max_length,
        truncation=True,
        return_tensors="pt",
    ).input_ids
    return ids
