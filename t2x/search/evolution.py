"""Reward-guided evolution (Prompt-A-Video, Ji et al. 2025, arXiv 2412.15156): in each round new
texts come from the best so far, are drawn, and scored against the *original* prompt.

The operators are those of EvoPrompt (``ga``, ``de``; Guo et al. 2024, arXiv 2309.08532),
Promptbreeder (Fernando et al. 2023, arXiv 2309.16797) and SPELL (Li and Wu 2023, arXiv 2310.01260).
Each exists as an instruction to a rewriter that follows them, and as one on clauses with a rewriter
that only rewrites; ``History`` names the operator of every candidate.

Differs from the papers: EvoPrompt's GA draws both parents by roulette wheel over the whole
population, and here the base is any of the ``top`` best with the same odds; its DE goes through
every member and puts a child in the place of its base only if the child is better, and here a round
changes bases drawn from the ``top`` best, and every child joins the candidates. The fitness of a
text is that of its pictures for one prompt, not the accuracy on a data set; populations are as
small as a budget of pictures; proposals that break a check are dropped; Promptbreeder's mutation of
its mutation prompts (hypermutation) is here a weight of each operator that grows with its
successes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from t2x.errors import T2XError
from t2x.rewriters.templates import Template
from t2x.search import clauses, instructions
from t2x.search.evaluator import Inspector
from t2x.search.records import Candidate, Proposal, Track
from t2x.search.writer import Ask, Writer

__all__ = ["OPERATORS", "Evolution"]

# Which kinds of change belong to whose method.
OPERATORS: dict[str, tuple[str, ...]] = {
    "prompt-a-video": ("history",),
    "ga": ("cross",),
    "de": ("differ",),
    "promptbreeder": ("fresh", "mutate", "list", "cross", "shuffle"),
    "spell": ("history",),
    "mixed": ("history", "cross", "differ", "mutate", "shuffle", "trim", "fresh"),
}
_FREE = ("shuffle", "trim")  # kinds that never need a model
_TRIES = 4  # attempts on clauses for each text that may be drawn


class Evolution:
    """Rounds of ``children`` new texts from the ``top`` best.

    Args:
        operators: a key of ``OPERATORS``.
        first: answers of the rewriter in the first round; None is ``children``.
        children: texts per later round; 3 in the paper.
        top: how many of the best are parents; 3 in the paper.
    """

    name = "evolution"
    inspector: Inspector | None = None

    def __init__(
        self,
        operators: str = "mixed",
        *,
        first: int | None = None,
        children: int = 3,
        top: int = 3,
    ) -> None:
        if operators not in OPERATORS:
            raise T2XError(f"unknown operators {operators!r}; allowed: {', '.join(OPERATORS)}")
        if min(children, top, 1 if first is None else first) < 1:
            raise T2XError("first, children and top must be at least 1")
        self.operators, self.children, self.top = operators, children, top
        self.first = children if first is None else first

    def width(self, track: Track) -> int:
        """``first``, then ``children``."""
        return self.first if track.turn == 1 else self.children

    def settings(self) -> dict[str, Any]:
        """Operators and sizes."""
        return {
            "evolution": self.operators,
            "first": self.first,
            "children": self.children,
            "top": self.top,
        }

    def propose(self, tracks: Sequence[Track], writer: Writer) -> list[list[Proposal]]:
        """Answers of the rewriter at first, then children of the best."""
        plans = [self._plan(track, writer) for track in tracks]
        asks = [ask for plan in plans for ask in plan if isinstance(ask, _Asked)]
        answers = iter(writer.ask([a.ask for a in asks]))
        return [[p for item in plan for p in _told(item, answers)] for plan in plans]

    # ---- one track ------------------------------------------------------------------------------

    def _plan(self, track: Track, writer: Writer) -> list[_Asked | Proposal]:
        if track.turn == 1:
            return [_Asked(Ask(track, track.sources, self.first), "rewriter")]
        rng = track.random("evolution")
        kinds = list(OPERATORS[self.operators])
        weights = [_successes(track, kind) for kind in kinds]
        plan: list[_Asked | Proposal] = []
        asked = 0
        for _ in range(_TRIES * self.children):
            kind = rng.choices(kinds, weights)[0]
            needs_model = kind == "fresh" or (
                kind not in _FREE and (writer.instructs or kind in ("history", "mutate", "list"))
            )
            if needs_model and asked >= self.children:
                continue
            asked += needs_model
            plan.append(self._change(kind, track, writer, rng))
        return plan

    def _change(
        self, kind: str, track: Track, writer: Writer, rng: random.Random
    ) -> _Asked | Proposal:
        parents = self._parents(track, rng, roulette=self.operators == "spell")
        if kind == "fresh":
            return _Asked(Ask(track, track.sources), "rewriter")
        if kind in _FREE or not writer.instructs:
            return self._on_clauses(kind, track, writer, parents, rng)
        return _instructed(kind, track, parents)

    def _parents(
        self, track: Track, rng: random.Random, *, roulette: bool = False
    ) -> list[Candidate]:
        """The best so far, the first of them chosen at random to be the base: each with the same
        odds, or by roulette, in proportion to how far it is above the worst."""
        best = track.ranked()[: self.top] or track.candidates[:1]
        odds = [1.0] * len(best)
        if roulette:
            low = best[-1].mean()
            odds = [c.mean() - low + 1e-6 for c in best]
        base = rng.choices(range(len(best)), odds)[0]
        return [best[base], *best[:base], *best[base + 1 :]]

    def _on_clauses(
        self,
        kind: str,
        track: Track,
        writer: Writer,
        parents: list[Candidate],
        rng: random.Random,
    ) -> _Asked | Proposal:
        base, *others = parents
        if kind in ("history", "mutate", "list"):  # what a rewriter can do: rewrite the parent
            return _Asked(Ask(track, base.parts), "rewrite of a parent", [base])
        asked = writer.asked(track)
        region = rng.randrange(len(base.parts))
        own = base.parts[region]
        mate = rng.choice(others or [base])
        if kind == "differ" and len(others) >= 2:
            best = track.ranked()[0]
            donors = (others[0].parts[region], others[1].parts[region])
            text = clauses.differential(own, best.parts[region], donors, asked, rng)
            label, used = "differential", [base, best, *others[:2]]
        elif kind in ("cross", "differ") and rng.random() < 0.5:
            text = clauses.swap_trimmings(own, mate.parts[region], asked)
            label, used = "style swap", [base, mate]
        elif kind in ("cross", "differ"):
            text = clauses.cross(own, mate.parts[region], rng)
            label, used = "crossover", [base, mate]
        else:
            (text, label), used = _alone(kind, own, rng), [base]
        parts = [*base.parts[:region], text, *base.parts[region + 1 :]]
        return writer.text(track, parts, label, *sorted({c.number for c in used}))


def _alone(kind: str, text: str, rng: random.Random) -> tuple[str, str]:
    """A change of one parent's text, and what it is called."""
    if kind == "shuffle":
        return clauses.shuffle(text, rng), "reorder"
    if rng.random() < 0.5:
        return clauses.drop(text, rng), "drop"
    return clauses.add_trimming(text, rng.choice(clauses.TRIMMINGS)), "trimming"


