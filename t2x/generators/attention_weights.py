"""Weights and texts beyond one window of CLIP, as compel encodes them.

Stable Diffusion and SDXL pipelines: prompts go past their own ``encode_prompt``, which knows
neither. Weights act as compel's do, which are softer below 1 than A1111's. A long text is cut at
the last comma or full stop that fits, else between words; each window has its own start and end.
``BREAK`` begins a window.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from t2x.generators.loading import device_of, quiet
from t2x.prompts.reading import Segment, said

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WeightedEncoder", "library", "takes_weights", "why_not"]

_OTHER_TEXTS = ("clip_skip", "prompt_2", "negative_prompt_2")
_ENCODING = (  # what encode_prompt must take
    "prompt", "device", "num_images_per_prompt", "do_classifier_free_guidance", "prompt_embeds",
    "negative_prompt_embeds"
)  # fmt: skip
_POOLED = ("pooled_prompt_embeds", "negative_pooled_prompt_embeds")
_PROBE = "a red cat, on a mat."


def library() -> str | None:
    """Name and version of the library that encodes weights, if it is there."""
    return f"compel {version('compel')}" if find_spec("compel") is not None else None


def why_not(pipe: Any, sampling: Mapping[str, Any]) -> str | None:
    """Why ``pipe`` can't be given weights or long texts in calls with ``sampling``; None if it can.

    The first time the library's encoding of plain text is compared with the pipeline's own.
    """
    if not takes_weights(pipe):
        return f"{type(pipe).__name__} has no weights; Stable Diffusion and SDXL pipelines do"
    if set_ := [name for name in _OTHER_TEXTS if sampling.get(name) is not None]:
        return f"{set_[0]} is set, which leaves no place for weights"
    if pipe.text_encoder.device.type == "meta":
        return "the text encoder is offloaded layer by layer; take offload='model'"
    if library() is None:
        return "that needs compel: pip install 't2x[weights]'"
    if not _agrees(pipe):
        return f"{type(pipe).__name__} encodes text otherwise than {library()} does"
    return None


_AGREES: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _agrees(pipe: Any) -> bool:
    if pipe not in _AGREES:
        _AGREES[pipe] = WeightedEncoder(pipe).agrees()
    return _AGREES[pipe]


def takes_weights(pipe: Any) -> bool:
    """Whether ``pipe`` has the text encoders of Stable Diffusion or SDXL, and no others."""
    from transformers import CLIPTextModel, CLIPTextModelWithProjection

    parts = {k: v for k, v in pipe.components.items() if k.startswith("text_encoder")}
    function = getattr(type(pipe), "encode_prompt", None)
    taken = inspect.signature(function).parameters if function is not None else {}
    return (
        "unet" in pipe.components
        and set(_ENCODING) | (set(_POOLED) if len(parts) > 1 else set()) <= taken.keys()
        and isinstance(parts.pop("text_encoder", None), CLIPTextModel)
        and all(
            name == "text_encoder_2" and isinstance(part, CLIPTextModelWithProjection)
            for name, part in parts.items()
        )
    )


class WeightedEncoder:
    """One pipeline's text encoders as compel drives them, with the weights that they have now."""

    def __init__(self, pipe: Any) -> None:
        from compel import Compel, ReturnedEmbeddingsType, SplitLongTextMode

        self.pipe = pipe
        self.two = "text_encoder_2" in pipe.components
        self.device = device_of(pipe)
        layer = (
            ReturnedEmbeddingsType.PENULTIMATE_HIDDEN_STATES_NON_NORMALIZED
            if self.two
            else ReturnedEmbeddingsType.LAST_HIDDEN_STATES_NORMALIZED
        )
        self.names = ("tokenizer", "tokenizer_2") if self.two else ("tokenizer",)
        self.encoders = [
            Compel(
                tokenizer=getattr(pipe, name),
                text_encoder=getattr(pipe, name.replace("tokenizer", "text_encoder")),
                truncate_long_prompts=False,
                returned_embeddings_type=layer,
                split_long_text_mode=SplitLongTextMode.PHRASES,
                device=self.device,
            )
            for name in self.names
        ]

    def agrees(self) -> bool:
        """Whether plain text becomes what the pipeline's own encoder makes of it."""
        import torch

        with torch.no_grad(), quiet():
            own = type(self.pipe).encode_prompt(
                self.pipe,
                prompt=_PROBE,
                device=self.device,
                num_images_per_prompt=1,
                do_classifier_free_guidance=False,
            )
            mine = self.encode([(((_PROBE, 1.0),),)])
        pairs = [(own[0], mine["prompt_embeds"])]
        if self.two:
            pairs.append((own[2], mine["pooled_prompt_embeds"]))
        return all(
            a.shape == b.shape and bool(torch.isclose(a, b.to(a), rtol=1e-2, atol=1e-2).all())
            for a, b in pairs
        )

    def windows(self, segments: Sequence[Segment]) -> dict[str, tuple[str, ...]]:
        """The text of each window, for each tokenizer by name; nothing is encoded."""
        found = {}
        for name, compel in zip(self.names, self.encoders, strict=True):
            provider, texts = compel.conditioning_provider, list[str]()
            for segment in segments:
                pieces, weights = zip(*self._tokens(segment, provider.tokenizer), strict=True)
                ids, _, _ = provider.get_token_ids_and_expand_weights(
                    list(pieces), list(weights), device="cpu"
                )
                rows = ids.view(-1, provider.max_token_count)
                texts += provider.tokenizer.batch_decode(rows, skip_special_tokens=True)
            found[name] = tuple(text.strip() for text in texts)
        return found

    def encode(
        self,
        prompts: Sequence[Sequence[Segment]],
        negatives: Sequence[Sequence[Segment]] | None = None,
        *,
        guided: bool = True,
    ) -> dict[str, Tensor]:
        """What ``encode_prompt`` takes in the place of N texts: (N, windows * length, width) each,
        and the pooled ones of SDXL. Shorter texts get windows of the empty one.

        Without ``negatives`` the pipeline encodes its own where one window is enough, or puts zeros
        there if it is one that does; else they are of the empty text. Unless ``guided`` none are
        needed.
        """
        import torch

        with torch.no_grad(), quiet():
            texts = [*prompts, *(negatives or ())]
            columns = [[self._one(c, text) for text in texts] for c in self.encoders]
            length = max(len(row) for column in columns for row in column)
            zeros = getattr(self.pipe.config, "force_zeros_for_empty_prompt", False)
            one = self.encoders[0].conditioning_provider.max_token_count
            if guided and negatives is None and length > one and not zeros:
                negatives = [((("", 1.0),),)] * len(prompts)
                texts = [*prompts, *negatives]
                for compel, column in zip(self.encoders, columns, strict=True):
                    column += [self._one(compel, negatives[0])] * len(negatives)
            whole = torch.cat(
                [
                    torch.stack([_padded(c, row, length) for row in column])
                    for c, column in zip(self.encoders, columns, strict=True)
                ],
                dim=-1,
            )
            n = len(prompts)
            found = {"prompt_embeds": whole[:n]}
            if negatives is not None:
                found["negative_prompt_embeds"] = whole[n:]
            if self.two:
                pooled = self._pooled(texts)
                found["pooled_prompt_embeds"] = pooled[:n]
                if negatives is not None:
                    found["negative_pooled_prompt_embeds"] = pooled[n:]
        return found

    def _one(self, compel: Any, segments: Sequence[Segment]) -> Tensor:
        """(windows * length, width) of one text. compel's own parser is passed by: it would read
        plus signs, quotes and brackets of plain text as its syntax."""
        import torch

        provider = compel.conditioning_provider
        parts = []
        for segment in segments:
            pieces, weights = zip(*self._tokens(segment, provider.tokenizer), strict=True)
            parts.append(
                provider.get_embeddings_for_weighted_prompt_fragments(
                    [list(pieces)], [list(weights)], device=self.device
                )[0]
            )
        return torch.cat(parts)

    def _pooled(self, texts: Sequence[Sequence[Segment]]) -> Tensor:
        """(N, width) of the words of each text, of the first window only."""
        provider = self.encoders[-1].conditioning_provider
        words = [" ".join(said(segment).strip() for segment in text) for text in texts]
        converted = [self._converted(text, provider.tokenizer) for text in words]
        found: Tensor = provider.get_pooled_embeddings(converted, device=self.device)
        return found

    def _tokens(self, segment: Segment, tokenizer: Any) -> list[tuple[str, float]]:
        return [(self._converted(text, tokenizer), weight) for text, weight in segment]

    def _converted(self, text: str, tokenizer: Any) -> str:
        """A learned token of several vectors becomes that many, as in the pipeline's own."""
        convert = getattr(self.pipe, "maybe_convert_prompt", None)
        return text if convert is None else str(convert(text, tokenizer))


def _padded(compel: Any, row: Tensor, length: int) -> Tensor:
    import torch

    empty = compel.conditioning_provider.empty_z[0].to(row)
    copies, rest = divmod(length - len(row), len(empty))
    assert rest == 0
    return torch.cat([row, *[empty] * copies])
