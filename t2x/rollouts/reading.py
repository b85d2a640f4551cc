"""Reads completions as use would: the same parser, the same checks, and no mercy.

What ``Guarded`` reverts at inference is a failure of the policy here; the user's own words that it
gives back are never scored in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.prompts.checks import DEFAULT_CHECKS, CheckFunction
from t2x.prompts.protect import protect
from t2x.rewriters.completion import Completion, answer
from t2x.rewriters.domain import domain_named
from t2x.rewriters.guarded import MAX_CHARACTERS, Guarded
from t2x.rewriters.identity import IdentityRewriter
from t2x.rewriters.templates import Template
from t2x.rollouts.records import Kind
from t2x.types import Rewrite

if TYPE_CHECKING:
    from t2x.types import Generator

__all__ = ["CompletionReader", "policy_text", "readable_text"]


def policy_text(prompt: str) -> str:
    """What a policy gets to see of a user's prompt: the words without syntax and quoted text.

    Raises T2XError for a prompt that a rewriter would see in none or in several pieces (``BREAK``,
    ``<rewrite:...>``): one completion can't answer it.
    """
    sources = protect(prompt).sources if len(prompt) <= MAX_CHARACTERS else ()
    if len(sources) != 1:
        raise T2XError(
            f"the prompt {prompt[:60]!r} has {len(sources)} parts to rewrite, and a completion "
            "answers one; leave it out of the training set"
        )
    return sources[0]


def readable_text(prompt: str) -> str | None:
    """``policy_text`` of a prompt that one completion can answer, None for any other."""
    try:
        text = policy_text(prompt)
    except T2XError:
        return None
    return text if text.strip() else None


class CompletionReader:
    """Makes of completions what the rewriter in use would make of them.

    Args:
        template: that of the policy, which says how its answers are read.
        generator: name, folder, hub id or loaded, whose token limits a rewrite must fit and that
            takes a negative prompt or not; None knows no limits.
        checks: see ``Guarded``; None is ``DEFAULT_CHECKS``. Can be pickled if these can.
    """

    def __init__(
        self,
        template: Template,
        *,
        generator: str | Path | Generator | None = None,
        checks: Sequence[CheckFunction] | None = None,
    ) -> None:
        from t2x.generators.negatives import takes_negative
        from t2x.generators.tokenizers import token_budget

        self.template = template
        self._checks = checks
        self._budget = None if generator is None else token_budget(generator)
        self._negatives = None if generator is None else takes_negative(generator)

    @cached_property
    def guard(self) -> Guarded:
        """What checks a rewrite in use."""
        return Guarded(
            IdentityRewriter(),
            checks=DEFAULT_CHECKS if self._checks is None else self._checks,
            budget=self._budget,
            domain=domain_named(self.template.domain),
            negatives=self._negatives,
        )

    def read(self, original: str, completion: Completion, *, seed: int = 0) -> tuple[Kind, Rewrite]:
        """Read one completion for a user's prompt, and say what kind it is.

        T2XError for a prompt that is in several parts (``policy_text``).
        """
        part = answer(
            policy_text(original), completion, self.template, seed=seed, model_id="policy"
        )
        rewrite = self.guard.judge(original, [part], seed=seed)
        return _kind(rewrite, completion), rewrite

    def unchanged(self, original: str) -> str:
        """The text that is drawn for a prompt left as it is."""
        return protect(original).unmarked

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "guard"}  # it holds closures


def _kind(rewrite: Rewrite, completion: Completion) -> Kind:
    if completion.truncated:
        return "truncated"
    if rewrite.status == "failed":
        return "failed"
    return "broken" if rewrite.status == "reverted" else "rewrite"
