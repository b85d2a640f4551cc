"""What is kept of each prompt between drawing and choosing: the candidates and all their scores.

One line of JSONL is one prompt, so that a long run goes on where it stopped, and so that other
pairs can be chosen from the same pictures at no cost.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from t2x.data.files import read_rows
from t2x.errors import T2XError
from t2x.prompts.protect import protect
from t2x.rewriters.parsing import parse_completion, replace_answer, write_completion

__all__ = ["Candidate", "Scored", "history_record", "read_histories", "read_scored"]

Scores = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True)
class Candidate:
    """An answer: the ``completion`` as the policy writes it, what would be drawn of it, its
    ``kind`` (``t2x.rollouts.Kind``) and its scores by reward, one per seed; none if it was not
    drawn. ``reason`` says which check it breaks.
    """

    completion: str
    text: str
    negative: str = ""
    kind: str = "rewrite"
    scores: Scores = field(default_factory=dict)
    reason: str = ""

    def echo(self, seen: str) -> str:
        """The same completion with the words that the policy saw as its answer; "" if it would not
        be read so.
        """
        completion = replace_answer(self.completion, seen)
        tagged = "<answer>" in self.completion or "<prompt>" in self.completion
        parsed = parse_completion(completion, require_answer=tagged, source=seen)
        return completion if parsed.text == seen.strip() and not parsed.problem else ""


@dataclass(frozen=True)
class Scored:
    """A prompt with its candidates; ``original`` are the scores of the prompt left as it is, on the
    same ``seeds``. ``seen`` is what a policy sees of it; ``fields`` are other columns.
    """

    index: int
    prompt: str
    seen: str
    candidates: tuple[Candidate, ...]
    seeds: tuple[int, ...] = ()
    original: Scores = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def unchanged(self) -> str:
        """The text that is drawn of the prompt left as it is."""
        return protect(self.prompt).unmarked

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Scored:
        """From plain values; a score that is missing there is NaN."""
        candidates = [
            Candidate(**{**row, "scores": _scores(row["scores"])}) for row in record["candidates"]
        ]
        values = {**record, "candidates": tuple(candidates), "seeds": tuple(record["seeds"])}
        return cls(**{**values, "original": _scores(record["original"])})


def read_scored(path: Path) -> list[Scored]:
    """Read a file of scored prompts; T2XError for one that holds something else."""
    try:
        return [Scored.of(row) for row in read_rows(path)]
    except (KeyError, TypeError) as error:
        raise T2XError(f"{str(path)!r} is no file of scored candidates: {error}") from error


def read_histories(folder: Path) -> list[Scored]:
    """Read what ``t2x search`` left in a folder: every ``history.json`` in it, in the order of
    their paths.
    """
    paths = sorted(folder.rglob("history.json"))
    if not paths:
        raise T2XError(f"there is no history.json in {str(folder)!r}; `t2x search` writes them")
    records = (json.loads(path.read_text("utf-8")) for path in paths)
    return [history_record(record, index) for index, record in enumerate(records)]


def history_record(
    record: Mapping[str, Any], index: int, *, names: Mapping[str, str] | None = None
) -> Scored:
    """What a search tried for a prompt (``t2x.search.history.History.record``), as candidates for
    training: the data of Prompt-A-Video (arXiv 2412.15156).

    The seeds are those that every text was drawn from. Candidate 0 is the prompt left as it is. A
    prompt with syntax or quoted text has no candidates: what a search keeps of them is what was
    drawn, not what a policy would write. ``names`` are other names for rewards.
    """
    tried = record["candidates"]
    drawn = [{p["seed"]: p["scores"] for p in row["pictures"]} for row in tried]
    seeds = [s for s in drawn[0] if all(s in row for row in drawn)]
    scores = [_by_reward([row[s] for s in seeds], names or {}) for row in drawn]
    candidates = tuple(
        Candidate(
            write_completion(row["text"], negative=row["negative"]),
            row["text"],
            row["negative"],
            scores=own,
        )
        for row, own in zip(tried[1:], scores[1:], strict=True)
    )
    prompt = record["prompt"]
    plain = protect(prompt).sources == (prompt,)
    return Scored(index, prompt, prompt, candidates if plain else (), tuple(seeds), scores[0])


def _by_reward(rows: Sequence[Mapping[str, float | None]], names: Mapping[str, str]) -> Scores:
    own = dict.fromkeys(name for row in rows for name in row)
    return {names.get(n, n): tuple(_number(row.get(n)) for row in rows) for n in own}


def _scores(given: Mapping[str, Sequence[float | None]]) -> Scores:
    return {name: tuple(map(_number, values)) for name, values in given.items()}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
