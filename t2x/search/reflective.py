"""Reflective edits: look at what a picture got wrong, key point by key point, and change the text
there (GEPA, Agrawal et al. 2025, arXiv 2507.19457; in the manner of VISTA and PromptWizard).

A set of parents is kept that no other text beats on every key point and reward (the Pareto front);
one is drawn at random, weighted by on how many of them it is the best; its worst point is the fault
to mend; and a child joins the parents only if it scores higher than they, or is better than every
text on some point (its place on the front).

Differs from the papers: the points are those that a reward with ``details`` raises for one prompt
(``align`` of PromptEnhancer), in place of the examples of a data set; a rewriter that follows no
instructions is replaced by edits on clauses (``t2x.search.mending``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from t2x.errors import T2XError
from t2x.search.evaluator import Inspector
from t2x.search.mending import failing, mending_ask, mends
from t2x.search.records import Candidate, Proposal, Track
from t2x.search.writer import Ask, Writer

__all__ = ["Reflective", "pareto_parents"]


class Reflective:
    """Rounds of ``edits`` targeted changes to texts of the Pareto front.

    Args:
        inspector: a reward with ``details``, ``load_reward("align")`` for instance.
        first: answers of the rewriter in the first round.
        edits: texts per later round.
    """

    name = "reflective"

    def __init__(self, inspector: Inspector, *, first: int = 2, edits: int = 2) -> None:
        if not hasattr(inspector, "details"):
            raise T2XError(
                f"{type(inspector).__name__} does not say what is wrong with a picture; give a "
                "reward with details, load_reward('align') for instance"
            )
        if min(first, edits) < 1:
            raise T2XError("first and edits must be at least 1")
        self.inspector: Inspector | None = inspector
        self.first, self.edits = first, edits

    def width(self, track: Track) -> int:
        """``first``, then ``edits``."""
        return self.first if track.turn == 1 else self.edits

    def settings(self) -> dict[str, Any]:
        """Sizes and what looks at the pictures."""
        name = getattr(self.inspector, "name", type(self.inspector).__name__)
        return {"inspector": name, "first": self.first, "edits": self.edits}

    def propose(self, tracks: Sequence[Track], writer: Writer) -> list[list[Proposal]]:
        """Answers of the rewriter at first; later edits of a parent, and then a fresh answer, for
        prompts in which no edit is left."""
        if writer.instructs:
            asks = [self._ask(t) for t in tracks]
            return [
                [replace(p, operator=label, parents=parents) for p in row]
                for row, (_, label, parents) in zip(
                    writer.ask([a for a, _, _ in asks]), asks, strict=True
                )
            ]
        fresh = writer.ask([self._fresh(t) for t in tracks])
        return [
            row if t.turn == 1 else [*self._edits(t, writer), *row]
            for t, row in zip(tracks, fresh, strict=True)
        ]

    def _fresh(self, track: Track) -> Ask:
        number = self.first if track.turn == 1 else self.edits
        return Ask(track, track.sources, number)

    def _ask(self, track: Track) -> tuple[Ask, str, tuple[int, ...]]:
        if track.turn == 1:
            return self._fresh(track), "rewriter", ()
        parent = self._parent(track)
        ask = mending_ask(track, parent, self.edits)
        return ask, "mend (instruction)", (parent.number,)

    def _edits(self, track: Track, writer: Writer) -> list[Proposal]:
        parent = self._parent(track)
        worst = next(iter(failing(parent)), "")
        level = parent.points.get(worst, math.nan)
        donors = [c for c in track.ranked() if c.points.get(worst, -math.inf) > level]
        return mends(track, writer, parent, donors[:1])

    def _parent(self, track: Track) -> Candidate:
        parents = pareto_parents(accepted(track))
        if not parents:
            return track.winner()
        chosen = track.random("parent").choices(list(parents), list(parents.values()))[0]
        return track.candidates[chosen]


def accepted(track: Track) -> list[Candidate]:
    """Candidates that scored higher than their parents, or beat everything on some point."""
    kept: list[Candidate] = []
    for c in track.candidates:
        before = [track.candidates[n].mean() for n in c.parents]
        better = not before or c.mean() > max(before)
        leads = any(
            value > max((k.points.get(name, -math.inf) for k in kept), default=-math.inf)
            for name, value in c.points.items()
        )
        if better or leads:
            kept.append(c)
    return kept


def pareto_parents(candidates: Sequence[Candidate]) -> dict[int, int]:
    """Numbers of the candidates that none dominates, and on how many objectives (key points and
    rewards of the first picture) each is the best: its weight in the draw."""
    import torch

    from t2x.functional.composition import non_dominated

    rows = {c.number: _objectives(c) for c in candidates}
    names = sorted({name for row in rows.values() for name in row})
    if not names:
        return {}
    values = torch.tensor(
        [[row.get(name, math.nan) for name in names] for row in rows.values()],
        dtype=torch.float64,
    )
    front = non_dominated(values)
    if not bool(front.any()):
        return {}
    best = values[front].amax(0)
    wins = (values == best).sum(1)
    return {
        number: int(wins[i]) + 1 for i, number in enumerate(rows) if bool(front[i])
    }  # + 1: a text of the front that is best in nothing alone is worth a try


def _objectives(candidate: Candidate) -> dict[str, float]:
    shot = candidate.first()
    scores = {f"reward {name}": v for name, v in shot.scores.items()} if shot else {}
    return {**scores, **candidate.points}
