"""Best-of-N: the user's own words and as many answers of the rewriter as the budget allows; the
reward chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from t2x.search.evaluator import Inspector
from t2x.search.records import Proposal, Track
from t2x.search.writer import Ask, Writer

__all__ = ["BestOfN"]

ROUNDS = 2  # requests, since a rewriter that repeats itself has nothing new to say the third time


class BestOfN:
    """Draws every answer that says something new, and once more asks for those that did not."""

    name = "best-of-n"
    inspector: Inspector | None = None

    def propose(self, tracks: Sequence[Track], writer: Writer) -> list[list[Proposal]]:
        """The next answers of the rewriter, as many as pictures are left."""
        open_ = [t for t in tracks if t.turn <= ROUNDS]
        asks = [Ask(t, t.sources, self.width(t)) for t in open_]
        answers = iter(writer.ask(asks))
        return [next(answers) if t.turn <= ROUNDS else [] for t in tracks]

    def width(self, track: Track) -> int:
        """All that are left."""
        return track.left

    def settings(self) -> dict[str, Any]:
        """None of its own."""
        return {}
