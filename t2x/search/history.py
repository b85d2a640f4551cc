"""What happened in one prompt's search, as plain data and as ``Rewrite`` objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from t2x.search.records import Candidate, Cost, Refusal, Shot, Track
from t2x.types import Check, Rewrite

__all__ = ["History"]


@dataclass(frozen=True)
class History:
    """All candidates of a search with their pictures and scores, what was refused and what was
    spent.

    ``winner`` has the text that is the result; ``shot`` is the best picture of all that were drawn,
    by the reward, and ``shot_of`` the number of its candidate, which may be another one: the winner
    is best on the seeds that the leaders share. ``shot`` is None if nothing was measured.
    """

    prompt: str
    candidates: tuple[Candidate, ...]
    refusals: tuple[Refusal, ...]
    winner: Candidate
    shot: Shot | None
    shot_of: int
    cost: Cost
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    ranking: tuple[int, ...] = ()

    @classmethod
    def of(cls, track: Track, settings: Mapping[str, Any]) -> History:
        """Close a track."""
        best = track.best_shot()
        return cls(
            track.prompt,
            tuple(track.candidates),
            tuple(track.refusals),
            track.winner(),
            best[1] if best else None,
            best[0].number if best else 0,
            track.cost,
            dict(settings),
            track.seed,
            tuple(c.number for c in track.ranked()),
        )

    def lineage(self) -> tuple[int, ...]:
        """Numbers of the winner and of everything that it descends from, in order."""
        found: set[int] = set()
        open_ = [self.winner.number]
        while open_:
            number = open_.pop()
            if number not in found:
                found.add(number)
                open_ += self.candidates[number].parents
        return tuple(sorted(found))

    def noise(self) -> float:
        """How far seeds alone move a score: the pooled deviation of texts that were drawn from
        several; NaN if none was. A difference of two single pictures below it says little."""
        spreads = [
            (sum((v - c.mean()) ** 2 for v in values), len(values) - 1)
            for c in self.candidates
            if len(values := [s.score for s in c.shots.values() if not math.isnan(s.score)]) > 1
        ]
        degrees = sum(n for _, n in spreads)
        return math.sqrt(sum(s for s, _ in spreads) / degrees) if degrees else math.nan

    def rewrites(self, number: int = 1) -> list[Rewrite]:
        """The winner and the next best texts that beat the user's own words, ``number`` in all;
        where there are fewer, the user's own words, with a check that says so."""
        order = dict.fromkeys((self.winner.number, *self.ranking))
        better = [self.candidates[n] for n in order if n]
        chosen = [c for c in better if c is self.winner or self._beats_own(c)]
        shared = [s for s in self.winner.shots if all(s in c.shots for c in chosen)]
        # The sort is stable: of equals, and of those without a shared seed, the ranking decides.
        chosen.sort(key=lambda c: (c is not self.winner, -_or_low(c.mean(shared))))
        rows = [self._result(c) for c in chosen[:number]]
        return rows + [self._own()] * (number - len(rows))

    def _beats_own(self, candidate: Candidate) -> bool:
        """Whether a text is better than the user's own words on the seeds that both were drawn
        from, as ``Track.winner`` asks; words that were not measured are beaten by any that were.
        """
        own = self.candidates[0]
        shared = [s for s in candidate.shots if s in own.shots]
        mark = own.mean(shared)
        return not math.isnan(candidate.mean()) and (
            math.isnan(mark) or candidate.mean(shared) > mark
        )

    def _own(self) -> Rewrite:
        own = self.candidates[0]
        measured = not math.isnan(own.mean())
        tried = len(self.candidates) - 1
        reason = f"none of {tried} other texts scored higher" if measured else "nothing was scored"
        result = self._result(own)
        return replace(result, checks=(*result.checks, Check("search", False, reason)))

    def _result(self, candidate: Candidate) -> Rewrite:
        """A candidate's rewrite with what its pictures scored."""
        names = dict.fromkeys(n for shot in candidate.shots.values() for n in shot.scores)
        means = {n: _mean([s.scores[n] for s in candidate.shots.values()]) for n in names}
        scores = {
            **candidate.rewrite.scores,
            **means,
            "search/score": candidate.mean(),
            "search/pictures": float(len(candidate.shots)),
        }
        model = f"search:{self.settings.get('method', '')}({candidate.rewrite.model_id})"
        return replace(candidate.rewrite, scores=scores, model_id=model)

    def record(self) -> dict[str, Any]:
        """Everything but the pictures, as plain data (``t2x.plain.plain`` for NaN)."""
        own = self.candidates[0].mean()
        return {
            "prompt": self.prompt,
            "winner": self.winner.number,
            "text": self.winner.rewrite.text,
            "negative": self.winner.rewrite.negative,
            "score": self.winner.mean(),
            "score_no_rewrite": own,
            "seed_noise": self.noise(),
            "best_picture": {
                "candidate": self.shot_of,
                "seed": self.shot.seed if self.shot else None,
                "score": self.shot.score if self.shot else None,
            },
            "lineage": list(self.lineage()),
            "seed": self.seed,
            "settings": dict(self.settings),
            "cost": asdict(self.cost),
            "candidates": [_candidate(c) for c in self.candidates],
            "refused": [asdict(r) for r in self.refusals],
        }


def _candidate(c: Candidate) -> dict[str, Any]:
    return {
        "number": c.number,
        "round": c.turn,
        "operator": c.operator,
        "parents": list(c.parents),
        "text": c.rewrite.text,
        "negative": c.rewrite.negative,
        "mean": c.mean(),
        "pictures": [
            {"seed": s.seed, "score": s.score, "scores": dict(s.scores)} for s in c.shots.values()
        ],
        "key_points": dict(c.points),
        "remarks": list(c.remarks),
    }


def _mean(values: list[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan


def _or_low(value: float) -> float:
    return -math.inf if math.isnan(value) else value
