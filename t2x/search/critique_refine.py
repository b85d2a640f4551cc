"""Generate, critique, refine (RationalRewards, arXiv 2604.11626): a vision-language model writes
what is wrong with the picture, and that goes into the next rewrite.

The best text so far is refined; a refinement that scores higher takes its place. A picture that the
critic finds nothing wrong with ends the refining, and the budget that is left confirms the leaders.

Differs from the paper: the critic and the rewriter are two models; refinements are drawn and have
to beat what they refine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from t2x.errors import T2XError
from t2x.search.evaluator import Inspector
from t2x.search.mending import mending_ask, mends
from t2x.search.records import Candidate, Proposal, Track
from t2x.search.writer import Ask, Writer

__all__ = ["CritiqueRefine"]


class CritiqueRefine:
    """Rounds of ``refinements`` of the best text, each told what the critic wrote.

    Args:
        critic: a reward whose ``details`` are texts, ``load_reward("critique")`` for instance.
        refinements: texts per round.
        content: score of a critique, 0 to 1, from which the picture is good enough.
    """

    name = "critique-refine"

    def __init__(self, critic: Inspector, *, refinements: int = 1, content: float = 1.0) -> None:
        if not hasattr(critic, "details"):
            raise T2XError(
                f"{type(critic).__name__} writes no critique; give a reward with details, "
                "load_reward('critique') for instance"
            )
        if refinements < 1:
            raise T2XError(f"refinements is {refinements}; give at least 1")
        self.inspector: Inspector | None = critic
        self.refinements, self.content = refinements, content

    def width(self, track: Track) -> int:
        """One rewrite to begin with, then ``refinements``."""
        return 1 if track.turn == 1 else self.refinements

    def settings(self) -> dict[str, Any]:
        """Sizes and the critic."""
        name = getattr(self.inspector, "name", type(self.inspector).__name__)
        return {"critic": name, "refinements": self.refinements, "content": self.content}

    def propose(self, tracks: Sequence[Track], writer: Writer) -> list[list[Proposal]]:
        """The rewriter's answer at first, then refinements of the best."""
        open_ = [t for t in tracks if not self._content(t)]
        if writer.instructs:
            asks = [_first(t) if t.turn == 1 else self._ask(t) for t in open_]
            rows = iter(writer.ask(asks))
            found = {id(t): [_labelled(t, p) for p in next(rows)] for t in open_}
        else:
            rows = iter(writer.ask([_first(t) for t in open_]))
            found = {id(t): [*self._edits(t, writer), *next(rows)] for t in open_}
        return [found.get(id(t), []) for t in tracks]

    def _content(self, track: Track) -> bool:
        """Whether the critic finds nothing wrong with the best picture."""
        scores = _best(track).points.values()
        return track.turn > 1 and bool(scores) and min(scores) >= self.content

    def _ask(self, track: Track) -> Ask:
        return mending_ask(track, _best(track), self.refinements)

    def _edits(self, track: Track, writer: Writer) -> list[Proposal]:
        if track.turn == 1:
            return []
        best = _best(track)
        level = min(best.points.values(), default=0.0)
        donors = [c for c in track.ranked() if min(c.points.values(), default=-1.0) > level]
        return mends(track, writer, best, donors[:1])


def _best(track: Track) -> Candidate:
    return (track.ranked() or track.candidates)[0]


def _first(track: Track) -> Ask:
    """The next answer of the rewriter to the prompt itself."""
    return Ask(track, track.sources, 1 if track.turn == 1 else 2)


def _labelled(track: Track, proposal: Proposal) -> Proposal:
    if track.turn == 1:
        return proposal
    return replace(proposal, operator="refine (instruction)", parents=(_best(track).number,))
