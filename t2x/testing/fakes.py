"""Closed-form stand-ins for whole models: what they give is known before they run."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2x.types import Context, Media, Modality, Rewrite

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["FakeGenerator", "FakeReward", "FakeRewriter"]


class FakeRewriter:
    """Rewriter that appends words chosen by prompt, seed and index; the same in any batch."""

    model_id = "fake-rewriter"

    def __init__(self, endings: Sequence[str] = ("in detail", "as a photo", "large")) -> None:
        self.endings = tuple(endings)

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` rewrites for each prompt, walking through the endings."""
        return [
            [self._rewrite(prompt, seed, index) for index in range(num_generations)]
            for prompt in prompts
        ]

    def _rewrite(self, prompt: str, seed: int, index: int) -> Rewrite:
        ending = self.endings[(_number(prompt, seed) + index) % len(self.endings)]
        return Rewrite(
            original=prompt, text=f"{prompt}, {ending}", seed=seed, model_id=self.model_id
        )


class FakeGenerator:
    """Generator of one plain colour per picture, decided by prompt, negative prompt and seed."""

    model_id = "fake-generator"

    def __init__(self, modality: Modality = "image", *, size: tuple[int, int] = (64, 64)) -> None:
        self.modality: Modality = modality
        self.size = size

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        size: tuple[int, int] | None = None,
        num_frames: int | None = None,
    ) -> Media:
        """Give (N, 3, H, W), or (N, F, 3, H, W) of equal frames, in steps of 1/255."""
        import torch

        negatives = negative or [""] * len(prompts)
        rows = zip(prompts, negatives, seeds, strict=True)
        numbers = [_number(f"{text}\0{without}", seed) for text, without, seed in rows]
        colours = torch.tensor([[n % 256, n // 256 % 256, n // 65536 % 256] for n in numbers])
        frames = [num_frames or 4] if self.modality == "video" else []
        height, width = size or self.size
        middle = [1] * len(frames)
        picture = colours.float().div(255).reshape(len(numbers), *middle, 3, 1, 1)
        return picture.expand(-1, *frames, 3, height, width).clone()


class FakeReward:
    """Reward that is the mean brightness of one channel; prompts that contain ``fails_on`` are
    NaN."""

    name = "fake-reward"
    scale = "mean brightness of a colour channel"
    range = (0.0, 1.0)
    differentiable = True

    def __init__(
        self, channel: int = 0, *, fails_on: str | None = None, modality: Modality = "image"
    ) -> None:
        self.channel = channel
        self.fails_on = fails_on
        self.modality: Modality = modality

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Give (N,) float32 with gradients to ``media``."""
        import torch

        from t2x.scoring.pairs import check_pairs, device_of, wants_gradient

        check_pairs(prompts, media, modality=self.modality, name=self.name)
        failed = [self.fails_on is not None and self.fails_on in p for p in prompts]
        with torch.set_grad_enabled(wants_gradient(media)):
            rows = [item[..., self.channel, :, :].float().mean() for item in media]
            scores = torch.stack(rows) if rows else torch.zeros(0, device=device_of(media))
            return scores.masked_fill(torch.tensor(failed, device=scores.device).bool(), math.nan)


def _number(text: str, seed: int) -> int:
    digest = hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big")
