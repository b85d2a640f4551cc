"""Chooses pairs to prefer from ranked candidates.

What pictures can't tell apart makes no pair: a winner is ahead by more than seeds alone explain,
measured on several pictures of the same texts. The prompt left as it is is one of the candidates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from t2x.data.ranking import Item, Ranked, Ranking
from t2x.data.records import Scored
from t2x.data.rows import pair_row, text_length
from t2x.errors import T2XError
from t2x.rollouts.records import FAILURES

__all__ = ["PairRules", "choose_pairs"]

Row = dict[str, Any]


@dataclass(frozen=True)
class PairRules:
    """Which two candidates of a prompt make a pair.

    Args:
        noise: least difference of totals, in deviations that seeds alone give to one.
        margin: least difference of totals in their own units; the larger of both counts.
        dominance: the winner is worse in no single reward (VPO, arXiv 2503.20491).
        winners: so many of a prompt's best candidates may win a pair each; 2 is best and second
            best (Prompt-A-Video, arXiv 2412.15156).
        length_ratio: the longer answer is at most so many times as long as the shorter, whichever
            wins; None is any. DPO sums log-probabilities, so length would become the lesson.
        balanced: leave out pairs, the closest ones first, until as many winners are longer than
            their losers as are shorter.
        original: what the prompt left as it is may do.
        failures: whether an answer that breaks a check or can't be read may lose a pair, the best
            candidate's, beside the others.
        gates: least mean of each reward for a winner.
    """

    noise: float = 2.0
    margin: float = 0.0
    dominance: bool = False
    winners: int = 2
    length_ratio: float | None = 1.5
    balanced: bool = False
    original: Literal["both", "winner", "loser", "never"] = "both"
    failures: bool = True
    gates: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.winners < 1:
            raise T2XError(f"winners is {self.winners}; give at least 1")
        if self.length_ratio is not None and not self.length_ratio >= 1:
            raise T2XError(f"length_ratio is {self.length_ratio}; give at least 1, or none")


# pairs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pair:
    winner: Item
    loser: Item
    chosen: str
    rejected: str

    @property
    def margin(self) -> float:
        return self.winner.total - self.loser.total

    @property
    def longer(self) -> int:
        """1, 0 or -1: whether the winner is longer."""
        lengths = text_length(self.chosen), text_length(self.rejected)
        return (lengths[0] > lengths[1]) - (lengths[0] < lengths[1])


def choose_pairs(
    ranking: Ranking, rules: PairRules, dropped: Counter[str]
) -> tuple[list[Row], dict[str, Any]]:
    """Rows of pairs, and what is known of them all for the card.

    ``dropped`` counts prompts without a pair by the last thing that kept them from one.
    """
    if unknown := sorted(set(rules.gates) - set(ranking.names)):
        raise T2XError(f"gates for {unknown}, but the rewards are: {', '.join(ranking.names)}")
    least = ranking.least(rules.noise, rules.margin)
    found: list[tuple[Scored, _Pair]] = []
    for ranked in ranking.prompts:
        why: list[str] = []
        pairs = [*_pairs(ranked, rules, least, ranking, why)]
        found += [(ranked.scored, pair) for pair in pairs]
        if not pairs:
            dropped[why[-1] if why else "no difference beyond noise"] += 1
    if rules.balanced:
        kept = _balanced([pair for _, pair in found])
        dropped["pairs left out to balance lengths"] += len(found) - len(kept)
        found = [row for row in found if id(row[1]) in kept]
    rows = [_pair_row(one, pair, ranking.noise) for one, pair in found]
    return rows, _summary([pair for _, pair in found]) | {"noise": ranking.noise, "least": least}


def _pairs(
    ranked: Ranked, rules: PairRules, least: float, ranking: Ranking, why: list[str]
) -> Iterator[_Pair]:
    """The pairs of one prompt: each winner with the candidate that it is furthest ahead of, or with
    the prompt left as it is, where nobody wrote that, if it is ahead of no candidate.
    """
    ahead = _ahead(ranked, rules, least, ranking)
    measured = [i for i in ranked.items if not math.isnan(i.total) and i.kind not in FAILURES]
    if len(measured) < len([i for i in ranked.items if i.kind not in FAILURES]):
        why.append("not measured")
    winners = [item for item in sorted(measured, key=lambda i: i.order) if _may_win(item, rules)]
    ordinary = sorted((i for i in measured if _may_lose(i, rules)), key=_worst)
    for winner in winners[: rules.winners]:
        losers = [i for i in ordinary if (winner.row, i.row) in ahead]
        if pair := _first_fitting(ranked.scored, winner, losers, rules, why):
            yield pair
    failed = [i for i in ranked.items if i.kind in FAILURES and not math.isnan(i.total)]
    if not rules.failures or not winners:
        return
    # A failure loses by what it is, not by a score: seeds can't make it win.
    if pair := _first_fitting(ranked.scored, winners[0], failed, rules, why):
        yield pair


def _ahead(
    ranked: Ranked, rules: PairRules, least: float, ranking: Ranking
) -> set[tuple[int, int]]:
    """(winner, loser) rows whose difference counts."""
    from t2x.functional.composition import dominance_pairs

    if rules.dominance:
        signs = ranking.weights.sign()
        pairs = dominance_pairs(ranked.scores * signs, ranking.weights.abs(), margin=least)
        return {(int(w), int(loser)) for w, loser in pairs.tolist()}
    return {(a.row, b.row) for a in ranked.items for b in ranked.items if a.total - b.total > least}


def _may_win(item: Item, rules: PairRules) -> bool:
    if item.kind == "no rewrite" and rules.original not in ("both", "winner"):
        return False
    return all(item.means[name] >= value for name, value in rules.gates.items())


def _may_lose(item: Item, rules: PairRules) -> bool:
    return item.kind != "no rewrite" or rules.original in ("both", "loser")


def _first_fitting(
    one: Scored, winner: Item, losers: Sequence[Item], rules: PairRules, why: list[str]
) -> _Pair | None:
    """The pair with the first loser whose answer fits beside the winner's."""
    for loser in losers:
        chosen, rejected = _answers(winner, loser, one.seen)
        if not chosen or not rejected:
            why.append("no way to write the prompt as it is")
        elif not _similar(chosen, rejected, rules.length_ratio):
            why.append("answers of different lengths")
        else:
            return _Pair(winner, loser, chosen, rejected)
    return None