class _Asked:
    """A text that is still to be asked for."""

    def __init__(self, ask: Ask, operator: str, parents: Sequence[Candidate] = ()) -> None:
        self.ask, self.operator = ask, operator
        self.parents = tuple(sorted({c.number for c in parents}))


def _told(item: _Asked | Proposal, answers: Any) -> list[Proposal]:
    if isinstance(item, Proposal):
        return [item]
    return [Proposal(p.parts, item.operator, item.parents) for p in next(answers)]


def _instructed(kind: str, track: Track, parents: Sequence[Candidate]) -> _Asked:
    """The instruction of a kind, with a body for each region."""
    base, *others = parents
    best = [c for c in track.ranked() if c.number][:3] or [base]
    if kind == "differ" and len(others) < 2:
        kind = "cross"
    if kind == "cross":
        used = [base, *(others[:1] or [base])]
    elif kind == "differ":
        used = [*others[:2], best[0], base]
    else:
        used = [base] if kind == "mutate" else best
    template, write = _INSTRUCTIONS[kind]
    bodies = tuple(
        write(source, [(c.parts[region], c.mean()) for c in used])
        for region, source in enumerate(track.sources)
    )
    return _Asked(Ask(track, bodies, 1, template), f"{kind} (instruction)", used)


_Used = Sequence[tuple[str, float]]  # texts and their scores
_INSTRUCTIONS: dict[str, tuple[Template, Callable[[str, _Used], str]]] = {
    "cross": (instructions.CROSS, lambda s, used: instructions.crossed(s, used[0][0], used[1][0])),
    "differ": (
        instructions.DIFFER,
        lambda s, used: instructions.differed(s, [t for t, _ in used[:2]], used[2][0], used[3][0]),
    ),
    "mutate": (instructions.MUTATE, lambda s, used: instructions.mutated(s, used[0][0])),
    "list": (instructions.LIST, lambda s, used: instructions.listed(s, [t for t, _ in used[::-1]])),
    "history": (instructions.HISTORY, instructions.remembered),
}
_LABELS = {
    "fresh": ("rewriter",),
    "history": ("history (instruction)", "rewrite of a parent"),
    "mutate": ("mutate (instruction)", "rewrite of a parent"),
    "list": ("list (instruction)", "rewrite of a parent"),
    "cross": ("cross (instruction)", "crossover", "style swap"),
    "differ": ("differ (instruction)", "differential"),
    "shuffle": ("reorder",),
    "trim": ("drop", "trimming"),
}


def _successes(track: Track, kind: str) -> float:
    """1, and 1 more for each child of this kind that beat its parents."""
    wins = 0
    for child in track.candidates:
        if child.operator in _LABELS[kind] and child.parents:
            before = max(track.candidates[n].mean() for n in child.parents)
            wins += not math.isnan(child.mean()) and child.mean() > before
    return 1.0 + wins
