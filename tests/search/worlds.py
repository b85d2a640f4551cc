"""Small worlds whose best prompt is known: pictures show how many of some words a text has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from t2x.rewriters.templates import GENERAL, Template
from t2x.types import Context, Media, Rewrite

PROMPT = "a red fox in the snow"
WORDS = ("high quality", "studio light", "sharp focus", "soft light")


class WordPainter:
    """Draws a plain picture, as red as the share of ``words`` that the text has; the seed is in the
    blue channel. Keeps every call."""

    model_id = "word-painter"
    modality = "image"

    def __init__(self, words: Sequence[str] = WORDS) -> None:
        self.words = words
        self.calls: list[tuple[str, int]] = []
        self.batches: list[int] = []

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        **options: Any,
    ) -> Media:
        self.calls += zip(prompts, seeds, strict=True)
        self.batches.append(len(prompts))
        media = torch.zeros(len(prompts), 3, 8, 8)
        for i, (text, seed) in enumerate(zip(prompts, seeds, strict=True)):
            media[i, 0] = self.share(text)
            media[i, 2] = seed % 251 / 255
        return media

    def share(self, text: str) -> float:
        return sum(word in text for word in self.words) / len(self.words)


class Redness:
    """Scores the red channel; NaN for prompts that hold ``fails_on``."""

    name = "redness"
    scale = "red"
    range = (0.0, 1.0)
    modality = "image"
    differentiable = True

    def __init__(self, fails_on: str | None = None) -> None:
        self.fails_on = fails_on
        self.prompts: list[str] = []

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> torch.Tensor:
        self.prompts += prompts
        red = torch.stack([item[..., 0, :, :].mean() for item in media])
        lost = torch.tensor([bool(self.fails_on and self.fails_on in p) for p in prompts])
        return red.masked_fill(lost, float("nan"))


class Endings:
    """Rewriter that appends one of ``endings`` to whatever it gets; generation g takes the g-th."""

    model_id = "endings"

    def __init__(self, endings: Sequence[str] = ("in detail", *WORDS[:2])) -> None:
        self.endings = endings
        self.asked: list[tuple[str, int]] = []

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        self.asked += [(prompt, num_generations) for prompt in prompts]
        return [
            [self._one(p, self.endings[g % len(self.endings)]) for g in range(num_generations)]
            for p in prompts
        ]

    def _one(self, prompt: str, ending: str) -> Rewrite:
        return Rewrite(prompt, f"{prompt}, {ending}", model_id=self.model_id)


class Chat(Endings):
    """A rewriter that follows instructions: it does what ``do`` makes of (template, body)."""

    def __init__(self, do: Any, template: Template = GENERAL, told: list | None = None) -> None:
        super().__init__()
        self.do, self.template = do, template
        self.told: list[tuple[Template, str]] = [] if told is None else told

    def with_template(self, template: Template) -> Chat:
        return Chat(self.do, template, self.told)

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        self.told += [(self.template, prompt) for prompt in prompts]
        return [
            [Rewrite(p, self.do(self.template, p, g)) for g in range(num_generations)]
            for p in prompts
        ]


class Points:
    """Inspector that gives a key point for each of ``words``: 1 where the text of the picture had
    it. It can't see the text, so it reads the redness and calls the first words right."""

    name = "points"

    def __init__(self, words: Sequence[str] = WORDS) -> None:
        self.words = words
        self.looked = 0

    def details(self, prompts: Sequence[str], media: Media) -> list[dict[str, dict[str, float]]]:
        self.looked += len(prompts)
        counts = [round(float(item[0].mean()) * len(self.words)) for item in media]
        return [{"all": {w: float(i < n) for i, w in enumerate(self.words)}} for n in counts]
