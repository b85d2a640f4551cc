"""A CLIP as an encoder: image and text embeddings of open_clip models and of transformers' CLIP and
SigLIP, prepared as the weights' own configuration says, to the last bit: resizing rounds as PIL
does, and its gradient is that of the filter.

Sources: an embedded name (``emoji-clip``, ``emoji-hps``), a local folder in open_clip's or in
transformers' format, ``hf-hub:owner/model`` (open_clip), ``transformers:owner/model`` or
``owner/model`` (whichever the repository holds), ``ARCHITECTURE:TAG`` of open_clip's own list by
``"ViT-L-14:openai"``, ``ARCHITECTURE:FILE``, or what is loaded (``t2x.scoring.loaded``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from t2x.devices import Device, loading_dtype, move_loaded, present_device
from t2x.scoring.clip_sources import find_clip, load_open_clip
from t2x.scoring.frozen import frozen
from t2x.scoring.loaded import CLIP_FORMS, PROCESSOR_FORMS, loaded_objects
from t2x.scoring.resize import CLIP_MEAN, CLIP_STD, Preprocess
from t2x.scoring.text_cache import CachedText, TextCache, weights_state
from t2x.scoring.transformers_clip import TransformersClip, TransformersTokens, from_pretrained

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = ["ClipEncoder", "load_clip", "text_part"]

log = logging.getLogger(__name__)
_BATCH = 64
_loaded: WeakValueDictionary[tuple[str, str], ClipEncoder] = WeakValueDictionary()


def text_part(prefix: str = "") -> str:
    """Name of the feature that holds the embeddings of ``prefix`` + prompt."""
    return f"text:{prefix}" if prefix else "text"


class ClipEncoder:
    """A CLIP, which stays as it is. Features: ``image`` and ``text`` (N, D), not normalised,
    ``text:PREFIX`` of the prompts behind a prefix (:func:`text_part`); ``logit_scale`` (N,), its
    logarithm; of SigLIP also ``logit_bias`` (N,). Rewards with several prefixes share one image
    pass.

    ``tokenize`` turns a list of texts into (N, T) ids; ``count_tokens`` tells how many ids a text
    really needs, start and end included, so that truncation can be reported (None: unknown);
    ``clean`` is what the tokenizer does to a text before it looks for special tokens.
    Text features are remembered for the last ``cache_size`` texts.
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
        clean: Callable[[str], str] | None = None,
        batch_size: int = _BATCH,
        cache_size: int = 4096,
    ) -> None:
        self.key = key
        self.model = model
        self.preprocess = preprocess or Preprocess.from_open_clip(model.visual.preprocess_cfg)
        self.batch_size = batch_size
        self.cache = TextCache(cache_size)
        self.tokenizer = tokenize  # the library's own object
        self._tokenize = tokenize
        self._count_tokens = count_tokens
        self._clean = clean or str.strip
        alternatives = "|".join(re.escape(t) for t in special_tokens if len(t) > 1)
        self._special = re.compile(alternatives, re.IGNORECASE) if alternatives else None

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

    def with_preprocess(self, preprocess: Preprocess) -> ClipEncoder:
        """The same weights and text features with other preprocessing; another key, since the image
        features differ.
        """
        if preprocess == self.preprocess:
            return self
        other = copy(self)
        other.key, other.preprocess = f"{self.key} {preprocess}", preprocess
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
        for part in sorted(parts):
            kind, _, prefix = part.partition(":")
            if kind == "text":
                features[part] = self.encode_text([prefix + p for p in prompts])
        for name in ("logit_scale", "logit_bias"):
            if (value := getattr(self.model, name, None)) is not None:
                features[name] = value.detach().float().reshape(1).expand(len(prompts))
        return features

    def encode_image(self, media: Media) -> Tensor:
        """Image embeddings (N, D), differentiable in ``media``."""
        weight = self._weight
        rows = []
        for start in range(0, len(media), self.batch_size):
            part = media[start : start + self.batch_size]
            pixels = self.preprocess(part, dtype=weight.dtype).to(weight.device)
            with frozen(self.model):
                rows.append(self.model.encode_image(pixels))
        return torch.cat(rows)

    def encode_text(self, prompts: Sequence[str]) -> Tensor:
        """Text embeddings (N, D), without gradient; truncation is logged as a warning. Texts seen
        before come from the cache.
        """
        state = weights_state(self.model)
        unique = list(dict.fromkeys(prompts))
        known = {p: entry for p in unique if (entry := self.cache.take(p, state)) is not None}
        missing = [p for p in unique if p not in known]
        for start in range(0, len(missing), self.batch_size):
            part = missing[start : start + self.batch_size]
            for prompt, entry in zip(part, self._embed(part), strict=True):
                known[prompt] = entry
                self.cache.keep(prompt, entry)
        if cut := sum(known[p].cut for p in unique):
            log.warning(
                "%s: %d of %d prompts exceed %d tokens and are cut",
                self.key,
                cut,
                len(unique),
                self.context_length,
            )
        return torch.stack([known[p].row for p in prompts])

    def _embed(self, texts: list[str]) -> list[CachedText]:
        # Outside inference mode, whose tensors a later graph could not hold.
        with torch.inference_mode(False), torch.no_grad(), frozen(self.model):
            rows = self.model.encode_text(self.tokenize(texts).to(self._weight.device))
            # Copies, so that one remembered text does not hold its batch.
            rows = [row.clone() for row in rows]
        return [CachedText(*pair) for pair in zip(rows, self.truncated(texts), strict=True)]

    @property
    def _weight(self) -> Tensor:
        weight: Tensor = self.model.logit_scale
        return weight

    def _plain(self, prompt: str) -> str:
        """A text in which the tokenizer finds no special token: a space behind their first letter
        breaks them, in any case and also if cleaning (of HTML, of wide letters) would make them.
        """
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
        if self._special is None:
            return prompt
        before, cleaned = prompt, self._clean(prompt)
        while len(cleaned) < len(before):  # escapes may be nested
            before, cleaned = cleaned, self._clean(cleaned)
        if not self._special.search(cleaned):
            return prompt
        return self._special.sub(lambda m: f"{m[0][0]} {m[0][1:]}", cleaned)


