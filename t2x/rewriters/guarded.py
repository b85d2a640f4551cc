"""Protect, rewrite, restore, check: accept a proposal or give the user's own words back and say
why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Self

from t2x.prompts.budget import TokenBudget
from t2x.prompts.checks import (
    DEFAULT_CHECKS,
    FREE_ENGLISH,
    CheckFunction,
    Domain,
    Proposal,
    says_the_same,
    tidy,
)
from t2x.prompts.protect import Protected, protect
from t2x.types import Check, Rewrite, Rewriter, Status

__all__ = ["Guarded"]


class Guarded:
    """Wraps any rewriter so that what it returns is safe to draw.

    Syntax and quoted text leave the prompt before the rewriter sees it and return byte for byte. A
    proposal that fails a check is *reverted*: ``text`` is the user's prompt and ``checks`` hold the
    reason; ``raw`` keeps what the model wrote. An accepted rewrite keeps its negative prompt and
    its scores; those of several regions are named ``region1/NAME``, and so on.

    Args:
        rewriter: what proposes.
        checks: functions of ``t2x.prompts.checks``, in order; all run and all are reported.
        budget: token limits of the generator; counts go into ``Rewrite.scores`` as
            ``tokens/ENCODER`` and ``limit/ENCODER``.
        similarity: meaning of two texts compared, in [0, 1]; a second chance for rewrites that
            share few words with the prompt.
        domain: how the rewriter's world calls things, read before a translation is taken for a
            loss; None is the rewriter's own attribute ``domain``, if it has one.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        *,
        checks: Sequence[CheckFunction] = DEFAULT_CHECKS,
        budget: TokenBudget | None = None,
        similarity: Callable[[str, str], float] | None = None,
        domain: Domain | None = None,
    ) -> None:
        self.rewriter = rewriter
        self.model_id = rewriter.model_id
        self._checks = tuple(checks)
        self.budget = budget
        self._similarity = similarity
        own: Domain = getattr(rewriter, "domain", FREE_ENGLISH)
        self._domain = domain or own

    def within(self, budget: TokenBudget | None) -> Self:
        """Give the same guard with the token limits of another generator."""
        changed = copy(self)
        changed.budget = budget
        return changed

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` judged rewrites for each of B prompts: B lists of G."""
        if isinstance(prompts, str):
            raise TypeError("prompts is one string; give a list of strings")
        prompts = list(prompts)  # a generator can be read once only
        for prompt in prompts:
            if not isinstance(prompt, str):
                raise TypeError(f"a prompt is a string, given {type(prompt).__name__}")
        protected = [protect(prompt) for prompt in prompts]
        sources = list(dict.fromkeys(s for p in protected for s in p.sources))
        found = self.rewriter.rewrite(sources, num_generations=num_generations, seed=seed)
        answers = dict(zip(sources, found, strict=True))
        return [
            [
                self._judge(p, [answers[s][g] for s in p.sources], seed)
                for g in range(num_generations)
            ]
            for p in protected
        ]

    def judge(self, prompt: str, parts: Sequence[Rewrite], *, seed: int = 0) -> Rewrite:
        """Judge what somebody else proposes for a prompt: one part for each of its regions
        (``t2x.prompts.protect.Protected.sources``), in the words that a rewriter sees."""
        return self._judge(protect(prompt), list(parts), seed)

    def _judge(self, protected: Protected, parts: list[Rewrite], seed: int) -> Rewrite:
        original = protected.original
        base = Rewrite(
            original,
            original,
            reasoning="\n".join(p.reasoning for p in parts if p.reasoning),
            seed=seed,
            model_id=self.model_id,
            raw="\n".join(p.raw for p in parts if p.raw),
        )
        if not parts:
            reason = "nothing to rewrite" if original.strip() else "the prompt is empty"
            return self._give_back(base, "unchanged", (Check("input", False, reason),))
        before = tuple(c for part in parts for c in part.checks)
        if any(part.status == "failed" for part in parts):
            return self._give_back(
                base, "failed", before or (Check("completion", False, "no answer"),)
            )
        answers = [_one_paragraph(part) for part in parts]
        negative = ", ".join(dict.fromkeys(p.negative for p in parts if p.negative.strip()))
        same = all(says_the_same(p.original, a) for p, a in zip(parts, answers, strict=True))
        if same and not negative:
            return self._give_back(
                base, "unchanged", (*before, Check("content_added", False, "adds nothing"))
            )
        text = protected.restore(answers)
        checks = (*before, *self._run(protected, answers, text=text, negative=negative))
        if all(check.passed for check in checks):
            return replace(
                base,
                text=text,
                negative=negative,
                status="accepted",
                checks=checks,
                scores=_scores(parts) | self._counts(text),
            )
        return self._give_back(base, "reverted", checks)

    def _run(
        self, protected: Protected, answers: list[str], *, text: str, negative: str
    ) -> Iterator[Check]:
        proposal = Proposal(
            original=protected.original,
            text=text,
            source="\n".join(protected.sources),
            answer="\n".join(answers),
            protected=protected,
            negative=negative,
            budget=self.budget,
            similarity=self._similarity,
            domain=self._domain,
        )
        for check in self._checks:
            yield check(proposal)

    def _give_back(self, base: Rewrite, status: Status, checks: tuple[Check, ...]) -> Rewrite:
        """The user's own words; if the generator will cut them, a last check says so."""
        counts = self.budget.count(base.text) if self.budget is not None else ()
        if counts and all(c.truncated for c in counts):
            checks = (*checks, Check("original_fits_budget", False, "; ".join(map(str, counts))))
        return replace(base, status=status, checks=checks, scores=self._counts(base.text))

    def _counts(self, text: str) -> dict[str, float]:
        counts = self.budget.count(text) if self.budget is not None else ()
        used = {f"tokens/{c.encoder}": float(c.used) for c in counts}
        return used | {f"limit/{c.encoder}": float(c.limit) for c in counts}


def _scores(parts: list[Rewrite]) -> dict[str, float]:
    if len(parts) == 1:
        return dict(parts[0].scores)
    numbered = enumerate((part.scores for part in parts), 1)
    return {f"region{i}/{name}": value for i, own in numbered for name, value in own.items()}


def _one_paragraph(part: Rewrite) -> str:
    """The answer without line breaks that the user didn't make and without doubled commas."""
    text = part.text if "\n" in part.original else _join_lines(part.text)
    return tidy(text)


def _join_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    prose = len(lines) > 1 and not any(
        line[0] in "-*#\u2022" or line[:2].rstrip(".)").isdigit() for line in lines
    )
    return " ".join(lines) if prose else text
