"""A CLIP as an encoder: image and text embeddings of open_clip models, prepared as the weights' own
configuration says.

Sources: an embedded name (``emoji-clip``, ``emoji-hps``), a local folder in open_clip's format,
``hf-hub:owner/model`` or ``owner/model``, ``architecture/tag`` of open_clip's own list by
``"ViT-L-14:openai"``, or a loaded ``(model, tokenizer)``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.scoring.resize import Preprocess
from t2x.world.weights import EMBEDDED, require_model

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = ["ClipEncoder", "load_clip"]

log = logging.getLogger(__name__)
_BATCH = 64
_loaded: WeakValueDictionary[tuple[str, str], ClipEncoder] = WeakValueDictionary()


class ClipEncoder:
    """Frozen open_clip model. Features: ``image`` and ``text`` (N, D), not normalised;
    ``logit_scale`` (N,), its logarithm.

    ``tokenize`` turns a list of texts into (N, T) ids; ``count_tokens`` tells how many ids a text
    really needs, start and end included, so that truncation can be reported (None: unknown).
    """

    def __init__(
        self,
        model: Any,
        tokenize: Callable[[list[str]], Tensor],
        *,
        key: str,
        preprocess: Preprocess | None = None,
        count_tokens: Callable[[str], int] | None = None,
        special_tokens: Sequence[str] = (),
        prefix: str = "",
        batch_size: int = _BATCH,
    ) -> None:
        self.key = key
        self.prefix = prefix
        self.model = model.eval().requires_grad_(False)
        self.preprocess = preprocess or Preprocess.from_open_clip(model.visual.preprocess_cfg)
        self.batch_size = batch_size
        self._tokenize = tokenize
        self._count_tokens = count_tokens
        self._special_tokens = tuple(special_tokens)

    def tokenize(self, prompts: Sequence[str]) -> Tensor:
        """Token ids (N, T), cut on the right with the end token kept. Special tokens inside a
        prompt are plain text.
        """
        return self._tokenize([self._plain(p) for p in prompts])

    def truncated(self, prompts: Sequence[str]) -> list[bool]:
        """Whether each prompt is longer than the text tower reads; False where that is unknown."""
        if self._count_tokens is None:
            return [False] * len(prompts)
        return [self._count_tokens(self._plain(p)) > self.context_length for p in prompts]

    def with_prefix(self, prefix: str) -> ClipEncoder:
        """The same weights with ``prefix`` before every prompt; another key, since the features
        differ.
        """
        if prefix == self.prefix:
            return self
        other = copy(self)
        other.key, other.prefix = f"{self.key} {prefix!r}", prefix
        return other

    @property
    def context_length(self) -> int:
        """Positions of the text tower, start and end tokens included."""
        return int(self.model.context_length)

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"image", "text"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Embed N pairs; equal prompts are embedded once."""
        features: dict[str, Tensor] = {}
        if "image" in parts:
            features["image"] = self.encode_image(media)
        if "text" in parts:
            features["text"] = self.encode_text(prompts)
            features["logit_scale"] = self.model.logit_scale.float().expand(len(prompts))
        return features

    def encode_image(self, media: Media) -> Tensor:
        """Image embeddings (N, D), differentiable in ``media``."""
        weight = self._weight
        rows = []
        for start in range(0, len(media), self.batch_size):
            part = media[start : start + self.batch_size]
            pixels = self.preprocess(part, dtype=weight.dtype).to(weight.device)
            rows.append(self.model.encode_image(pixels))
        return torch.cat(rows)

    def encode_text(self, prompts: Sequence[str]) -> Tensor:
        """Text embeddings (N, D); truncation is logged as a warning."""
        unique = list(dict.fromkeys(prompts))
        if cut := sum(self.truncated(unique)):
            log.warning(
                "%s: %d of %d prompts exceed %d tokens and are cut",
                self.key,
                cut,
                len(unique),
                self.context_length,
            )
        rows = []
        with torch.no_grad():
            for start in range(0, len(unique), self.batch_size):
                ids = self.tokenize(unique[start : start + self.batch_size])
                rows.append(self.model.encode_text(ids.to(self._weight.device)))
        place = {p: i for i, p in enumerate(unique)}
        return torch.cat(rows)[[place[p] for p in prompts]]

    @property
    def _weight(self) -> Tensor:
        weight: Tensor = self.model.logit_scale
        return weight

    def _plain(self, prompt: str) -> str:
        for token in self._special_tokens:
            prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return self.prefix + prompt