def load_clip(
    source: str | Path | Sequence[Any],
    *,
    processor: str | Path | None = None,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> ClipEncoder:
    """Load an encoder; the same source and device give the same object for as long as somebody
    holds it.

    ``processor``: folder or hub id of the transformers processor, if it does not lie with the
    weights. A loaded object stays where and as it is unless ``device`` or ``dtype`` say otherwise;
    others go to the best device, in float32 on a CPU and elsewhere as their library loads them:
    transformers as they were saved, open_clip in float32. Raises ``T2XError`` for a source that
    can't be loaded.
    """
    objects = loaded_objects(source, what="CLIP", forms=CLIP_FORMS)
    if objects is not None:
        model, *others, second = objects
        key_of = f"object {id(model)}"
        if hasattr(model, "get_image_features"):
            loaded_objects(source, what="CLIP of transformers", forms=PROCESSOR_FORMS)
            return _wrap_transformers(move_loaded(model, device, dtype), second, key=key_of)
        loaded_objects(source, what="CLIP of open_clip", forms=CLIP_FORMS[:2])
        wrapped = _wrap_open_clip(move_loaded(model, device, dtype), second, key=key_of)
        shown = [replace(Preprocess.from_torchvision(step), rounded=True) for step in others]
        return wrapped.with_preprocess(shown[0]) if shown else wrapped
    name = f"transformers:{source}" if processor is not None else find_clip(str(source))
    place = present_device(device)
    by_transformers = name.startswith("transformers:")
    number = loading_dtype(dtype, place) if by_transformers else dtype or torch.float32
    key = (name, f"{place} {number} {processor or ''}".rstrip())
    if (found := _loaded.get(key)) is not None:
        return found
    if by_transformers:
        model, second = from_pretrained(name.partition(":")[2], processor, number)
        model = model.requires_grad_(False).to(place)
        encoder = _wrap_transformers(model, second, key=" ".join(key))
    else:
        loaded = load_open_clip(name, place, dtype or torch.float32)
        encoder = _wrap_open_clip(*loaded, key=" ".join(key))
    _loaded[key] = encoder
    return encoder


def _wrap_transformers(model: Any, processor: Any, *, key: str) -> ClipEncoder:
    tokens = TransformersTokens(processor.tokenizer, model.config)
    return ClipEncoder(
        TransformersClip(model, tokens.length),
        tokens,
        key=key,
        preprocess=replace(
            Preprocess.from_transformers(processor.image_processor.to_dict()), rounded=True
        ),
        count_tokens=tokens.count,
        special_tokens=tokens.special,
    )


def _wrap_open_clip(model: Any, tokenizer: Any, *, key: str) -> ClipEncoder:
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
        special = ("<start_of_text>", "<end_of_text>")

        def count(text: str) -> int:
            return len(tokenizer.encode(text)) + 2

    return ClipEncoder(
        model,
        tokenizer,
        key=key,
        preprocess=replace(preprocess, rounded=True),
        count_tokens=count,
        special_tokens=special,
        clean=getattr(tokenizer, "clean_fn", None),
    )


def _plain_preprocess(model: Any) -> Preprocess:
    """Of a loaded object that carries no preprocessing: its picture size with CLIP's mean and
    deviation.
    """
    size = model.visual.image_size
    return Preprocess((size, size) if isinstance(size, int) else tuple(size), CLIP_MEAN, CLIP_STD)
