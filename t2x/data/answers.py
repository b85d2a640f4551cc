"""Chooses the answers of a teacher that a rewriter is to learn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from t2x.data.ranking import Ranking
from t2x.data.records import Candidate, Scored
from t2x.data.rows import sft_row
from t2x.errors import T2XError
from t2x.rewriters.parsing import parse_completion

__all__ = ["AnswerRules", "accepted_answers", "best_answers"]

Row = dict[str, Any]


@dataclass(frozen=True)
class AnswerRules:
    """Which answers of a teacher are learnt: the ``best`` of a prompt that are ahead of the prompt
    left as it is by ``noise`` deviations of the seeds and ``margin``. ``unchanged``: where none is,
    the user's own words are the answer.
    """

    best: int = 1
    noise: float = 2.0
    margin: float = 0.0
    unchanged: bool = False

    def __post_init__(self) -> None:
        if self.best < 1:
            raise T2XError(f"best is {self.best}; give at least 1")


def accepted_answers(
    scored: Sequence[Scored], rules: AnswerRules, dropped: Counter[str]
) -> list[Row]:
    """Rows for fine-tuning from candidates that nobody scored: the first ``best`` of each prompt
    that passed the checks and add something.
    """
    rows = []
    for one in scored:
        good = {c.text: c for c in one.candidates if _says(c, one, dropped)}
        rows += [_answer_row(one, c.completion) for c in [*good.values()][: rules.best]]
        if not good and rules.unchanged and (kept := _kept_words(one)):
            rows.append(_answer_row(one, kept))
    return rows


def best_answers(ranking: Ranking, rules: AnswerRules, dropped: Counter[str]) -> list[Row]:
    """Rows for fine-tuning from the candidates whose pictures are best."""
    least = ranking.least(rules.noise, rules.margin)
    rows = []
    for ranked in ranking.prompts:
        own = ranked.items[0].total
        good = [
            item
            for item in sorted(ranked.items[1:], key=lambda i: i.order)
            if item.candidate is not None
            and _says(item.candidate, ranked.scored, dropped)
            and item.total - own > least
        ][: rules.best]
        for item in good:
            extra = {"score": item.total, "score_original": own, "noise": ranking.noise}
            completion = item.candidate.completion if item.candidate else ""
            rows.append(_answer_row(ranked.scored, completion, **extra))
        if good:
            continue
        if math.isnan(own):
            dropped["not measured"] += 1
        elif rules.unchanged and (kept := _kept_words(ranked.scored)):
            extra = {"score": own, "score_original": own, "noise": ranking.noise}
            rows.append(_answer_row(ranked.scored, kept, **extra))
        else:
            dropped["no better than the prompt as it is"] += 1
    return rows


def _says(candidate: Candidate, one: Scored, dropped: Counter[str]) -> bool:
    """Whether a candidate is something to learn; why not is counted."""
    if candidate.kind != "rewrite":
        dropped[f"answer {candidate.kind}"] += 1
        return False
    if candidate.text == one.unchanged and not candidate.negative:
        dropped["answer unchanged"] += 1
        return False
    if parse_completion(candidate.completion, source=one.seen).problem:
        dropped["answer that can't be written"] += 1
        return False
    return True


def _answer_row(one: Scored, completion: str, **extra: float) -> Row:
    return sft_row(one.prompt, completion, one.seen, **one.fields, **extra)


def _kept_words(one: Scored) -> str:
    """The user's own words in the form of the candidates' answers; "" if they have none."""
    for candidate in one.candidates:
        if kept := candidate.echo(one.seen):
            return kept
    return ""
