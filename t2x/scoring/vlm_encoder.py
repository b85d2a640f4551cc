"""Encoders over a vision-language model: what it answers first, how likely it finds a given answer,
and what it says to yes/no questions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.errors import T2XError
from t2x.functional.answers import answer_log_odds
from t2x.scoring.vlm import Vlm

if TYPE_CHECKING:
    from t2x.types import Context, Media

__all__ = [
    "NO",
    "YES",
    "AnswerEncoder",
    "Ask",
    "Question",
    "QuestionEncoder",
    "VlmEncoder",
    "ask_all",
]

YES = ("Yes", "yes", " Yes", " yes")
NO = ("No", "no", " No", " no")
_FALLBACK_MEAN = 0.5


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
        self.vlm.check_gradient(media)
        texts = [self._asked(p) for p in self.vlm.fitted(prompts, self.max_prompt_tokens)]
        pictures = [item.reshape(item.shape[-3:]) for item in media]
        rows = [
            self.vlm.first_logits(texts[part], pictures[part])
            for part in _slices(texts, self.batch_size)
        ]
        return {"logits": torch.cat(rows)}

    def truncated(self, prompts: Sequence[str]) -> list[bool]:
        """Whether each prompt is too long to be read whole."""
        return [self.vlm.is_longer(p, self.max_prompt_tokens) for p in prompts]

    def text(self, prompt: str) -> str:
        """The whole input for ``prompt``, as the chat template writes it."""
        return self._asked(self.vlm.fitted([prompt], self.max_prompt_tokens)[0])

    def _asked(self, plain: str) -> str:
        return self.vlm.chat(self.question.replace("{prompt}", plain))


class AnswerEncoder:
    """How likely a :class:`Vlm` finds a given answer to a question about each picture.

    Of ``question`` and ``answer`` one holds ``{prompt}``. Features, T the longest answer's tokens:
    ``log_probs`` (N, T), ``counted`` (N, T) bool; with ``prior``, ``prior`` (N, T): the same for a
    picture of the model's mean colour, of the same size. With ``end`` the answer's end token is
    counted, once.
    """

    def __init__(
        self,
        vlm: Vlm,
        question: str,
        answer: str,
        *,
        end: bool,
        prior: bool = False,
        max_prompt_tokens: int = 256,
        batch_size: int = 8,
    ) -> None:
        if (question + answer).count("{prompt}") != 1:
            raise T2XError(
                f"question and answer must hold {{prompt}} once, got {question!r}, {answer!r}"
            )
        self.vlm, self.question, self.answer = vlm, question, answer
        self.end, self.prior = end, prior
        self.max_prompt_tokens, self.batch_size = max_prompt_tokens, batch_size
        self.key = f"{vlm.key} {max_prompt_tokens} {question} {answer} {end} {prior}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"log_probs"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Read N answers about N pictures."""
        self.vlm.check_gradient(media)
        plain = self.vlm.fitted(prompts, self.max_prompt_tokens)
        pictures = [item.reshape(item.shape[-3:]) for item in media]
        found = [
            self._read(plain[rows], pictures[rows]) for rows in _slices(plain, self.batch_size)
        ]
        width = max(r["counted"].shape[1] for r in found)
        return {
            name: torch.cat([F.pad(r[name], (0, width - r[name].shape[1])) for r in found])
            for name in found[0]
        }

    def _read(self, prompts: Sequence[str], pictures: Sequence[Tensor]) -> dict[str, Tensor]:
        texts = [self.vlm.chat(self.question.replace("{prompt}", p)) for p in prompts]
        answers = [self.answer.replace("{prompt}", p) for p in prompts]
        log_probs, counted = self.vlm.answer_log_probs(texts, answers, pictures, end=self.end)
        features = {"log_probs": log_probs, "counted": counted}
        if self.prior:
            features["prior"] = self._without(texts, answers, pictures, log_probs.shape[1])
        return features

    @torch.no_grad()
    def _without(
        self, texts: Sequence[str], answers: Sequence[str], pictures: Sequence[Tensor], width: int
    ) -> Tensor:
        """The same for pictures that show nothing, each answer and size once."""
        keys = [(t, a, p.shape) for t, a, p in zip(texts, answers, pictures, strict=True)]
        unique = list(dict.fromkeys(keys))
        values, _ = self.vlm.answer_log_probs(
            [t for t, _, _ in unique],
            [a for _, a, _ in unique],
            [self._blank(pictures[keys.index(k)]) for k in unique],
            end=self.end,
        )
        values = F.pad(values, (0, width - values.shape[1]))
        return values[[unique.index(k) for k in keys]]

    def _blank(self, picture: Tensor) -> Tensor:
        mean = getattr(self.vlm.processor.image_processor, "image_mean", None)
        color = picture.new_tensor(mean if mean is not None else [_FALLBACK_MEAN] * 3)
        return color.view(3, 1, 1).expand(picture.shape)


