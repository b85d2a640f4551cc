"""A subject whose features stand in a list and do not hang on each other: of free text, where no
prior of whole pictures is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from t2x.asking.records import MOST_OPTIONS, Feature, Intent, Known, Option

__all__ = ["Listed", "ListedFeature", "appended"]

_INTENTS = 512


def appended(text: str, value: str) -> str:
    """The text with ``value`` behind a comma."""
    return f"{text.rstrip(' .,;')}, {value}"


@dataclass(frozen=True)
class ListedFeature:
    """A feature with the odds of its values, and how a value is put into a text.

    ``odds`` are any positive numbers, the likeliest values first; ``silent`` is that of a picture
    where the feature is left open. ``write(text, value)`` gives the text that says so.
    """

    key: str
    question: str
    odds: Mapping[str, float]
    silent: float = 0.0
    family: str = ""
    write: Callable[[str, str], str] = field(default=appended, compare=False)


@dataclass(frozen=True)
class Listed:
    """The subject of ``prompt`` with ``listed`` features; ``seed`` settles the intents. Its texts
    are for a rewriter to put into good words, if there is one."""

    prompt: str
    listed: tuple[ListedFeature, ...]
    seed: int = 0
    needs_rewriter: bool = True

    @property
    def order(self) -> Sequence[str]:
        """Families by the entropy of their values, the most uncertain first."""
        import torch

        from t2x.functional.elicitation import expected_information_gain

        def entropy(item: ListedFeature) -> float:
            odds = torch.tensor([*item.odds.values(), item.silent], dtype=torch.float64)
            return float(expected_information_gain(odds))

        ranked = sorted(self.listed, key=lambda item: -entropy(item))
        return list(dict.fromkeys(item.family or item.key for item in ranked))

    def intents(self, known: Known) -> list[Intent]:
        """Intents drawn from the odds, feature by feature, within what is known."""
        rng = random.Random(f"listed {self.seed} {self.prompt}")
        columns = {item.key: self._column(item, known, rng) for item in self.listed}
        return [
            Intent({key: column[n] for key, column in columns.items()}) for n in range(_INTENTS)
        ]

    def _column(self, item: ListedFeature, known: Known, rng: random.Random) -> list[str | None]:
        allowed = known.allowed.get(item.key)
        odds: dict[str | None, float] = {
            v: p for v, p in item.odds.items() if allowed is None or v in allowed
        }
        if allowed is None:
            odds[None] = item.silent
        return rng.choices(list(odds), list(odds.values()), k=_INTENTS)

    def features(self, known: Known, intents: Sequence[Intent]) -> list[Feature]:
        """Features with two values or more left; behind four, the rest is "something else"."""
        found = []
        for item in self.listed:
            allowed = known.allowed.get(item.key, frozenset(item.odds))
            values = [v for v in item.odds if v in allowed]
            if item.key in known.closed or len(values) < 2:
                continue
            shown = values[: MOST_OPTIONS - (len(values) == MOST_OPTIONS + 1)]
            options = tuple(Option(v, frozenset((v,))) for v in shown)
            rest = frozenset(values[len(shown) :])
            found.append(Feature(item.key, item.family or item.key, item.question, options, rest))
        return found

    def text(self, known: Known) -> str:
        """The user's words with every settled value put in; of several that are left, the
        likeliest."""
        text = self.prompt.strip()
        for item in self.listed:
            allowed = known.allowed.get(item.key, frozenset())
            if value := next((v for v in item.odds if v in allowed), None):
                text = item.write(text, value)
        return text