def _answers(winner: Item, loser: Item, seen: str) -> tuple[str, str]:
    """Both completions. The prompt as it is, where no candidate says it, is written with the
    other's reasoning, so that the two differ in the answer alone; "" if that can't be.
    """
    a, b = winner.candidate, loser.candidate
    chosen = a.completion if a is not None else (b.echo(seen) if b is not None else "")
    return chosen, b.completion if b is not None else (a.echo(seen) if a is not None else "")


def _similar(a: str, b: str, ratio: float | None) -> bool:
    short, long = sorted((text_length(a), text_length(b)))
    return ratio is None or long <= ratio * short


def _balanced(pairs: Sequence[_Pair]) -> set[int]:
    """Ids of the pairs that stay: as many longer as shorter winners."""
    longer = sorted((p for p in pairs if p.longer > 0), key=lambda p: -p.margin)
    shorter = sorted((p for p in pairs if p.longer < 0), key=lambda p: -p.margin)
    number = min(len(longer), len(shorter))
    equal = [p for p in pairs if not p.longer]
    return {id(p) for p in (*longer[:number], *shorter[:number], *equal)}


def _worst(item: Item) -> tuple[bool, float, int]:
    """Worst first, but what the policy wrote before what it did not: that is likely already, and
    pushing it down teaches more.
    """
    return (item.candidate is None, item.total, item.row)


def _pair_row(one: Scored, pair: _Pair, noise: float) -> Row:
    return pair_row(
        one.prompt,
        pair.chosen,
        pair.rejected,
        one.seen,
        score_chosen=pair.winner.total,
        score_rejected=pair.loser.total,
        margin=pair.margin,
        noise=noise,
        chosen_kind=pair.winner.kind,
        rejected_kind=pair.loser.kind,
        **one.fields,
    )


def _summary(pairs: Sequence[_Pair]) -> dict[str, Any]:
    number = max(len(pairs), 1)
    lengths = [text_length(p.chosen) - text_length(p.rejected) for p in pairs]
    return {
        "chosen_kinds": dict(Counter(p.winner.kind for p in pairs)),
        "rejected_kinds": dict(Counter(p.loser.kind for p in pairs)),
        "winner_longer": sum(p.longer > 0 for p in pairs) / number,
        "winner_shorter": sum(p.longer < 0 for p in pairs) / number,
        "mean_length_difference": sum(lengths) / number,
        "mean_margin": sum(p.margin for p in pairs) / number,
    }
