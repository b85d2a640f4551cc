"""Protect, rewrite, restore, check: accept a proposal or give the user's own words back and say
why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from t2x.errors import T2XError
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
from t2x.prompts.forms import content_words
from t2x.prompts.negations import dropped
from t2x.prompts.protect import Protected, protect
from t2x.prompts.shorten import shortened, user_first
from t2x.types import Check, Rewrite, Rewriter, Status

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = ["MAX_CHARACTERS", "Guarded"]

# Longer prompts come back as they are: no encoder reads so much, and checks take time.
MAX_CHARACTERS = 10_000


class Guarded:
    """Wraps any rewriter so that what it returns is safe to draw.

    Syntax and quoted text leave the prompt before the rewriter sees it and return byte for byte. A
    proposal that fails a check is *reverted*: ``text`` is the user's prompt (without the marks of
    ``<rewrite:...>``, which no generator knows) and ``checks`` hold the reason; ``raw`` keeps what
    the model wrote. An accepted rewrite keeps its negative prompt and its scores; those of several
    regions are named ``region1/NAME``, and so on.

    Args:
        rewriter: what proposes.
        checks: functions of ``t2x.prompts.checks``, in order; all run and all are reported.
        budget: token limits of the generator; counts go into ``Rewrite.scores`` as
            ``tokens/ENCODER`` and ``limit/ENCODER``. A rewrite that no encoder reads to its end
            loses whole clauses, added ones first, and a check named ``shortened`` tells which.
        similarity: meaning of two texts compared, in [0, 1]; a second chance for rewrites that
            share few words with the prompt.
        domain: how the rewriter's world calls things, read before a translation is taken for a
            loss; None is the rewriter's own attribute ``domain``, if it has one.
        negatives: whether the generator takes a negative prompt; None is unknown. What the user
            ruled out and a rewrite leaves out moves to ``Rewrite.negative``, unless this is False:
            then the text has to say it, and a rewriter's own negative prompt is left out.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        *,
        checks: Sequence[CheckFunction] = DEFAULT_CHECKS,
        budget: TokenBudget | None = None,
        similarity: Callable[[str, str], float] | None = None,
        domain: Domain | None = None,
        negatives: bool | None = None,
    ) -> None:
        self.rewriter = rewriter
        self.model_id = rewriter.model_id
        self._checks = tuple(checks)
        self.budget = budget
        self.negatives = negatives
        self._similarity = similarity
        own: Domain = getattr(rewriter, "domain", FREE_ENGLISH)
        self._domain = domain or own

    def within(self, budget: TokenBudget | None, *, negatives: bool | None = None) -> Self:
        """Give the same guard with the token limits of another generator, and whether that takes a
        negative prompt.
        """
        changed = copy(self)
        changed.budget, changed.negatives = budget, negatives
        return changed

    def rewrite(
        self,
        prompts: Sequence[str],
        *,
        pictures: Media | Sequence[Any] | None = None,
        num_generations: int = 1,
        seed: int = 0,
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` judged rewrites for each of B prompts: B lists of G.

        ``pictures``, one per prompt, are for a rewriter that looks at them
        (``t2x.rewriters.vision``).
        """
        if isinstance(prompts, str):
            raise TypeError("prompts is one string; give a list of strings")
        prompts = list(prompts)  # a generator can be read once only
        for prompt in prompts:
            if not isinstance(prompt, str):
                raise TypeError(f"a prompt is a string, given {type(prompt).__name__}")
        protected = [
            protect(p) if len(p) <= MAX_CHARACTERS else Protected(p, (p,)) for p in prompts
        ]
        seen = _places(pictures, len(protected))  # equal texts about two pictures are two
        sources = list(
            dict.fromkeys((s, i) for p, i in zip(protected, seen, strict=True) for s in p.sources)
        )
        options: dict[str, Any] = {"num_generations": num_generations, "seed": seed}
        if pictures is not None:
            options["pictures"] = [pictures[i] for _, i in sources]
        found = self.rewriter.rewrite([text for text, _ in sources], **options)
        answers = dict(zip(sources, found, strict=True))
        return [
            [
                self._judge(p, [answers[s, i][g] for s in p.sources], seed)
                for g in range(num_generations)
            ]
            for p, i in zip(protected, seen, strict=True)
        ]

    def judge(self, prompt: str, parts: Sequence[Rewrite], *, seed: int = 0) -> Rewrite:
        """Judge what somebody else proposes for a prompt: one part for each of its regions
        (``t2x.prompts.protect.Protected.sources``), in the words that a rewriter sees."""
        return self._judge(protect(prompt), list(parts), seed)

    def _judge(self, protected: Protected, parts: list[Rewrite], seed: int) -> Rewrite:
        original = protected.original
        base = Rewrite(
            original,
            protected.unmarked,
            reasoning="\n".join(p.reasoning for p in parts if p.reasoning),
            seed=seed,
            model_id=self.model_id,
            raw="\n".join(p.raw for p in parts if p.raw),
        )
        if not parts:
            reason = "nothing to rewrite" if original.strip() else "the prompt is empty"
            if len(original) > MAX_CHARACTERS:
                reason = f"{len(original)} characters are too many; at most {MAX_CHARACTERS}"
            return self._give_back(base, "unchanged", (Check("input", False, reason),))
        before = tuple(c for part in parts for c in part.checks)
        if any(part.status == "failed" for part in parts):
            return self._give_back(
                base, "failed", before or (Check("completion", False, "no answer"),)
            )
        answers = [
            p.original if says_the_same(p.original, a) else a
            for p, a in zip(parts, map(_one_paragraph, parts), strict=True)
        ]
        negative = self._negative(parts, answers)
        if all(p.original == a for p, a in zip(parts, answers, strict=True)) and not negative:
            return self._give_back(
                base, "unchanged", (*before, Check("content_added", False, "adds nothing"))
            )
        answers, short = self._within_budget(protected, answers)
        text = protected.restore(answers)
        checks = (*before, *self._run(protected, answers, text=text, negative=negative), *short)
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

    def _within_budget(
        self, protected: Protected, answers: list[str]
    ) -> tuple[list[str], tuple[Check, ...]]:
        """Leave out what the rewriter added until an encoder sees all, and put the user's content
        first for those that don't; a check tells what was left out.
        """
        budget = self.budget
        if budget is None or not budget.lost(protected.restore(answers)):
            return answers, ()
        fitted = list(answers)
        out: list[str] = []
        for at, source in reversed([*enumerate(protected.sources)]):

            def fits(answer: str, at: int = at) -> bool:
                return budget.fits(protected.restore([*fitted[:at], answer, *fitted[at + 1 :]]))

            fitted[at], left_out = shortened(fitted[at], source, fits)
            out += left_out
        if len(fitted) == 1 and budget.lost(protected.restore(fitted)):
            fitted = [_user_first(fitted[0], protected, budget)]
        if not out:
            return fitted, ()
        counts = "; ".join(f"{c.encoder} reads {c.limit} tokens" for c in budget.count(""))
        note = f"left out: {'; '.join(map(repr, out))} ({counts})"
        return fitted, (Check("shortened", True, note),)

    def _negative(self, parts: list[Rewrite], answers: list[str]) -> str:
        """The rewriter's negative prompts and what its texts no longer rule out; nothing for a
        generator that takes none.
        """
        if self.negatives is False:
            return ""
        found = [p.negative for p in parts if p.negative.strip()]
        if self._domain.differs is None:  # in a closed world, leaving out is ruling out
            said = " ".join(found)
            moved = (dropped(p.original, a) for p, a in zip(parts, answers, strict=True))
            found += [word for words in moved for word in words if word not in said]
        return ", ".join(dict.fromkeys(found))

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


def _places(pictures: Any, number: int) -> Sequence[int]:
    """Which picture belongs to which prompt; without pictures, the same to all."""
    if pictures is None:
        return [0] * number
    if len(pictures) != number:
        raise T2XError(f"{number} prompts but {len(pictures)} pictures; give one per prompt")
    return range(number)


def _user_first(answer: str, protected: Protected, budget: TokenBudget) -> str:
    """The answer in another order if encoders then cut less of what the user said."""
    source = protected.sources[0]
    wanted = set(content_words(source))

    def unseen(text: str) -> int:
        return sum(len(wanted & set(content_words(cut))) for cut in budget.lost(text))

    other = user_first(answer, source)
    better = unseen(protected.restore([other])) < unseen(protected.restore([answer]))
    return other if better else answer


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
