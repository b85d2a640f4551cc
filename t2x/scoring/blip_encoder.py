"""A BLIP as an encoder: a text read beside its picture, and the two apart (Li et al. 2022, arXiv
2201.12086).

ImageReward and BLIP-ITM are heads over it. transformers' own classes hold the weights; pictures
take one tensor path that gives scores and gradients alike.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.failures import reading
from t2x.scoring.frozen import frozen
from t2x.scoring.resize import Preprocess

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = ["MAX_TOKENS", "BlipEncoder", "bert_tokenizer"]

log = logging.getLogger(__name__)
MAX_TOKENS = 35
"""Text positions in every retrieval and reward model of BLIP form, [CLS] and [SEP] included."""


class BlipEncoder:
    """``BlipVisionModel`` and ``BlipTextModel``, which stay as they are, with BERT's tokenizer.

    Features: ``fused`` (N, D), the state at [CLS] of a text that attends to its picture;
    ``image_embed`` and ``text_embed`` (N, E), projections of either tower alone, not normalised.
    The latter two need ``heads`` of these names; further ones are features of their own name, of
    ``fused``.

    BLIP's pretraining put the token [ENC] at position 0 of a text read beside a picture; both
    published inference codes leave [CLS] there, and so does this.
    """

    _EMBEDS = ("image_embed", "text_embed")

    def __init__(
        self,
        vision: Any,
        text: Any,
        tokenizer: Any,
        *,
        key: str,
        preprocess: Preprocess,
        heads: Mapping[str, Any] | None = None,
        max_tokens: int = MAX_TOKENS,
        batch_size: int = 16,
    ) -> None:
        self.vision = vision
        self.text = text
        self.heads = dict(heads or {})
        self.tokenizer = tokenizer
        self.key = key
        self.preprocess = preprocess
        self.max_tokens = max_tokens
        self.batch_size = batch_size
        rows = text.config.vocab_size
        if not rows - 2 <= len(tokenizer) <= rows:  # BLIP added [DEC] and [ENC] to BERT's
            raise T2XError(
                f"the tokenizer of {key} has {len(tokenizer)} tokens, its text tower {rows}; give "
                "the one that it was trained with, bert-base-uncased"
            )

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"fused"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Encode N pairs; truncation of prompts is logged as a warning."""
        self._report(prompts)
        wanted = [p for p in ("fused", *self._EMBEDS, *self._readings) if p in parts]
        rows: dict[str, list[Tensor]] = {name: [] for name in wanted}
        for start in range(0, len(prompts), self.batch_size):
            stop = start + self.batch_size
            with frozen(self.vision, self.text, *self.heads.values()):
                found = self._encode_batch(prompts[start:stop], media[start:stop], wanted)
            for name in wanted:
                rows[name].append(found[name])
        return {name: torch.cat(values) for name, values in rows.items()}

    def tokenize(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Ids and mask (N, ``max_tokens``), padded; cut on the right with [SEP] kept. Special
        tokens inside a prompt are plain text.
        """
        rows = self.tokenizer(
            [self._plain(p) for p in prompts],
            padding="max_length",
            truncation=True,
            max_length=self.max_tokens,
        )
        return torch.tensor(rows["input_ids"]), torch.tensor(rows["attention_mask"])

    def truncated(self, prompts: Sequence[str]) -> list[bool]:
        """Whether each prompt is longer than the text tower reads."""
        rows = self.tokenizer([self._plain(p) for p in prompts], verbose=False)["input_ids"]
        return [len(row) > self.max_tokens for row in rows]

    def _encode_batch(
        self, prompts: Sequence[str], media: Media, parts: Sequence[str]
    ) -> dict[str, Tensor]:
        weight = self.vision.embeddings.class_embedding
        found: dict[str, Tensor] = {}
        ids, mask = (x.to(weight.device) for x in self.tokenize(prompts))
        states = None
        readings = [name for name in self._readings if name in parts]
        fuses = "fused" in parts or bool(readings)
        if fuses or "image_embed" in parts:
            pixels = self.preprocess(media, dtype=weight.dtype).to(weight.device)
            states = self.vision(pixel_values=pixels).last_hidden_state  # (N, patches + 1, D)
        if fuses:
            found["fused"] = self._read(ids, mask, states)
            found |= {name: self.heads[name](found["fused"]) for name in readings}
        if "image_embed" in parts and states is not None:
            found["image_embed"] = self.heads["image_embed"](states[:, 0])
        if "text_embed" in parts:
            found["text_embed"] = self.heads["text_embed"](self._read(ids, mask, None))
        return found

    @property
    def _readings(self) -> list[str]:
        """Heads that read ``fused``."""
        return [name for name in self.heads if name not in self._EMBEDS]

    def _read(self, ids: Tensor, mask: Tensor, states: Tensor | None) -> Tensor:
        """State at position 0 of the text, which attends to ``states`` if they are given."""
        out = self.text(input_ids=ids, attention_mask=mask, encoder_hidden_states=states)
        first: Tensor = out.last_hidden_state[:, 0]
        return first

    def _report(self, prompts: Sequence[str]) -> None:
        if cut := sum(self.truncated(prompts)):
            log.warning(
                "%s: %d of %d prompts exceed %d tokens and are cut",
                self.key,
                cut,
                len(prompts),
                self.max_tokens,
            )

    def _plain(self, prompt: str) -> str:
        """The prompt without control tokens: a space behind their first letter makes them text."""
        prompt = prompt.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
        for token in self.tokenizer.all_special_tokens:
            prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return prompt


def bert_tokenizer(source: str | Path) -> Any:
    """Load BERT's tokenizer from a folder (``vocab.txt`` or ``tokenizer.json``) or a hub id.

    Raises ``T2XError`` if there is none.
    """
    from transformers import BertTokenizer

    files = ("vocab.txt", "tokenizer.json")
    advice = "give a folder with vocab.txt or tokenizer.json, or a hub id owner/model"
    kinds = (OSError, ValueError, TypeError)
    with reading(source, "a BERT tokenizer from", advice=advice, otherwise=kinds):
        if Path(source).is_dir() and not any((Path(source) / n).is_file() for n in files):
            raise OSError("the folder has neither file")  # transformers would give an empty one
        return BertTokenizer.from_pretrained(str(source))
