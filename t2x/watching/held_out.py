"""Rewrites of fixed validation prompts by the policy as it is now, drawn and scored on fixed seeds.

Rewards here are others than the training's, so that what a policy gains by their faults does not
show; they are never the judge that the trained model is evaluated by. Texts are as users would get
them: checked, and given back where a check fails (``Guarded``). So a policy that breaks what it is
given falls to the score of the user's own words, which stand beside it (``gain``), and how often it
does so is counted (``violations``).

Of all prompts the same seeds: two measurements differ by the texts alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.generators.negatives import takes_negative
from t2x.prompts.checks import covered
from t2x.rewriters.completion import Completion, read
from t2x.search.evaluator import Evaluator, Order
from t2x.types import Generator

if TYPE_CHECKING:
    from t2x.rewriters.templates import Template
    from t2x.search.records import Shot
    from t2x.types import RewardModel, Rewrite, Rewriter

__all__ = ["HeldOut", "Measured", "undisturbed"]

Similarity = Callable[[str, str], float]


@dataclass(frozen=True)
class Measured:
    """One measurement: ``metrics`` by name, what each prompt became with its pictures, and the
    pictures of the user's ``own`` words."""

    metrics: dict[str, float]
    rewrites: list[Rewrite]
    shots: list[list[Shot]] = field(repr=False)
    own: list[list[Shot]] = field(repr=False)


class HeldOut:
    """Measures a policy on fixed prompts.

    Args:
        prompts: of the validation split.
        generator: what draws, or a function that gives it when it is first needed.
        rewards, weights: what scores, against the user's own prompt.
        pictures: seeds per prompt.
        seed: first of them, and seed of the texts.
        similarity: meaning of two texts compared, in [0, 1]; None is the share of the user's
            content words that are left.
        negative: negative prompt of every picture, behind a rewrite's own; left out, as in
            rollouts, for a generator that takes none.
    """

    def __init__(
        self,
        prompts: Sequence[str],
        generator: Generator | Callable[[], Generator],
        rewards: Sequence[RewardModel],
        *,
        weights: Mapping[str, float] | None = None,
        pictures: int = 1,
        seed: int = 0,
        similarity: Similarity | None = None,
        negative: str = "",
    ) -> None:
        if not prompts:
            raise T2XError("there are no held-out prompts; give data.validation")
        self.prompts = list(prompts)
        self.seeds = tuple(range(seed, seed + pictures))
        self.seed, self.negative = seed, negative
        self._given = generator
        self._rewards, self._weights = list(rewards), dict(weights or {})
        self._similarity: Similarity = similarity or covered
        self._own: list[list[Shot]] | None = None
        self._guard: Rewriter | None = None
        self._guarded: Any = None

    @cached_property
    def generator(self) -> Generator:
        """What draws."""
        return self._given if isinstance(self._given, Generator) else self._given()

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.generator, self._rewards, self._weights)

    def write(self, model: Any, tokenizer: Any, template: Template) -> list[Rewrite]:
        """Let the policy rewrite the prompts, greedily, and check what it says."""
        if self._guard is None or self._guarded is not model:
            self._guard, self._guarded = self._guard_for(model, tokenizer, template), model
        model.eval()
        return [row[0] for row in self._guard.rewrite(self.prompts, seed=self.seed)]

    def _guard_for(self, model: Any, tokenizer: Any, template: Template) -> Rewriter:
        from t2x.rewriters.language_model import LanguageModelRewriter
        from t2x.rewriters.loading import load_guarded

        bare = LanguageModelRewriter(model, tokenizer, template=template, model_id="policy")
        return load_guarded(bare, generator=self.generator)

    def measure(self, rewrites: Sequence[Rewrite], template: Template) -> Measured:
        """Draw and score what was written, and the user's own words beside it.

        Metrics: ``reward`` (weighted sum) and its ``NAME`` parts, means over prompts; ``gain`` over
        the user's own words, with its standard error over prompts ``gain_error``; ``similarity`` of
        the user's words with what the policy proposed, ``violations`` (a check failed), ``failed``
        (no answer), ``changed``, ``words``; ``missing`` (share of prompts without a score).
        """
        if self._own is None:
            self._own = self._shots([(p, "") for p in self.prompts])
        self._evaluator.clear()
        shots = self._shots([(r.text, r.negative) for r in rewrites])
        return Measured(
            _reward_metrics(self._own, shots) | self._text_metrics(rewrites, template),
            list(rewrites),
            shots,
            self._own,
        )

    def _shots(self, texts: Sequence[tuple[str, str]]) -> list[list[Shot]]:
        shared = self.negative if takes_negative(self.generator) else ""
        rows = [
            (prompt, text, ", ".join(filter(None, (own, shared))))
            for prompt, (text, own) in zip(self.prompts, texts, strict=True)
        ]
        orders = [Order(*row, seed) for row in rows for seed in self.seeds]
        flat = iter(self._evaluator.draw(orders))
        return [[next(flat) for _ in self.seeds] for _ in self.prompts]

    def _text_metrics(self, rewrites: Sequence[Rewrite], template: Template) -> dict[str, float]:
        said = [_proposal(r, template) for r in rewrites]
        known = [(r.original, text) for r, text in zip(rewrites, said, strict=True) if text]
        statuses = [r.status for r in rewrites]
        return {
            "similarity": _mean([self._similarity(*pair) for pair in known]),
            "violations": statuses.count("reverted") / len(rewrites),
            "failed": statuses.count("failed") / len(rewrites),
            "changed": statuses.count("accepted") / len(rewrites),
            "words": _mean([float(len(text.split())) for _, text in known]),
        }


def _proposal(rewrite: Rewrite, template: Template) -> str:
    """What the policy wrote, though a check may have given it back; "" where it gave no answer."""
    if rewrite.status == "failed":
        return ""
    if rewrite.status != "reverted":
        return rewrite.text
    return read(rewrite.original, Completion(rewrite.raw), template).text


def _reward_metrics(own: list[list[Shot]], shots: list[list[Shot]]) -> dict[str, float]:
    names = list(shots[0][0].scores)
    found = {n: _mean([_mean([s.scores[n] for s in row]) for row in shots]) for n in names}
    rewards = [_mean([s.score for s in row]) for row in shots]
    gains = [
        reward - _mean([s.score for s in row]) for reward, row in zip(rewards, own, strict=True)
    ]
    known = [g for g in gains if not math.isnan(g)]
    error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return found | {
        "reward": _mean(rewards),
        "gain": _mean(gains),
        "gain_error": error,
        "missing": sum(map(math.isnan, rewards)) / len(rewards),
    }


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Put a model's mode (training or not) and torch's random state back afterwards."""
    import torch

    training = model.training
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            model.train(training)


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return statistics.fmean(known) if known else math.nan
