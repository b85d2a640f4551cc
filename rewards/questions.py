"""VQA reward of RewardFlow (arXiv 2604.08536): questions about what the prompt asks for, each with
its right answer, which may be "no".

    reward = t2x.load_reward("questions")                       # emoji-vlm
    reward = t2x.load_reward("questions", source="owner/model") # any chat model with pictures
    reward.score(prompts, pictures)                             # questions made from the prompts
    reward.score(prompts, pictures, context=Context(questions=[["Is it red?"]], answers=[["no"]]))
    reward.details(prompts, pictures)[0]                        # {"Is there a cat?": 0.93, ...}

Per question: log-probability of the right answer, per token, less ``weight`` times what its logit
is short of leading its best rival by ``margin`` (``margin_reward`` of ``t2x.functional.answers``,
where the sign is checked). Differs from the paper: questions come from rules, or from ``read``, any
reader; its question writer was not published. Spellings of an answer are added. Not run on real
weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.answers import answer_terms, margin_reward
from t2x.guidance.primitives import Primitive, Primitives, read_prompt
from t2x.guidance.questions import EMOJI, GENERAL, Probe, Wording, probes
from t2x.scoring.reward import EncoderReward, Features, encode_all
from t2x.scoring.vlm import Vlm, load_vlm
from t2x.scoring.vlm_encoder import NO, YES
from t2x.world.key_points import knows_emoji
from t2x.world.primitives import emoji_primitives

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality

__all__ = ["OVERALL", "Answered", "ProbeEncoder", "QuestionReward", "load"]

OVERALL = 'Does this figure show "{prompt}"? Please answer yes or no.'
_SPELLINGS = {"yes": YES, "no": NO}
_Row = tuple[int, int, str, tuple[str, ...]]  # sample, column, question, spellings of the answer


class Answered(NamedTuple):
    """Questions of N samples, and the leads (N, Q) of their right answers, detached: above 0 is
    answered right.
    """

    probes: list[list[Probe]]
    leads: Tensor


class ProbeEncoder:
    """Asks a :class:`Vlm` questions with known answers. Features (N, Q), NaN beyond a sample's last
    question: ``log_probs`` of the right answers, per token; ``leads`` of their logits over the best
    rival, the least of an answer's tokens.

    ``last`` is what the last call asked and was answered.
    """

    def __init__(
        self,
        vlm: Vlm,
        ask: Callable[[str], Sequence[Probe]],
        *,
        key: str,
        max_prompt_tokens: int,
        batch_size: int,
    ) -> None:
        self.vlm, self.ask = vlm, ask
        self.max_prompt_tokens, self.batch_size = max_prompt_tokens, batch_size
        self.key = f"{vlm.key} {max_prompt_tokens} probes of {key}"
        self.last: Answered | None = None

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"log_probs"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Ask about N pictures."""
        self.vlm.check_gradient(media)
        asked = self.asked(prompts, context)
        rows = [
            (i, column, probe.text, _spelled(probe.answer))
            for i, own in enumerate(asked)
            for column, probe in enumerate(own)
        ]
        pictures = [item.reshape(item.shape[-3:]) for item in media]
        width = max((len(own) for own in asked), default=0)
        found = [self._answers(part, pictures) for part in self._batches(rows)]
        columns = zip(*found, strict=True)
        tables = [self._table(rows, values, len(asked), width) for values in columns]
        if not tables:
            tables = [torch.full((len(asked), 0), math.nan, device=self.vlm.model.device)] * 2
        self.last = Answered(asked, tables[1].detach())
        return dict(zip(("log_probs", "leads"), tables, strict=True))

    def asked(self, prompts: Sequence[str], context: Context | None = None) -> list[list[Probe]]:
        """The questions of each sample: those of the context, else those made from its prompt.

        Raises ``ValueError`` if the context holds them for another number of samples, or other
        numbers of answers than of questions.
        """
        questions = None if context is None else context.questions
        if context is None or questions is None:
            plain = self.vlm.fitted(prompts, self.max_prompt_tokens)
            return [self._made(p) for p in plain]
        answers = context.answers or [["yes"] * len(own) for own in questions]
        sizes = [len(own) for own in questions], [len(own) for own in answers]
        if len(questions) != len(prompts) or sizes[0] != sizes[1]:
            raise ValueError(
                f"Context.questions holds lists of {sizes[0]} and Context.answers of {sizes[1]} "
                f"for {len(prompts)} prompts; give one list per sample, an answer to each question"
            )
        about = Primitive("question")
        return [
            [Probe(q, a, about) for q, a in zip(*map(self._plain, row), strict=True)]
            for row in zip(questions, answers, strict=True)
        ]

    def _made(self, prompt: str) -> list[Probe]:
        found = [
            Probe(self.vlm.plain(p.text), self.vlm.plain(p.answer), p.about)
            for p in self.ask(prompt)
        ]
        overall = Probe(OVERALL.replace("{prompt}", prompt), "yes", Primitive("text", value=prompt))
        return found or [overall]

    def _plain(self, texts: Sequence[str]) -> list[str]:
        return self.vlm.fitted(texts, self.max_prompt_tokens)

    def _batches(self, rows: Sequence[_Row]) -> list[Sequence[_Row]]:
        return [rows[s : s + self.batch_size] for s in range(0, len(rows), self.batch_size)]

    def _answers(self, rows: Sequence[_Row], pictures: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """log-probabilities and leads of some rows, (M,) each."""
        texts = [self.vlm.chat(text) for _, _, text, _ in rows]
        shown = [pictures[i] for i, *_ in rows]
        single = [self._tokens(spellings) for *_, spellings in rows]
        if all(single):
            logits = self.vlm.first_logits(texts, shown).unsqueeze(1)  # (M, 1, V)
            right = torch.nn.utils.rnn.pad_sequence(
                [torch.tensor(ids) for ids in single], batch_first=True, padding_value=-1
            ).unsqueeze(1)
        else:  # answers of several tokens, as they are written first
            logits, labels = self.vlm.answer_logits(
                texts, [s[0] for *_, s in rows], shown, end=False
            )
            right = labels.unsqueeze(-1)
        right = right.to(logits.device)
        log_probs, leads = answer_terms(logits, right)
        return log_probs.sum(1) / (right[..., 0] >= 0).sum(1), leads.amin(1)

    def _tokens(self, spellings: tuple[str, ...]) -> tuple[int, ...]:
        try:
            return self.vlm.spellings(spellings)
        except T2XError:
            return ()

    @staticmethod
    def _table(rows: Sequence[_Row], values: Sequence[Tensor], height: int, width: int) -> Tensor:
        flat = torch.cat(list(values))
        place = torch.tensor([row[:2] for row in rows], device=flat.device)
        return flat.new_full((height, width), math.nan).index_put(tuple(place.T), flat)


class QuestionReward:
    """A ``RewardModel`` whose questions and answers can be looked at.

    For a policy: ``read`` finds the primitives of a prompt, and ``encoder.last`` tells which
    questions of the last call were answered right.
    """

    name = "questions"
    modality: Modality = "image"
    scale = "mean log-probability of the right answers, less what they lack of a margin"
    range = (-math.inf, 0.0)

    def __init__(
        self,
        encoder: ProbeEncoder,
        read: Callable[[str], Primitives],
        *,
        margin: float = 1.0,
        weight: float = 0.25,
    ) -> None:
        self.encoder, self.read = encoder, read
        self.differentiable = encoder.vlm.differentiable

        def head(features: Mapping[str, Features]) -> Tensor:
            vlm = features["vlm"]
            return margin_reward(vlm["log_probs"], vlm["leads"], margin=margin, weight=weight)

        self._reward = EncoderReward(
            name=self.name,
            encoders={"vlm": encoder},
            head=head,
            scale=self.scale,
            range=self.range,
            parts=frozenset({"text", "log_probs"}),
            differentiable=self.differentiable,
        )

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,) float32, at most 0; NaN for blank prompts and broken pixels."""
        return self._reward.score(prompts, media, context=context)

    def probes(self, prompts: Sequence[str], context: Context | None = None) -> list[list[Probe]]:
        """The questions that :meth:`score` asks of each sample, in the order of answering."""
        return self.encoder.asked(prompts, context)

    @torch.no_grad()
    def details(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> list[dict[str, float]]:
        """By question, the probability per token of its right answer, in [0, 1]."""
        features = encode_all([self._reward], prompts, media, context=context)
        values = features[self.encoder.key]["log_probs"].exp().tolist() if len(prompts) else []
        asked = self.probes(prompts, context)
        return [
            {p.text: v for p, v in zip(own, row, strict=False)}
            for own, row in zip(asked, values, strict=True)
        ]


def load(
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    *,
    read: Callable[[str], Primitives] | None = None,
    wording: Wording | None = None,
    margin: float = 1.0,
    weight: float = 0.25,
    max_prompt_tokens: int = 256,
    batch_size: int = 32,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> QuestionReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.vlm.load_vlm`.

    ``read`` finds a prompt's primitives and ``wording`` asks about them; by default rules, for
    emoji-vlm those of its world. A prompt without any is asked about as a whole. ``margin`` in
    units of logits and ``weight`` (lambda_m) are at least 0.

    Raises ``T2XError`` for a source that can't be loaded, a negative margin or weight, and, when a
    gradient is asked of a model whose image processor passes none, before it runs.
    """
    if margin < 0 or weight < 0:
        raise T2XError(f"margin is {margin} and weight {weight}; give 0 or more")
    vlm = load_vlm(source, device=device, dtype=dtype)
    emoji = knows_emoji(source)
    reader = read or (emoji_primitives if emoji else read_prompt)
    asking = wording if wording is not None else EMOJI if emoji else GENERAL

    def ask(prompt: str) -> Sequence[Probe]:
        return probes(reader(prompt), asking)

    encoder = ProbeEncoder(
        vlm,
        ask,
        key=f"{reader!r} {sorted(asking.items())}",
        max_prompt_tokens=max_prompt_tokens,
        batch_size=batch_size,
    )
    return QuestionReward(encoder, reader, margin=margin, weight=weight)


def _spelled(answer: str) -> tuple[str, ...]:
    """Spellings that count as one answer."""
    own = answer.strip()
    variants = (own, own.capitalize(), f" {own}", f" {own.capitalize()}")
    return _SPELLINGS.get(own.lower(), tuple(dict.fromkeys(variants)))
