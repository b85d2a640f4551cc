"""The contract's checks pass what keeps it, and name the rule that each broken reward breaks."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.scoring.pairs import check_pairs, finite, measurable, wants_gradient
from t2x.testing import FakeReward, check_gradient, check_reward, check_truncation
from t2x.types import Context, Media

PROMPTS = ["a", "b", "c", "d"]
WEIGHT = torch.linspace(0.1, 1, 192).view(3, 8, 8)


class Brightness:
    """A small reward that keeps every rule; ``change`` breaks one, on scores and pictures."""

    name = "brightness"
    modality = "image"
    scale = "weighted mean"
    range = (0.0, 1.0)
    differentiable = True

    def __init__(self, change: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        self.change = change

    def values(self, media: Tensor) -> Tensor:
        return (media * WEIGHT).mean((1, 2, 3)) + 0.1 * (media**2).mean((1, 2, 3))

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        check_pairs(prompts, media)
        if len(prompts) == 0:
            return torch.zeros(0)
        x = torch.cat(media) if isinstance(media, list) else media
        with torch.set_grad_enabled(wants_gradient(media)):
            scores = self.values(finite(x))
            good = measurable(prompts, media, needs_text=False)
            scores = torch.where(good, scores, torch.full_like(scores, math.nan))
            return scores if self.change is None else self.change(scores, x)


@pytest.fixture
def media() -> Tensor:
    return 0.1 + 0.8 * torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def test_a_reward_that_keeps_the_contract_passes(media: Tensor) -> None:
    check_reward(Brightness(), PROMPTS, media)
    assert check_gradient(Brightness().values, media.double()) < 1e-8


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda s, x: s.unsqueeze(1), r"4 pairs give \(4, 1\)"),
        (lambda s, x: s.squeeze(), r"1 pairs give \(\)"),
        (lambda s, x: s.repeat(len(s)), r"4 pairs give \(16,\)"),
        (lambda s, x: s.double(), "float64, not"),
        (lambda s, x: s + 3, "leave the range"),
        (lambda s, x: s * 0, "score the same"),
        (lambda s, x: s + 1e-3 * torch.rand(len(s)), "two calls differ"),
        (lambda s, x: s[:1] + 1e-3 * torch.arange(len(s)), "alone differs from the batch"),
        (lambda s, x: s / s.max(), "alone differs from the batch"),
        (lambda s, x: s - 1e-3 * torch.arange(len(s)) * (len(s) > 1), "alone|another order"),
        (lambda s, x: s.nan_to_num(0.0), "must score NaN"),
        (lambda s, x: s.detach().requires_grad_(), "kept for one"),
        (lambda s, x: s.detach() + 0 * x.sum((1, 2, 3)), "gradient of a sample is zero"),
        (lambda s, x: s.detach() + (s - s.detach()) * 2, "not that of the score"),
        (lambda s, x: s + (s - s.detach()) * math.inf, "not finite"),
    ],
)
def test_each_broken_rule_is_named(
    change: Callable[[Tensor, Tensor], Tensor], rule: str, media: Tensor
) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_reward(Brightness(change), PROMPTS, media)


def test_a_graph_that_is_kept_inside_is_found(media: Tensor) -> None:
    weight = torch.ones(1, requires_grad=True)

    def leaky(scores: Tensor, x: Tensor) -> Tensor:
        with torch.enable_grad():
            return (scores * weight).detach()

    with pytest.raises(AssertionError, match="numbers are kept"):
        check_reward(Brightness(leaky), PROMPTS, media)


class Careless(Brightness):
    """Takes anything: it pairs what there is."""

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        n = min(len(prompts), len(media))
        return super().score(list(prompts)[:n], media[:n])


class Bytes(Brightness):
    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        if isinstance(media, Tensor) and media.dtype == torch.uint8:
            media = media / 255
        return super().score(prompts, media)


class Silent(Brightness):
    """Claims no gradient and gives none, without a word."""

    differentiable = False

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        with torch.no_grad():
            return super().score(prompts, media)


@pytest.mark.parametrize(
    ("reward", "rule"),
    [
        (Careless(), "fewer prompts than media"),
        (Bytes(), "bytes must be"),
        (Silent(), "asking for one is an error"),
    ],
)
def test_what_should_be_refused_and_is_not(reward: Any, rule: str, media: Tensor) -> None:
    with pytest.raises(AssertionError, match=rule):
        check_reward(reward, PROMPTS, media)


@pytest.mark.parametrize("modality", ["image", "video"])
def test_the_shipped_fake_keeps_it(modality: Any, media: Tensor) -> None:
    videos = media.unsqueeze(1).repeat(1, 2, 1, 1, 1)
    fake = FakeReward(modality=modality, fails_on="broken")
    check_reward(fake, PROMPTS, media if modality == "image" else videos)


def test_an_honest_refusal_passes(media: Tensor) -> None:
    class Refusing(Silent):
        def score(
            self, prompts: Sequence[str], media: Media, *, context: Context | None = None
        ) -> Tensor:
            check_pairs(prompts, media)
            if wants_gradient(media):
                raise T2XError("no gradient")
            return super().score(prompts, media)

    check_reward(Refusing(), PROMPTS, media)


class Reader(Brightness):
    """Reads up to ``limit`` words and the end behind them, as an encoder with an end token does."""

    def __init__(self, limit: int, *, end: bool = True, report: bool = True) -> None:
        super().__init__()
        self.limit, self.end, self.report = limit, end, report

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        words = [[*p.split(), "END"] for p in prompts]
        if self.report and any(len(w) > self.limit + 1 for w in words):
            logging.getLogger("reader").warning("cut")
        kept = [[*w[: self.limit], "END"] if self.end else w[: self.limit + 1] for w in words]
        return torch.tensor([len(k) / 100 + 0.1 * (k[-1] == "END") for k in kept])


def test_truncation_keeps_the_end_and_is_reported(media: Tensor) -> None:
    assert check_truncation(Reader(75), media[:1]) == 75
    with pytest.raises(AssertionError, match="takes more than the end"):
        check_truncation(Reader(75, end=False), media[:1])
    with pytest.raises(AssertionError, match="no warning says so"):
        check_truncation(Reader(75, report=False), media[:1])
    with pytest.raises(AssertionError, match="one word is reported"):
        check_truncation(Reader(0), media[:1])


def test_a_context_goes_with_its_samples(media: Tensor) -> None:
    """Singles and other orders get their own rows of it, and what holds for all of them."""

    class Compared(Brightness):
        def score(
            self, prompts: Sequence[str], media: Media, *, context: Context | None = None
        ) -> Tensor:
            assert context is not None and context.fps == 8
            source, user = context.source, context.user
            assert isinstance(source, Tensor) and user is not None and len(user) == len(source)
            if len(prompts) != len(source):
                raise ValueError("mismatch")
            return super().score(prompts, media) - super().score(prompts, source)

    context = Context(source=media.flip(0) * 0.5, user=["a", "b", "c", "d"], fps=8)
    check_reward(Compared(), PROMPTS, media, context=context)