def load_clip(
    source: str | Path | tuple[Any, Callable[[list[str]], Tensor]],
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> ClipEncoder:
    """Load an encoder; the same source and device give the same object for as long as somebody
    holds it.

    Raises ``T2XError`` for a source that can't be loaded.
    """
    if isinstance(source, tuple):
        model, tokenizer = source
        return _wrap(model.to(device, dtype), tokenizer, key=f"object {id(model)}")
    name = _open_clip_name(str(source))
    key = (name, f"{device} {dtype}")
    if (found := _loaded.get(key)) is not None:
        return found
    encoder = _load_open_clip(name, device, dtype)
    _loaded[key] = encoder
    return encoder


def _open_clip_name(source: str) -> str:
    """The name under which open_clip finds the weights."""
    if source in EMBEDDED:
        return f"local-dir:{require_model(source)}"
    if source.startswith(("hf-hub:", "local-dir:")) or ":" in source:
        return source
    if Path(source).is_dir():
        return f"local-dir:{Path(source).resolve()}"
    if source.count("/") == 1:
        return f"hf-hub:{source}"
    raise T2XError(
        f"can't find a CLIP {source!r}; give an embedded name, a folder with "
        "open_clip_config.json, a hub id owner/model or ARCHITECTURE:TAG of open_clip's list"
    )


def _load_open_clip(name: str, device: str, dtype: torch.dtype) -> ClipEncoder:
    import open_clip

    architecture, _, tag = name.partition(":")
    is_schema = architecture in ("hf-hub", "local-dir")
    try:
        model = open_clip.create_model(
            name if is_schema else architecture,
            pretrained=None if is_schema else tag,
            require_pretrained=True,
        )
        tokenizer = open_clip.get_tokenizer(name if is_schema else architecture)
    except (OSError, RuntimeError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise T2XError(f"can't load the CLIP {name!r}: {reason}") from error
    return _wrap(model.to(device, dtype), tokenizer, key=f"{name} {device} {dtype}")


def _wrap(model: Any, tokenizer: Any, *, key: str) -> ClipEncoder:
    """Find out how a tokenizer counts and which strings are special to it: open_clip's own or a
    wrapped transformers one.
    """
    config = getattr(model.visual, "preprocess_cfg", None)
    preprocess = Preprocess.from_open_clip(config) if config else _plain_preprocess(model)
    inner = getattr(tokenizer, "tokenizer", None)
    count: Callable[[str], int] | None = None
    special: Sequence[str] = ()
    if inner is not None:
        special = inner.all_special_tokens

        def count(text: str) -> int:
            return len(
                inner(tokenizer.clean_fn(text), truncation=False, verbose=False)["input_ids"]
            )
    elif hasattr(tokenizer, "encode"):
        special = list(
            getattr(tokenizer, "all_special_tokens", ("<start_of_text>", "<end_of_text>"))
        )
        special = [s for s in special if isinstance(s, str)]

        def count(text: str) -> int:
            return len(tokenizer.encode(text)) + 2

    return ClipEncoder(
        model, tokenizer, key=key, preprocess=preprocess, count_tokens=count, special_tokens=special
    )


def _plain_preprocess(model: Any) -> Preprocess:
    """Of a loaded object that carries no preprocessing: its picture size with CLIP's mean and
    deviation.
    """
    from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD

    size = model.visual.image_size
    size = (size, size) if isinstance(size, int) else tuple(size)
    return Preprocess(size, tuple(OPENAI_DATASET_MEAN), tuple(OPENAI_DATASET_STD))
