"""Cooperative turns (MultiPrompter, Kim et al. 2023, arXiv 2310.16730): several prompters each
write a part of one prompt, in turns, and each sees what the others wrote.

Three prompters: the first writes what is to be seen, the second how it is arranged, the third
light, style and quality. A turn tries ``tries`` ways to write its part; the best text of the pass
so far, with or without the part, goes to the next prompter. When all three had their turn, a new
pass begins with another first part.

Differs from the paper: the prompters are not trained (there, by multi-agent actor-critic on the
final score); a turn searches its part by the reward instead. With a rewriter that follows no
instructions the first prompter is the rewriter, and the other two work on clauses: they reorder
them, and put trimmings behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from t2x.errors import T2XError
from t2x.rewriters.turns import join_parts
from t2x.search import clauses, instructions
from t2x.search.evaluator import Inspector
from t2x.search.records import Candidate, Proposal, Track
from t2x.search.writer import Ask, Writer

__all__ = ["PROMPTERS", "TEMPLATES", "Cooperative"]

PROMPTERS = ("subject", "arrangement", "style")
_MORE = 4  # ways on clauses for each one that may be drawn
TEMPLATES = dict(zip(PROMPTERS, (None, instructions.ARRANGE, instructions.CROWN), strict=True))


class Cooperative:
    """Turns of three prompters, each with ``tries`` ways to write its part."""

    name = "cooperative"
    inspector: Inspector | None = None

    def __init__(self, *, tries: int = 2) -> None:
        if tries < 1:
            raise T2XError(f"tries is {tries}; give at least 1")
        self.tries = tries

    def width(self, track: Track) -> int:
        """``tries`` in every turn."""
        return self.tries

    def settings(self) -> dict[str, Any]:
        """Prompters and tries."""
        return {"prompters": list(PROMPTERS), "tries": self.tries}

    def propose(self, tracks: Sequence[Track], writer: Writer) -> list[list[Proposal]]:
        """Ways to write the part whose turn it is."""
        asks = {id(t): a for t in tracks if (a := self._ask(t, writer)) is not None}
        rows = iter(writer.ask(list(asks.values())))
        found = []
        for track in tracks:
            told = next(rows) if id(track) in asks else []
            role, parent = _role(track), _so_far(track)
            if role == "subject":
                found.append([replace(p, operator=role) for p in told])
            elif parent is None:
                found.append([])
            elif writer.instructs:
                found.append([_joined(track, writer, parent, p, role) for p in told])
            else:
                found.append(self._on_clauses(track, writer, parent, role))
        return found

    def _ask(self, track: Track, writer: Writer) -> Ask | None:
        role = _role(track)
        if role == "subject":
            template = instructions.FOUND if writer.instructs else None
            bodies = track.sources
            if template is not None:
                bodies = tuple(instructions.shared(s, "") for s in track.sources)
            return Ask(track, bodies, self.tries, template)
        parent = _so_far(track)
        if parent is None or not writer.instructs:
            return None
        bodies = tuple(
            instructions.shared(s, part)
            for s, part in zip(track.sources, parent.parts, strict=True)
        )
        return Ask(track, bodies, self.tries, TEMPLATES[role])

    def _on_clauses(
        self, track: Track, writer: Writer, parent: Candidate, role: str
    ) -> list[Proposal]:
        rng = track.random(role)
        asked = writer.asked(track)
        found = []
        ways = rng.sample(clauses.TRIMMINGS, len(clauses.TRIMMINGS))
        for i in range(self.tries * _MORE):
            region = i % len(parent.parts)
            own = parent.parts[region]
            if role == "style":
                text = clauses.add_trimming(own, ways[i % len(ways)])
            elif i == 0:
                text = clauses.front(own, asked)
            else:
                text = clauses.shuffle(own, rng)
            parts = [*parent.parts[:region], text, *parent.parts[region + 1 :]]
            found.append(writer.text(track, parts, role, parent.number))
        return found


def _role(track: Track) -> str:
    return PROMPTERS[(track.turn - 1) % len(PROMPTERS)]


def _so_far(track: Track) -> Candidate | None:
    """The best text of this pass; in the first pass that may be the user's own words. None where
    the first prompter had nothing new to say."""
    begun = (track.turn - 1) // len(PROMPTERS) * len(PROMPTERS) + 1
    ranked = track.ranked() or track.candidates
    return next((c for c in ranked if begun == 1 or c.turn >= begun), None)


def _joined(track: Track, writer: Writer, parent: Candidate, part: Proposal, role: str) -> Proposal:
    """What was written so far and the new part behind it."""
    texts = [
        join_parts(before, after.text)
        for before, after in zip(parent.parts, part.parts, strict=True)
    ]
    return writer.text(track, texts, role, parent.number)