@dataclass(frozen=True)
class Question:
    """A question with a short answer, and the spellings that count for it and against it."""

    text: str
    yes: tuple[str, ...] = YES
    no: tuple[str, ...] = NO


Ask = Callable[[str, Sequence[str]], Sequence[Question]]


class QuestionEncoder:
    """Asks a :class:`Vlm` some yes/no questions per prompt. Feature: ``log_odds`` (N, Q) of the
    answers that count for it against those that don't, NaN beyond a prompt's last question.

    ``ask`` gets the prompt as plain text and the sample's own questions (``Context.questions``),
    plain too. ``key`` tells one ``ask`` from another.
    """

    def __init__(
        self,
        vlm: Vlm,
        ask: Ask,
        *,
        key: Hashable,
        max_prompt_tokens: int = 256,
        batch_size: int = 32,
    ) -> None:
        self.vlm, self.ask = vlm, ask
        self.max_prompt_tokens, self.batch_size = max_prompt_tokens, batch_size
        self.key = f"{vlm.key} {max_prompt_tokens} {key!r}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"log_odds"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Ask about N pictures."""
        own = context.questions if context is not None and context.questions is not None else None
        if own is not None and len(own) != len(prompts):
            raise ValueError(
                f"Context.questions holds {len(own)} lists for {len(prompts)} prompts; give one "
                "list per sample"
            )
        plain = self.vlm.fitted(prompts, self.max_prompt_tokens)
        asked = [
            self.ask(p, self.vlm.fitted(own[i], self.max_prompt_tokens) if own is not None else ())
            for i, p in enumerate(plain)
        ]
        return {"log_odds": ask_all(self.vlm, asked, media, batch_size=self.batch_size)}


def ask_all(
    vlm: Vlm, asked: Sequence[Sequence[Question]], media: Media, *, batch_size: int = 32
) -> Tensor:
    """log P(yes) / P(no) for the questions about each of N pictures: (N, Q), NaN where a picture
    has fewer than Q. Differentiable in ``media``.
    """
    vlm.check_gradient(media)
    flat = [(i, q) for i, questions in enumerate(asked) for q in questions]
    found: list[Tensor] = []
    for rows in _slices(flat, batch_size):
        part = flat[rows]
        pictures = [media[i].reshape(media[i].shape[-3:]) for i, _ in part]
        logits = vlm.first_logits([vlm.chat(q.text) for _, q in part], pictures)
        found += [
            answer_log_odds(row[None], vlm.spellings(q.yes), vlm.spellings(q.no))
            for row, (_, q) in zip(logits, part, strict=True)
        ]
    width = max((len(q) for q in asked), default=0)
    answers = torch.cat(found) if found else torch.zeros(0, device=vlm.model.device)
    table = answers.new_full((len(asked), width), torch.nan)
    rows_of = torch.tensor([i for i, _ in flat], device=table.device, dtype=torch.long)
    columns = [c for questions in asked for c in range(len(questions))]
    place = (rows_of, torch.tensor(columns, device=table.device, dtype=torch.long))
    return table.index_put(place, answers)


def _slices(rows: Sequence[object], size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, len(rows), size)]
