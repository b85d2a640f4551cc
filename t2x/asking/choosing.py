"""Which of the open features is asked next."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from t2x.errors import UnknownNameError

if TYPE_CHECKING:
    from t2x.asking.records import Feature, Intent

__all__ = ["DEFAULT_STRATEGY", "STRATEGIES", "Candidate", "candidates", "check_strategy", "choose"]

# What decides: information gain times influence, gain alone, chance, a fixed order of families.
STRATEGIES = ("gain", "gain-alone", "random", "fixed")
DEFAULT_STRATEGY = "fixed"  # what won (`t2x eval ask`, docs/log.md)


@dataclass(frozen=True)
class Candidate:
    """A feature with the probabilities of its answers, and the gain in nats."""

    feature: Feature
    probabilities: tuple[float, ...]
    gain: float


def check_strategy(name: str) -> None:
    """Raise UnknownNameError for a strategy that is none."""
    if name not in STRATEGIES:
        raise UnknownNameError(f"unknown strategy {name!r}; allowed: {', '.join(STRATEGIES)}")


def candidates(features: Sequence[Feature], intents: Sequence[Intent]) -> list[Candidate]:
    """The features whose answer is not certain, the one that tells most first."""
    import torch

    from t2x.functional.elicitation import answer_distribution, expected_information_gain

    weights = torch.tensor([intent.weight for intent in intents], dtype=torch.float64)
    found = []
    for feature in features:
        answers = torch.tensor([feature.answer_of(intent) for intent in intents])
        p = answer_distribution(weights, answers, len(feature.answers))
        gain = float(expected_information_gain(p))
        if gain > 0:
            found.append(Candidate(feature, tuple(p.tolist()), gain))
    return sorted(found, key=lambda c: -c.gain)


def choose(
    strategy: str,
    found: Sequence[Candidate],
    *,
    influences: Mapping[str, float],
    order: Sequence[str],
    rng: random.Random,
) -> Candidate:
    """The candidate to ask; ``influences`` and ``order`` are of families. Of equals the first."""
    import torch

    from t2x.functional.elicitation import question_utility

    if strategy == "random":
        return rng.choice(sorted(found, key=lambda c: c.feature.key))
    if strategy == "fixed":
        return min(found, key=lambda c: (order.index(c.feature.family), c.feature.key))
    if strategy == "gain-alone":
        return max(found, key=lambda c: c.gain)
    known = [influences.get(c.feature.family, float("nan")) for c in found]
    gains = torch.tensor([c.gain for c in found], dtype=torch.float64)
    utility = question_utility(gains, torch.tensor(known, dtype=torch.float64))
    return found[int(utility.argmax())]
