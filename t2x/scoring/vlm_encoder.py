"""A vision-language model as an encoder: the logits with which it begins its answer to a question.

Any ``AutoModelForImageTextToText`` whose processor has a chat template. Pictures take one tensor
path, that of the model's own image processor, which gives scores and gradients alike.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.world.weights import EMBEDDED, require_model

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = ["Vlm", "VlmEncoder", "load_vlm"]

log = logging.getLogger(__name__)
_loaded: WeakValueDictionary[tuple[str, str], Vlm] = WeakValueDictionary()


class Vlm:
    """A frozen model with its processor; rewards that ask it different questions share one."""

    def __init__(self, model: Any, processor: Any, *, key: str) -> None:
        self.key = key
        self.model = model.eval().requires_grad_(False)
        self.processor = processor
        if getattr(model.config, "is_encoder_decoder", False):
            raise T2XError(f"{key} is an encoder-decoder; give a model that answers in its chat")
        if not (processor.chat_template or processor.tokenizer.chat_template):
            raise T2XError(
                f"the processor of {key} has no chat template; give (model, processor) with "
                "processor.chat_template set"
            )

    def token(self, word: str) -> int:
        """The one token that ``word`` is as an answer; ``T2XError`` if it is several."""
        ids = self.processor.tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise T2XError(
                f"the answer {word!r} is {len(ids)} tokens for {self.key}; give one that is a "
                "single token"
            )
        return int(ids[0])

    def chat(self, question: str) -> str:
        """One user turn, the picture and then the question, up to where the answer begins."""
        content = [{"type": "image"}, {"type": "text", "text": question}]
        return str(
            self.processor.apply_chat_template(
                [{"role": "user", "content": content}], add_generation_prompt=True, tokenize=False
            )
        )

    def first_logits(self, texts: Sequence[str], pictures: Sequence[Tensor]) -> Tensor:
        """Logits of the token after each of N texts about N pictures (3, H, W): (N, V)."""
        inputs = self.processor(
            text=list(texts),
            images=[p.detach() for p in pictures],
            do_rescale=False,
            padding=True,
            padding_side="right",
            return_tensors="pt",
        )
        if torch.is_grad_enabled() and any(p.requires_grad for p in pictures):
            # The same pixels again: the processor as a whole can't handle tensors with a graph.
            pixels = self.processor.image_processor(
                images=list(pictures), do_rescale=False, return_tensors="pt"
            )
            inputs.update(pixels)
        inputs = inputs.to(self.model.device)
        for name, value in inputs.items():
            if isinstance(value, Tensor) and value.is_floating_point():
                inputs[name] = value.to(self.model.dtype)
        last = inputs["attention_mask"].sum(1) - 1  # (N,)
        kept, where = torch.unique(last, return_inverse=True)
        logits = self.model(**inputs, logits_to_keep=kept, use_cache=False).logits
        picked: Tensor = logits[torch.arange(len(last), device=where.device), where]
        return picked


class VlmEncoder:
    """Asks a :class:`Vlm` one question per prompt. Feature: ``logits`` (N, V) of the first answered
    token.

    ``question`` holds ``{prompt}``. A prompt of more than ``max_prompt_tokens`` is cut on the
    right, inside the question, and that is logged. Special tokens in a prompt are text.
    """

    def __init__(
        self, vlm: Vlm, question: str, *, max_prompt_tokens: int = 256, batch_size: int = 32
    ) -> None:
        if question.count("{prompt}") != 1:
            raise T2XError(f"the question must hold {{prompt}} once, got {question!r}")
        self.vlm = vlm
        self.question = question
        self.max_prompt_tokens = max_prompt_tokens
        self.batch_size = batch_size
        self.key = f"{vlm.key} {max_prompt_tokens} {question}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"logits"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Answer N questions about N pictures."""
        if cut := sum(self.truncated(prompts)):
            log.warning(
                "%s: %d of %d prompts exceed %d tokens and are cut",
                self.vlm.key,
                cut,
                len(prompts),
                self.max_prompt_tokens,
            )
        texts = [self.text(p) for p in prompts]
        rows = []
        for start in range(0, len(texts), self.batch_size):
            stop = start + self.batch_size
            pictures = [item.reshape(item.shape[-3:]) for item in media[start:stop]]
            rows.append(self.vlm.first_logits(texts[start:stop], pictures))
        return {"logits": torch.cat(rows)}

    def truncated(self, prompts: Sequence[str]) -> list[bool]:
        """Whether each prompt is too long to be read whole."""
        return [len(self._ids(self._plain(p))) > self.max_prompt_tokens for p in prompts]

    def text(self, prompt: str) -> str:
        """The whole input for ``prompt``, as the chat template writes it."""
        plain = self._plain(prompt)
        ids = self._ids(plain)
        if len(ids) > self.max_prompt_tokens:
            kept = self.vlm.processor.tokenizer.decode(ids[: self.max_prompt_tokens])
            plain = self._plain(kept.rstrip("\ufffd"))
        before, after = self.question.split("{prompt}")
        return self.vlm.chat(before + plain + after)

    def _ids(self, text: str) -> list[int]:
        tokenizer = self.vlm.processor.tokenizer
        ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    def _plain(self, prompt: str) -> str:
        """One line without control tokens: a space behind their first letter makes them text."""
        tokenizer = self.vlm.processor.tokenizer
        special = {str(t) for t in tokenizer.added_tokens_decoder.values() if t.special}
        special |= set(tokenizer.all_special_tokens)
        special.add(str(getattr(self.vlm.processor, "image_token", "<image>")))
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
        prompt = " ".join(prompt.split())
        for token in sorted(special, key=len, reverse=True):
            if len(token) > 1:
                prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return prompt


def load_vlm(
    source: str | Path | tuple[Any, Any], *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Vlm:
    """Load an embedded name, a local folder, a hub id ``owner/model`` or a ``(model, processor)``.

    The same source and device give the same object for as long as somebody holds it. Raises
    ``T2XError`` for a source that can't be loaded.
    """
    if isinstance(source, tuple):
        model, processor = source
        return Vlm(model.to(device, dtype), processor, key=f"object {id(model)}")
    name = str(source)
    key = (name, f"{device} {dtype}")
    if (found := _loaded.get(key)) is not None:
        return found
    folder = str(require_model(name)) if name in EMBEDDED else name
    vlm = Vlm(*_from_pretrained(folder, device, dtype), key=f"{name} {device} {dtype}")
    _loaded[key] = vlm
    return vlm


def _from_pretrained(folder: str, device: str, dtype: torch.dtype) -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    try:
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)
        processor = AutoProcessor.from_pretrained(folder)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise T2XError(
            f"can't load the vision-language model {folder!r}: {reason}; give an embedded name, a "
            "folder that holds a checkpoint, or a hub id owner/model while the hub can be reached"
        ) from error
    return model.to(device), processor
