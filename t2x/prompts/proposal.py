"""What a check looks at: a rewrite before it is judged, and how its world calls things."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from t2x.prompts import constraints as rules
from t2x.prompts.budget import TokenBudget
from t2x.prompts.constraints import Constraints
from t2x.prompts.protect import Protected
from t2x.types import Check

__all__ = ["FREE_ENGLISH", "CheckFunction", "Domain", "Proposal", "verdict"]


@dataclass(frozen=True)
class Domain:
    """How the world of a rewriter calls things.

    ``canonical`` puts known synonyms and descriptions into plain words; ``things`` lists what a
    canonical text names that must not get lost, by the whole name of each: "hot dog", not "dog".
    ``differs`` compares prompt and answer as whole scenes and says in which point they disagree;
    "" if in none, or if one of them can't be read. A domain with it is a closed world: what a text
    leaves out is not drawn, so that leaving out keeps a negation, and its own reading of numbers,
    colours and places stands in for that of free text.
    """

    canonical: Callable[[str], str] = str
    things: Callable[[str], Sequence[str]] = field(default=lambda _: ())
    differs: Callable[[str, str], str] | None = None


FREE_ENGLISH = Domain()  # no closed world: texts are read by t2x.prompts.preserved


@dataclass(frozen=True)
class Proposal:
    """A rewrite before it is judged.

    ``original`` and ``text`` are whole prompts with their syntax; ``source`` and ``answer`` are
    what the model saw and wrote, without it; ``negative`` is the negative prompt that goes with it.
    ``budget`` counts tokens for the generator;
    ``similarity`` compares meaning, in [0, 1].
    """

    original: str
    text: str
    source: str
    answer: str
    protected: Protected
    negative: str = ""
    budget: TokenBudget | None = None
    similarity: Callable[[str, str], float] | None = None
    domain: Domain = FREE_ENGLISH

    @cached_property
    def constraints(self) -> Constraints:
        """What the user fixed, read from ``source`` in canonical words."""
        return rules.extract(self.meant)

    @cached_property
    def meant(self) -> str:
        """``source`` in canonical words."""
        return self.domain.canonical(self.source)

    @property
    def closed_world(self) -> bool:
        """Whether the domain reads whole scenes itself."""
        return self.domain.differs is not None


CheckFunction = Callable[[Proposal], Check]


def verdict(name: str, reasons: Iterable[str]) -> Check:
    """Give a check that fails for the first of ``reasons``, and passes without any."""
    reason = next(iter(reasons), "")
    return Check(name, not reason, reason)
