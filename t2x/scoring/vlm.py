"""A vision-language model, only read: the logits with which it begins its answer to a question, the
log-probability of a given answer, and what it writes.

Any ``AutoModelForImageTextToText``: chat models (LLaVA, Qwen2-VL, Qwen2.5-VL, Qwen3-VL, ...), whose
processor has a chat template, and encoder-decoders (BLIP-2 and InstructBLIP with T5), which are
asked in plain text. Pictures take one tensor path, that of the model's own image processor, which
gives scores and gradients alike; where it lets no gradient through, ``Vlm.differentiable`` says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from t2x.devices import Device, loading_dtype, move_loaded, present_device
from t2x.errors import T2XError
from t2x.failures import reading
from t2x.functional.answers import token_log_probabilities
from t2x.scoring.frozen import frozen
from t2x.scoring.loaded import PROCESSOR_FORMS, loaded_objects
from t2x.scoring.pairs import wants_gradient
from t2x.world.weights import EMBEDDED, require_model

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = ["Vlm", "load_vlm"]

log = logging.getLogger(__name__)
_loaded: WeakValueDictionary[tuple[str, str], Vlm] = WeakValueDictionary()
_THOUGHT = "<think>"
_NO_LABEL = -100
Shown: TypeAlias = "Tensor | Sequence[Tensor]"


class Vlm:
    """A model, which stays as it is, with its processor; rewards that ask it different questions
    share one.
    """

    def __init__(self, model: Any, processor: Any, *, key: str) -> None:
        self.key = key
        self.model = model
        self.processor = processor
        self.tokenizer = processor.tokenizer
        parts = (model.config, getattr(model.config, "text_config", None))
        self.is_encoder_decoder = any(getattr(c, "is_encoder_decoder", False) for c in parts)
        template = getattr(processor, "chat_template", None) or self.tokenizer.chat_template
        self.has_template = bool(template)
        if not (self.has_template or self.is_encoder_decoder):
            raise T2XError(
                f"the processor of {key} has no chat template; give (model, processor) with "
                "processor.chat_template set"
            )

    @cached_property
    def differentiable(self) -> bool:
        """Whether the image processor passes gradients to the pixels, tried on a grey picture."""
        probe = torch.full((3, 64, 64), 0.5, requires_grad=True)
        try:
            with torch.enable_grad():
                values = self._pixels([[probe]]).get("pixel_values")
        except (RuntimeError, TypeError, ValueError, AttributeError):
            return False
        return isinstance(values, Tensor) and values.requires_grad

    def check_gradient(self, media: Media) -> None:
        """Raise ``T2XError``, before anything runs, if a gradient is asked for that can't come."""
        if wants_gradient(media) and not self.differentiable:
            raise T2XError(
                f"{self.key} gives no gradient: its {type(self.processor.image_processor).__name__}"
                " does not pass one; load the processor with backend='torchvision', or score under "
                "torch.no_grad()"
            )

    # ---- texts ----------------------------------------------------------------------------------

    def token(self, word: str) -> int:
        """The one token that ``word`` is as an answer; ``T2XError`` if it is several."""
        ids = self.tokenizer(word, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise T2XError(
                f"the answer {word!r} is {len(ids)} tokens for {self.key}; give one that is a "
                "single token"
            )
        return int(ids[0])

    def spellings(self, words: Sequence[str]) -> tuple[int, ...]:
        """Tokens of those spellings that are a single one, each token once; ``T2XError`` if none
        is.
        """
        lengths = [self.tokenizer(w, add_special_tokens=False)["input_ids"] for w in words]
        found = tuple(dict.fromkeys(int(ids[0]) for ids in lengths if len(ids) == 1))
        if not found:
            raise T2XError(
                f"none of the answers {', '.join(map(repr, words))} is a single token for "
                f"{self.key}; give spellings that are"
            )
        return found

    @cached_property
    def takes_pairs(self) -> bool:
        """Whether a question may be about two pictures: the template has a place for each."""
        if not self.has_template:
            return False
        one, two = (self.chat("a", pictures=n) for n in (1, 2))
        place = str(getattr(self.processor, "image_token", "<image>"))
        return 0 < 2 * one.count(place) == two.count(place)

    def chat(self, question: str, *, pictures: int = 1) -> str:
        """One user turn, the pictures and then the question, up to where the answer begins.

        The thought that a template opens is closed at once, since answers are read at their first
        token.
        """
        if not self.has_template:
            return question
        content: list[dict[str, str]] = [{"type": "image"} for _ in range(pictures)]
        content.append({"type": "text", "text": question})
        turns = [{"role": "user", "content": content}]
        text = str(
            self.processor.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        )
        return f"{text.rstrip()}\n\n</think>\n\n" if text.rstrip().endswith(_THOUGHT) else text

    def plain(self, prompt: str, *, one_line: bool = True) -> str:
        """Text without control tokens: a space behind their first letter makes them text. Blanks
        and line breaks become one blank each, unless ``one_line`` is false.
        """
        special = {str(t) for t in self.tokenizer.added_tokens_decoder.values() if t.special}
        special |= set(self.tokenizer.all_special_tokens)
        special.add(str(getattr(self.processor, "image_token", "<image>")))
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
        prompt = " ".join(prompt.split()) if one_line else prompt
        for token in sorted(special, key=len, reverse=True):
            if len(token) > 1:
                prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return prompt

    def is_longer(self, prompt: str, limit: int) -> bool:
        """Whether a prompt has more than ``limit`` tokens."""
        return len(self._ids(self.plain(prompt))) > limit

    def fitted(self, prompts: Sequence[str], limit: int) -> list[str]:
        """Prompts as plain text, cut on the right to ``limit`` tokens each; cuts are logged."""
        plain = [self.plain(p) for p in prompts]
        ids = [self._ids(p) for p in plain]
        if cut := sum(len(i) > limit for i in ids):
            log.warning(
                "%s: %d of %d prompts exceed %d tokens and are cut",
                self.key,
                cut,
                len(plain),
                limit,
            )
        return [
            p if len(i) <= limit else self.plain(self.tokenizer.decode(i[:limit]).rstrip("\ufffd"))
            for p, i in zip(plain, ids, strict=True)
        ]

    def _ids(self, text: str, *, special: bool = False) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=special, verbose=False)[
            "input_ids"
        ]
        return ids

    # ---- answers --------------------------------------------------------------------------------

    def first_logits(
        self, texts: Sequence[str], pictures: Sequence[Tensor] | None = None
    ) -> Tensor:
        """Logits of the token after each of N texts about N pictures (3, H, W): (N, V)."""
        inputs = self.inputs(texts, pictures)
        if self.is_encoder_decoder:
            any_token = torch.zeros(len(texts), 1, dtype=torch.long, device=self.model.device)
            with frozen(self.model):
                first: Tensor = self.model(**inputs, labels=any_token).logits[:, 0]
            return first
        last = inputs["attention_mask"].sum(1, keepdim=True) - 1 - self._closes  # (N, 1)
        return self._logits_at(inputs, last)[:, 0]

    def answer_log_probs(
        self,
        texts: Sequence[str],
        answers: Sequence[str],
        pictures: Sequence[Tensor] | None,
        *,
        end: bool,
    ) -> tuple[Tensor, Tensor]:
        """log P of each token of N given answers, (N, T), and which places hold one, (N, T) bool.

        ``end`` and padding as in :meth:`answer_logits`; padded columns are 0.
        """
        logits, labels = self.answer_logits(texts, answers, pictures, end=end)
        return token_log_probabilities(logits, labels), labels >= 0

    def answer_logits(
        self,
        texts: Sequence[str],
        answers: Sequence[str],
        pictures: Sequence[Tensor] | None,
        *,
        end: bool,
    ) -> tuple[Tensor, Tensor]:
        """Logits from which each token of N given answers would come, (N, T, V), and those tokens,
        (N, T), below 0 beyond an answer's length.

        With ``end`` one end token belongs to every answer, else none, whatever the tokenizer adds
        by itself.
        """
        if self.is_encoder_decoder:
            return self._decoded_logits(texts, answers, pictures, end)
        closes = self._closes
        stop = self.tokenizer.eos_token if end and not closes else ""
        joint = [f"{t}{a}{stop}" for t, a in zip(texts, answers, strict=True)]
        inputs = self.inputs(joint, pictures)
        device = inputs["input_ids"].device
        lengths, tails = [], []
        for text, whole in zip(texts, joint, strict=True):
            before, ids = self._ids(text, special=True), self._ids(whole, special=True)
            begin = _common(before[: len(before) - closes], ids)
            tails.append(len(ids) - begin)
            lengths.append(len(ids) - begin - (closes and not end))
        attended = inputs["attention_mask"].sum(1, keepdim=True)  # (N, 1)
        length = torch.tensor(lengths, device=device).unsqueeze(1)
        steps = torch.arange(max(lengths), device=device)
        counted = steps < length  # (N, T)
        places = attended - torch.tensor(tails, device=device).unsqueeze(1) + steps
        places = torch.where(counted, places, attended - 1)
        labels = inputs["input_ids"].gather(1, places).masked_fill(~counted, _NO_LABEL)
        return self._logits_at(inputs, places - 1), labels

    def _decoded_logits(
        self, texts: Sequence[str], answers: Sequence[str], pictures: Any, end: bool
    ) -> tuple[Tensor, Tensor]:
        stop = [self.tokenizer.eos_token_id] if end else []
        rows = [torch.tensor(self._ids(a) + stop) for a in answers]
        labels = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=_NO_LABEL)
        labels = labels.to(self.model.device)
        with frozen(self.model):
            logits: Tensor = self.model(**self.inputs(texts, pictures), labels=labels).logits
        return logits, labels

    @torch.no_grad()
    def write(
        self, texts: Sequence[str], pictures: Sequence[Shown] | None, *, max_new_tokens: int
    ) -> list[str]:
        """What the model answers, greedily: the same text at every call, without special tokens.
        Of ``pictures``, an item may be several, one for each place in its text.
        """
        inputs = self.inputs(texts, pictures, padding_side="left")
        with frozen(self.model):
            output = self.model.generate(
                **inputs,
                do_sample=False,
                num_beams=1,
                repetition_penalty=1.0,
                temperature=None,
                top_p=None,
                top_k=None,
                max_new_tokens=max_new_tokens,
                pad_token_id=self.tokenizer.pad_token_id,
            )
        if not self.is_encoder_decoder:
            output = output[:, inputs["input_ids"].shape[1] :]
        return [t.strip() for t in self.tokenizer.batch_decode(output, skip_special_tokens=True)]

    # ---- inputs ---------------------------------------------------------------------------------

    @cached_property
    def _closes(self) -> int:
        """How many end tokens the tokenizer puts behind every text by itself, none or one."""
        return int(self._ids("a", special=True)[-1:] == [self.tokenizer.eos_token_id])

    def _pixels(self, pictures: Sequence[Sequence[Tensor]]) -> Any:
        return self.processor.image_processor(
            images=[list(row) for row in pictures], do_rescale=False, return_tensors="pt"
        )

    def inputs(
        self,
        texts: Sequence[str],
        pictures: Sequence[Shown] | None,
        *,
        padding_side: str = "right",
    ) -> Any:
        """What the model takes, on its device and in its dtype: texts padded on ``padding_side``,
        pictures (3, H, W), one or several a text, through the processor's tensor path.
        """
        shared = {"padding": True, "padding_side": padding_side, "return_tensors": "pt"}
        if pictures is None:
            inputs = self.processor(text=list(texts), **shared)
        else:
            shown = [[p] if isinstance(p, Tensor) else list(p) for p in pictures]
            images = [[p.detach() for p in row] for row in shown]
            inputs = self.processor(text=list(texts), images=images, do_rescale=False, **shared)
            if wants_gradient([p for row in shown for p in row]):
                # The same pixels again: the processor as a whole can't handle tensors with a graph.
                inputs.update(self._pixels(shown))
        inputs = inputs.to(self.model.device)
        for name, value in inputs.items():
            if isinstance(value, Tensor) and value.is_floating_point():
                inputs[name] = value.to(self.model.dtype)
        return inputs

    def _logits_at(self, inputs: Any, places: Tensor) -> Tensor:
        """Logits at some places (N, T) of each row, the others not computed: (N, T, V)."""
        kept, where = torch.unique(places, return_inverse=True)
        with frozen(self.model):
            logits = self.model(**inputs, logits_to_keep=kept, use_cache=False).logits
        if logits.shape[1] != len(kept):  # a model that does not know the argument
            logits = logits[:, kept]
        rows = torch.arange(len(places), device=where.device).unsqueeze(1)
        picked: Tensor = logits[rows, where]
        return picked


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Length of the common beginning: the last piece of a text may merge with what follows."""
    pairs = zip(first, second, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def load_vlm(
    source: str | Path | Sequence[Any],
    *,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> Vlm:
    """Load an embedded name, a local folder, a hub id ``owner/model`` or a ``(model, processor)``.

    The same source and device give the same object for as long as somebody holds it. A loaded
    object stays where and as it is unless ``device`` or ``dtype`` say otherwise; others go to the
    best device, in float32 on a CPU, the embedded one everywhere, and as they were saved elsewhere.
    Raises ``T2XError`` for a source that can't be loaded.
    """
    objects = loaded_objects(source, what="vision-language model", forms=PROCESSOR_FORMS)
    if objects is not None:
        model, processor = objects
        key = f"objects {id(model)} {id(processor)}"
        return Vlm(move_loaded(model, device, dtype), processor, key=key)
    name, place = str(source), present_device(device)
    number = torch.float32 if dtype is None and name in EMBEDDED else loading_dtype(dtype, place)
    label = (name, f"{place} {number}")
    if (found := _loaded.get(label)) is not None:
        return found
    folder = str(require_model(name)) if name in EMBEDDED else name
    vlm = Vlm(*_from_pretrained(folder, place, number), key=" ".join(label))
    _loaded[label] = vlm
    return vlm


def _from_pretrained(
    folder: str, device: torch.device, dtype: torch.dtype | str
) -> tuple[Any, Any]:
    from transformers import AutoModelForImageTextToText, AutoProcessor

    with reading(folder, "the vision-language model"):
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=dtype)
        processor = AutoProcessor.from_pretrained(folder)
    return model.requires_grad_(False).to(device), processor
