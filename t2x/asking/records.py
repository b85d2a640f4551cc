"""What questions, answers and intents are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = [
    "DOESNT_MATTER",
    "MOST_OPTIONS",
    "SOMETHING_ELSE",
    "Answer",
    "Feature",
    "Intent",
    "Known",
    "Option",
    "Question",
    "Subject",
]

DOESNT_MATTER = "doesn't matter"
SOMETHING_ELSE = "something else"
MOST_OPTIONS = 4  # pictures in a row


@dataclass(frozen=True)
class Intent:
    """One complete idea of the picture: a value for each feature, None where it leaves one open,
    and how much it weighs (0 or more; weights need not sum to 1)."""

    values: Mapping[str, str | None]
    weight: float = 1.0


@dataclass(frozen=True)
class Option:
    """What one picture of a row stands for: a ``label`` of a few words, and the values of the
    feature that it covers (several, where the label is a kind of thing, like "an animal")."""

    label: str
    values: frozenset[str]


@dataclass(frozen=True)
class Feature:
    """What a question can be about.

    ``key`` names the feature in the values of intents, ``family`` all features of its sort
    ("colour"), whose influence on the picture is alike. ``question`` is for people. ``rest`` are
    values that are possible and in no option: behind "something else".
    """

    key: str
    family: str
    question: str
    options: tuple[Option, ...]
    rest: frozenset[str] = frozenset()

    @property
    def answers(self) -> tuple[str, ...]:
        """What can be answered, in order: the options, "something else" if there is more, and
        "doesn't matter"."""
        labels = tuple(option.label for option in self.options)
        return (*labels, *([SOMETHING_ELSE] if self.rest else []), DOESNT_MATTER)

    def answer_of(self, intent: Intent) -> int:
        """The place in ``answers`` of what an intent answers."""
        value = intent.values.get(self.key)
        for at, option in enumerate(self.options):
            if value in option.values:
                return at
        return len(self.options) if value in self.rest else len(self.answers) - 1


@dataclass(frozen=True)
class Answer:
    """An answer to a feature: a label of its options, or one of the two that are always there."""

    key: str
    label: str


@dataclass(frozen=True)
class Known:
    """What answers have settled: the values that each feature may still have, and the features that
    don't matter."""

    allowed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()

    def after(self, feature: Feature, label: str) -> Known:
        """What is known once ``feature`` was answered with ``label``, one of its ``answers``."""
        if label == DOESNT_MATTER:
            return Known(self.allowed, self.closed | {feature.key})
        if label == SOMETHING_ELSE:
            return self.only(feature.key, feature.rest)
        (option,) = (option for option in feature.options if option.label == label)
        return self.only(feature.key, option.values)

    def only(self, key: str, values: frozenset[str]) -> Known:
        """With nothing but ``values`` for a feature."""
        return Known({**self.allowed, key: values}, self.closed)

    def value(self, key: str) -> str | None:
        """The one value that a feature has left; None if it has several, or was not asked."""
        values = self.allowed.get(key, frozenset())
        return next(iter(values)) if len(values) == 1 else None


@dataclass(frozen=True)
class Question:
    """A feature to ask about, with what made it the one.

    ``probabilities`` has a number for each of ``feature.answers``; ``gain`` is in nats,
    ``influence`` in units of what seeds change (NaN: not measured). ``texts`` are what the pictures
    were drawn from, all with ``seed``, one for each option; ``pictures`` is (O, 3, H, W) in [0, 1]
    or None without a generator.
    """

    number: int
    feature: Feature
    probabilities: tuple[float, ...]
    gain: float
    influence: float
    texts: tuple[str, ...] = ()
    seed: int = 0
    pictures: Media | None = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The question in words."""
        return self.feature.question

    @property
    def options(self) -> tuple[str, ...]:
        """Labels of the pictures."""
        return tuple(option.label for option in self.feature.options)

    @property
    def answers(self) -> tuple[str, ...]:
        """All that can be answered."""
        return self.feature.answers


class Subject(Protocol):
    """Knows what can be asked about one prompt. Pure: the same ``known`` gives the same."""

    @property
    def prompt(self) -> str:
        """The user's words."""
        ...

    @property
    def order(self) -> Sequence[str]:
        """Families, the most uncertain first: the order of a questionnaire that does not adapt."""
        ...

    def intents(self, known: Known) -> Sequence[Intent]:
        """Intents that agree with the prompt and with what is known."""
        ...

    def features(self, known: Known, intents: Sequence[Intent]) -> Sequence[Feature]:
        """Features that are open, each with two options or more."""
        ...

    def text(self, known: Known) -> str:
        """The prompt that says what is known."""
        ...
