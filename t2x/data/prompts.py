"""Which prompts go into a data set, and why the others do not.

A prompt that is too long is left out and never cut: what a policy is trained on must be what it is
asked in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from t2x.data.decontaminate import find_benchmark, prompt_key
from t2x.data.rows import text_length
from t2x.data.sources import Sourced
from t2x.errors import T2XError
from t2x.rollouts.reading import readable_text

__all__ = ["PromptRules", "Sieve"]


@dataclass(frozen=True)
class PromptRules:
    """What a prompt must be like.

    Args:
        min_words: least length, in words and marks (``t2x.data.rows.text_length``).
        max_words: greatest length; None is any.
        max_tokens: most tokens of the whole input, template included, by the policy's encoder that
            the ``Sieve`` is given; None is any.
        repeated: whether a prompt may come again (case and punctuation left aside).
        decontaminated: whether prompts of the public benchmarks are left out.
    """

    min_words: int = 1
    max_words: int | None = None
    max_tokens: int | None = None
    repeated: bool = False
    decontaminated: bool = True

    def __post_init__(self) -> None:
        for name in ("min_words", "max_words", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise T2XError(f"{name} is {value}; give at least 1, or leave it out")


class Sieve:
    """Lets prompts through that fit the rules, and counts the others in ``dropped`` by reason.

    ``count_tokens`` gives the length of a policy's whole input for a prompt.
    """

    def __init__(
        self, rules: PromptRules, *, count_tokens: Callable[[str], int] | None = None
    ) -> None:
        if rules.max_tokens is not None and count_tokens is None:
            raise T2XError("max_tokens counts those of a policy; say which, or give max_words")
        self.rules = rules
        self.dropped: Counter[str] = Counter()
        self._count = count_tokens
        self._seen: set[str] = set()
        self._elsewhere: set[str] = set()

    def exclude(self, prompts: Iterable[Sourced]) -> None:
        """Leave out these prompts from now on: they are in another set."""
        self._elsewhere.update(prompt_key(prompt.text) for prompt in prompts)

    def admit(self, prompts: Iterable[Sourced]) -> Iterator[Sourced]:
        """Give the prompts that fit, in order."""
        for prompt in prompts:
            if reason := prompt.problem or self._reason(prompt.text):
                self.dropped[reason] += 1
            else:
                yield prompt

    def _reason(self, text: str) -> str:
        if not text.strip():
            return "empty"
        rules = self.rules
        length = text_length(text)
        if length < rules.min_words:
            return "too short"
        if rules.max_words is not None and length > rules.max_words:
            return "too long"
        seen = readable_text(text)
        if seen is None:
            return "in several parts, or in none"
        if self._count is not None and rules.max_tokens and self._count(seen) > rules.max_tokens:
            return "too many tokens"
        if rules.decontaminated and (match := find_benchmark(text)):
            return f"{match.benchmark} ({match.kind})"
        key = prompt_key(text)
        if key in self._elsewhere:
            return "in the other file"
        if key in self._seen and not rules.repeated:
            return "repeated"
        self._seen.add(key)
        return ""
