"""A world in closed form: pictures show how many words a text has and how much noise a seed adds,
and a reward wants four words more than the user's own prompt has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from t2x.rewriters.completion import Completion
from t2x.rewriters.templates import Template
from t2x.rollouts.config import RolloutConfig
from t2x.rollouts.measuring import Measurer
from t2x.rollouts.reading import CompletionReader
from t2x.rollouts.rendering import Renderer
from t2x.rollouts.scorer import RolloutScorer
from t2x.scoring.ensemble import RewardEnsemble
from t2x.store import Store
from t2x.types import Context, Media

PROMPT = "two cats"
TEMPLATE = Template(require_answer=True)
STEP = 8 / 255  # of the red channel, per word


class Painter:
    """Red tells the number of words, blue the seed's noise. Keeps every call."""

    model_id = "painter"
    modality = "image"
    supports_negative = True

    def __init__(self, mark: str = "a") -> None:
        self.mark = mark
        self.calls: list[tuple[str, str, int]] = []

    def fingerprint(self) -> dict[str, Any]:
        return {"model_id": self.model_id, "mark": self.mark}

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        **options: Any,
    ) -> Media:
        negatives = negative or [""] * len(prompts)
        self.calls += zip(prompts, negatives, seeds, strict=True)
        media = torch.zeros(len(prompts), 3, 4, 4)
        for i, (text, seed) in enumerate(zip(prompts, seeds, strict=True)):
            media[i, 0] = STEP * len(text.split())
            media[i, 2] = seed % 5 / 255
        return media


class FourMore:
    """-|words seen - words of the prompt - 4|, less the seed's noise, times ``scale_by``; NaN for
    prompts that hold ``fails_on``."""

    scale = "words"
    range = (-math.inf, 0.0)
    modality = "image"
    differentiable = False

    def __init__(
        self,
        name: str = "four-more",
        *,
        scale_by: float = 1.0,
        noise: float = 0.0,
        fails_on: str | None = None,
    ) -> None:
        self.name, self.scale_by, self.noise, self.fails_on = name, scale_by, noise, fails_on

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        seen = torch.stack([m[0].mean() for m in media]) / STEP
        luck = torch.stack([m[2].mean() for m in media]) * 255
        wanted = torch.tensor([len(p.split()) + 4.0 for p in prompts])
        value = (-(seen - wanted).abs() - self.noise * luck) * self.scale_by
        lost = [self.fails_on is not None and self.fails_on in p for p in prompts]
        return value.masked_fill(torch.tensor(lost), math.nan)


def answer(text: str) -> Completion:
    """A completion in the right form."""
    return Completion(f"<think>plan</think><answer>{text}</answer>")


def make_scorer(
    *rewards: Any,
    combine: str = "sum",
    store: Store | None = None,
    painter: Painter | None = None,
    weights: dict[str, float] | None = None,
    **settings: Any,
) -> RolloutScorer:
    """A scorer over loaded objects."""
    rewards = rewards or (FourMore(),)
    settings = {"constant_after": 0} | settings
    measurer = Measurer(Renderer(painter or Painter()), RewardEnsemble(rewards), store=store)
    return RolloutScorer(
        measurer,
        CompletionReader(TEMPLATE),
        weights or {r.name: 1.0 for r in rewards},
        combine=combine,
        config=RolloutConfig(**settings),
    )


def score(scorer: RolloutScorer, completions: Sequence[Completion], seeds: Sequence[int] = (0, 1)):
    """Score completions of one prompt as one group."""
    number = len(completions)
    return scorer.score([PROMPT] * number, completions, seeds=[seeds] * number)
