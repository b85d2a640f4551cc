"""Batches for teaching a vision-language model short answers, with HF's Trainer as it is.

A row is a question, with a picture or without one, and its answer. The loss is on the answer and
its end token alone. Texts are those that rewards ask in use (``t2x.scoring.vlm.Vlm.chat``), so that
a model meets in use what it met in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import loading_dtype, resolve_device
from t2x.errors import T2XError
from t2x.failures import reading
from t2x.scoring.vlm import Vlm
from t2x.scoring.vlm_encoder import ask_all
from t2x.training.picture_rows import AnsweredQuestion
from t2x.training.policy import stored_model

__all__ = ["AnswerCollator", "answer_odds", "load_trainable_vlm", "restore_vlm", "save_vlm"]

_NO_LABEL = -100


def load_trainable_vlm(source: str, *, dtype: Any = None) -> Vlm:
    """Load a copy that may be changed: ``t2x.scoring.vlm.load_vlm`` shares its objects with rewards
    and freezes them. Float32 unless ``dtype`` says otherwise, a torch dtype or a name.

    Raises T2XError for a source that can't be loaded, and for encoder-decoders.
    """
    from transformers import AutoModelForImageTextToText, AutoProcessor

    from t2x.world.weights import EMBEDDED, require_model

    folder = str(require_model(source)) if source in EMBEDDED else source
    number = loading_dtype(dtype or torch.float32, resolve_device(None))
    with reading(folder, "the vision-language model"):
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=number)
        processor = AutoProcessor.from_pretrained(folder)
    vlm = Vlm(model, processor, key=f"trained {source}")
    if vlm.is_encoder_decoder:
        raise T2XError(f"{source!r} is an encoder-decoder; give a chat model")
    return vlm


@dataclass(frozen=True)
class AnswerCollator:
    """Makes a batch of rows: ids and masks (N, T), pixels of the rows that have a picture, and
    ``labels`` (N, T), -100 wherever no answer is.

    Rows may mix questions about pictures and about words alone.
    """

    vlm: Vlm

    def __call__(self, rows: Sequence[AnsweredQuestion]) -> dict[str, Tensor]:
        tokenizer = self.vlm.tokenizer
        asked = [self._asked(row) for row in rows]
        texts = [f"{text}{row.answer}" for text, row in zip(asked, rows, strict=True)]
        closes = tokenizer.eos_token
        pictures = [row.picture for row in rows if row.picture is not None]
        options: dict[str, Any] = {"padding": True, "padding_side": "right", "return_tensors": "pt"}
        if pictures:
            options |= {"images": pictures, "do_rescale": False}
        batch = dict(self.vlm.processor(text=[t + closes for t in texts], **options))
        lengths = [
            len(tokenizer(t + closes, add_special_tokens=False)["input_ids"])
            - len(tokenizer(a, add_special_tokens=False)["input_ids"])
            for t, a in zip(texts, asked, strict=True)
        ]
        batch["labels"] = _answers_only(batch["input_ids"], batch["attention_mask"], lengths)
        return batch

    def _asked(self, row: AnsweredQuestion) -> str:
        return self.vlm.chat(row.question.text, pictures=int(row.picture is not None))


def _answers_only(ids: Tensor, mask: Tensor, lengths: Sequence[int]) -> Tensor:
    """The last ``lengths`` tokens of each row as labels, the others left out: (N, T)."""
    ends = mask.sum(1, keepdim=True)  # (N, 1)
    places = torch.arange(ids.shape[1]).unsqueeze(0)
    begins = ends - torch.tensor(lengths).unsqueeze(1)
    return torch.where((places >= begins) & (places < ends), ids, _NO_LABEL)


@torch.no_grad()
def answer_odds(vlm: Vlm, rows: Sequence[AnsweredQuestion], *, batch_size: int = 64) -> Tensor:
    """log P(for) / P(against) of the answers to questions about pictures: (N,), as key-point
    rewards read them."""
    pictures = [row.picture.unsqueeze(0) for row in rows if row.picture is not None]
    if len(pictures) != len(rows):
        raise ValueError(f"{len(rows) - len(pictures)} of {len(rows)} rows have no picture")
    asked = [[row.question] for row in rows]
    return ask_all(vlm, asked, pictures, batch_size=batch_size)[:, 0].float().cpu()


def restore_vlm(vlm: Vlm, checkpoint: str | None) -> str | None:
    """Put the weights of a Trainer's checkpoint into the model, and give the checkpoint back.

    HF's Trainer, when it resumes, reads them by the names that the model has in memory. Models
    whose names in files are others (LLaVA since transformers 5) get nothing from that but a
    warning, and would go on from their first weights. Adapters, whose names agree, are left to it.
    """
    if checkpoint is not None and not hasattr(vlm.model, "merge_and_unload"):
        saved = type(vlm.model).from_pretrained(checkpoint, dtype=vlm.model.dtype)
        vlm.model.load_state_dict(saved.state_dict())
    return checkpoint


def save_vlm(vlm: Vlm, folder: str | Path, *, half: bool = False) -> None:
    """Save a stock folder, adapters merged into the weights; ``half`` stores float16."""
    stored_model(vlm.model, half=half).save_pretrained(folder)
    vlm.processor.save_pretrained(folder)
