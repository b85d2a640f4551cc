"""What every reward keeps, as a check that any reward can be put to; in a test of one's own:

    check_reward(MyReward(), ["a cat", "two dogs", "a bus"], pictures)

Each check raises ``AssertionError`` that names the rule which is broken.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from t2x.types import RewardModel

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Context

__all__ = ["check_gradient", "check_reward", "check_truncation"]

_ULPS = 16  # scores come out of sums of numbers that are larger than they are
_FINE = 1e-4  # of float64 differences


def check_reward(
    reward: RewardModel,
    prompts: Sequence[str],
    media: Tensor,
    *,
    context: Context | None = None,
    tolerance: float = 1e-5,
    step: float = 1e-3,
    slope_tolerance: float = 0.05,
) -> None:
    """Check ``reward`` on N >= 3 pairs, all of which it can measure, not all alike: media (N, 3, H,
    W) or (N, F, 3, H, W), float32 in [0, 1].

    - N pairs give (N,) float32 where the media are, within ``range``, for N = 0, 1 and more; two
      calls give the same bytes. Other numbers of prompts than of media, the two the wrong way round
      and a bare string are errors.
    - A batch equals its singles, in any order, as a tensor or a list, within ``tolerance`` (of the
      score if that is above 1).
    - Media hold floats in [0, 1]: bytes and 0..255 are errors; pixels that are not finite make
      their own score NaN and no other.
    - Unless a gradient is asked for, nothing is kept for one. A differentiable reward gives the
      gradient of its score to every sample (:func:`check_gradient`, with ``step`` and
      ``slope_tolerance``); another one refuses.
    """
    _has_attributes(reward)
    _Pairs(reward, prompts, media, context, tolerance).check()
    _refuses_what_it_should(reward, prompts, media, context)
    _marks_bad_pixels(reward, prompts, media, context, tolerance)
    _keeps_nothing(reward, prompts, media, context)
    if reward.differentiable:
        check_gradient(
            lambda x: reward.score(prompts, x, context=context),
            media,
            step=step,
            tolerance=slope_tolerance,
        )
    else:
        leaf = media.clone().requires_grad_()
        with _expected(Exception, "it claims no gradient, so asking for one is an error"):
            reward.score(prompts, leaf, context=context)


def check_gradient(
    values: Callable[[Tensor], Tensor],
    media: Tensor,
    *,
    step: float = 1e-6,
    tolerance: float = _FINE,
    directions: int = 3,
    seed: int = 0,
) -> float:
    """Check the gradient of ``values``, (N, ...) -> (N,), at ``media``: finite, not zero for any
    sample, and equal to central differences of ``step`` along random directions of deviation 1.

    The error of each sample's slope is relative to the norm of its gradient, which is how large a
    slope along such a direction is; the largest is given back. For float64; float32 needs steps
    about 1e-3 and a tolerance to match. What rounding of the scores alone can do to a difference is
    no error, but some sample must have a gradient far above that.
    """
    import torch

    leaf = media.detach().clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(values(leaf).sum(), leaf)
    norms = gradient.flatten(1).norm(dim=1).double()
    _require(bool(torch.isfinite(gradient).all()), "the gradient is not finite")
    _require(bool((norms > 0).all()), f"the gradient of a sample is zero: norms {norms.tolist()}")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        here = values(media.detach())
    rounding = (_ULPS * torch.finfo(here.dtype).eps / step * here.abs()).double()
    _require(
        bool((norms > 10 * rounding).any()),
        f"the scores are too coarse to tell a slope: gradients of {norms.tolist()}; take larger "
        "steps, or samples whose scores are further from the ends of the scale",
    )
    worst = 0.0
    for _ in range(directions):
        way = torch.randn(media.shape, generator=generator, dtype=media.dtype).to(media.device)
        with torch.no_grad():
            ahead, behind = (values(media.detach() + s * step * way).double() for s in (1, -1))
        slope = (gradient * way).flatten(1).sum(1).double()
        error = (((ahead - behind) / (2 * step) - slope).abs() - rounding).clamp(min=0) / norms
        worst = max(worst, float(error.max()))
    _require(
        worst <= tolerance,
        f"the gradient is not that of the score: off by {worst:.2g} of its norm, allowed is "
        f"{tolerance:g}",
    )
    return worst


def check_truncation(
    reward: RewardModel,
    media: Tensor,
    *,
    context: Context | None = None,
    word: str = "a",
    most: int = 512,
    tolerance: float = 1e-5,
) -> int:
    """Check that prompts which are too long are reported by a warning in the log, and that what is
    cut off is their end and nothing else: with one sample in ``media``, ever more repetitions of
    ``word``, one token long, score as the most that fit. Gives how many those are.

    A reward that loses the end token, or the question behind the prompt, scores something else.
    """

    def score(count: int) -> tuple[float, bool]:
        with _warnings() as found:
            value = reward.score([" ".join([word] * count)], media, context=context)
        return float(value), bool(found)

    _require(not score(1)[1], "a prompt of one word is reported as too long")
    _require(score(most)[1], f"a prompt of {most} words is cut, and no warning says so")
    fits, over = 1, most
    while over - fits > 1:
        middle = (fits + over) // 2
        fits, over = (fits, middle) if score(middle)[1] else (middle, over)
    expected = score(fits)[0]
    for count in (over, over + 1, most):
        value, reported = score(count)
        _require(reported, f"{count} words are cut, and no warning says so")
        _require(
            abs(value - expected) <= tolerance * max(1, abs(expected)),
            f"{fits} words fit and score {expected:.6g}, {count} score {value:.6g}: the cut takes "
            "more than the end of the prompt",
        )
    return fits


class _Pairs:
    """Rules about N pairs and their company."""

    def __init__(
        self,
        reward: RewardModel,
        prompts: Sequence[str],
        media: Tensor,
        context: Context | None,
        tolerance: float,
    ) -> None:
        _require(len(prompts) == len(media) >= 3, "give at least 3 prompts and as many media")
        self.reward, self.prompts, self.media = reward, list(prompts), media
        self.context, self.tolerance = context, tolerance

    def check(self) -> None:
        whole = self._score(range(len(self.prompts)))
        low, high = self.reward.range
        slack = self.tolerance * max(1, *(abs(b) for b in (low, high) if math.isfinite(b)), 1)
        _require(bool(whole.isfinite().all()), f"scores are not finite: {whole.tolist()}")
        _require(
            low - slack <= float(whole.min()) and float(whole.max()) <= high + slack,
            f"scores {whole.tolist()} leave the range {self.reward.range}",
        )
        _require(whole.unique().numel() > 1, f"all pairs score the same: {whole.tolist()}")
        again = self._score(range(len(self.prompts)))
        _require(whole.numpy(force=True).tobytes() == again.numpy(force=True).tobytes(),
                 f"two calls differ: {whole.tolist()}, {again.tolist()}")  # fmt: skip
        for i in range(len(self.prompts)):
            self._equal(self._score([i]), whole[[i]], f"pair {i} alone differs from the batch")
        order = [*range(1, len(self.prompts), 2), *range(0, len(self.prompts), 2)]
        self._equal(self._score(order), whole[order], "another order gives other scores")
        listed = self.reward.score(self.prompts, list(self.media.split(1)), context=self.context)
        self._equal(listed, whole, "a list of single samples differs from the tensor")
        self._score([])

    def _score(self, rows: Sequence[int]) -> Tensor:
        import torch

        from t2x.scoring.pairs import context_rows

        scores = self.reward.score(
            [self.prompts[i] for i in rows],
            self.media[list(rows)],
            context=context_rows(self.context, rows),
        )
        _require(
            tuple(scores.shape) == (len(rows),) and scores.dtype == torch.float32,
            f"{len(rows)} pairs give {tuple(scores.shape)} {scores.dtype}, not ({len(rows)},) "
            "float32",
        )
        _require(scores.device == self.media.device, "scores are not where the media are")
        return scores.detach()

    def _equal(self, got: Tensor, expected: Tensor, rule: str) -> None:
        error = (got.detach() - expected).abs() / expected.abs().clamp(min=1)
        _require(
            bool((error <= self.tolerance).all()),
            f"{rule}: {got.tolist()}, {expected.tolist()}, allowed is {self.tolerance:g}",
        )


def _has_attributes(reward: RewardModel) -> None:
    _require(isinstance(reward, RewardModel), "attributes of t2x.types.RewardModel are missing")
    _require(bool(reward.name and reward.scale), "name and scale are empty")
    _require(reward.modality in ("image", "video"), f"the modality is {reward.modality!r}")
    _require(reward.range[0] < reward.range[1], f"the range is {reward.range}")


def _refuses_what_it_should(
    reward: RewardModel, prompts: Sequence[str], media: Tensor, context: Context | None
) -> None:
    import torch

    wrong: list[tuple[Any, Any, str]] = [
        (prompts[:-1], media, "fewer prompts than media"),
        (prompts, media[:-1], "fewer media than prompts"),
        ("a" * len(media), media, "a bare string"),
        (media, prompts, "media in the place of prompts"),
        (prompts, (media * 255).to(torch.uint8), "bytes"),
        (prompts, media * 255, "pixels of 0 to 255"),
    ]
    for texts, items, what in wrong:
        with _expected((ValueError, TypeError), f"{what} must be a ValueError or TypeError"):
            reward.score(texts, items, context=context)


def _marks_bad_pixels(
    reward: RewardModel,
    prompts: Sequence[str],
    media: Tensor,
    context: Context | None,
    tolerance: float,
) -> None:
    import torch

    whole = reward.score(prompts, media, context=context).detach()
    broken = media.clone()
    broken[1, ..., 0, 0] = math.nan
    scores = reward.score(prompts, broken, context=context).detach()
    _require(math.isnan(float(scores[1])), "pixels that are not finite must score NaN")
    rest = torch.arange(len(prompts), device=scores.device) != 1
    error = (scores - whole)[rest].abs() / whole[rest].abs().clamp(min=1)
    _require(bool((error <= tolerance).all()), "one sample's bad pixels change other scores")


def _keeps_nothing(
    reward: RewardModel, prompts: Sequence[str], media: Tensor, context: Context | None
) -> None:
    """Neither for plain media, nor for a leaf under no_grad."""
    import torch

    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor.numel())
        return tensor

    leaf = media.clone().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        plain = reward.score(prompts, media, context=context)
        with torch.no_grad():
            quiet = reward.score(prompts, leaf, context=context)
    _require(
        not saved and not plain.requires_grad and not quiet.requires_grad,
        f"nobody asks for a gradient, and {sum(saved)} numbers are kept for one",
    )


@contextmanager
def _expected(kinds: type[Exception] | tuple[type[Exception], ...], rule: str) -> Iterator[None]:
    try:
        yield
    except kinds:
        return
    raise AssertionError(rule)


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Warnings that are logged meanwhile."""
    found: list[str] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    handler, root = Keeper(logging.WARNING), logging.getLogger()
    root.addHandler(handler)
    try:
        yield found
    finally:
        root.removeHandler(handler)


def _require(kept: bool, rule: str) -> None:
    if not kept:
        raise AssertionError(rule)
