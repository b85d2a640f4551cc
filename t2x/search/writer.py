"""Asks the rewriter under a search for texts, batched over prompts; the same is asked once.

A rewriter that follows instructions (it has ``with_template``, and its template is no checkpoint's
own) can be given other tasks than rewriting: cross two prompts, mend a fault, write one part. One
that knows a single task, like emoji-rewriter, is only asked to rewrite, and the operators are those
of ``clauses``. ``Writer.instructs`` says which.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.guidance.metering import counted
from t2x.prompts.checks import FREE_ENGLISH, Domain
from t2x.prompts.constraints import content_words
from t2x.search.records import Proposal, Track
from t2x.types import Rewrite, Rewriter

if TYPE_CHECKING:
    from t2x.rewriters.guarded import Guarded
    from t2x.rewriters.templates import Template

__all__ = ["Ask", "Writer"]

_Key: TypeAlias = "tuple[Template | None, str, int]"  # task, source, seed


@dataclass(frozen=True)
class Ask:
    """Texts wanted of one track: the next ``number`` answers for each of ``sources``, one a region
    of its prompt. Answers have numbers: the third one is the same, however many are asked for at a
    time.
    """

    track: Track
    sources: tuple[str, ...]
    number: int = 1
    template: Template | None = None  # None is the rewriter's own task


@dataclass
class Writer:
    """The rewriter of a search in its guard.

    Args:
        guarded: what proposes, and what judges proposals.
        instructs: whether it follows instructions; None finds out, see above.
    """

    guarded: Guarded
    instructs: bool | None = None
    count_flops: bool = False
    _told: dict[_Key, list[tuple[Rewrite, float]]] = field(default_factory=dict)
    _tasks: dict[Template, Rewriter] = field(default_factory=dict)
    _flops: float | None = None

    def __post_init__(self) -> None:
        self.rewriter: Any = self.guarded.rewriter
        template = getattr(self.rewriter, "template", None)
        able = hasattr(self.rewriter, "with_template") and not getattr(template, "domain", "x")
        if self.instructs is None:
            self.instructs = able and not getattr(template, "require_answer", True)
        self.domain: Domain = getattr(self.rewriter, "domain", FREE_ENGLISH)
        self.is_model = hasattr(self.rewriter, "model") or hasattr(self.rewriter, "complete")

    def clear(self) -> None:
        """Forget what was written."""
        self._told.clear()

    def asked(self, track: Track) -> frozenset[str]:
        """Content words of a prompt in the words of the rewriter's world."""
        return frozenset(
            w for s in track.sources for w in content_words(self.domain.canonical(s))
        ) | frozenset(w for s in track.sources for w in content_words(s))

    # ---- proposals ------------------------------------------------------------------------------

    def ask(self, asks: Sequence[Ask], operator: str = "rewriter") -> list[list[Proposal]]:
        """``number`` proposals for each ask, in batches over all of them; costs go to the
        tracks."""
        begins = []
        for ask in asks:
            had = ask.track.asked
            begins.append(had.get((ask.template, ask.sources), 0))
            had[ask.template, ask.sources] = begins[-1] + ask.number
        self._fill(asks, begins)
        self._charge(asks, begins)
        return [self._proposals(a, begin, operator) for a, begin in zip(asks, begins, strict=True)]

    def _proposals(self, ask: Ask, begin: int, operator: str) -> list[Proposal]:
        rows = []
        for source, plain in zip(ask.sources, ask.track.sources, strict=True):
            told = self._told[ask.template, source, ask.track.seed][begin : begin + ask.number]
            rows.append([replace(rewrite, original=plain) for rewrite, _ in told])
        return [Proposal(parts, operator) for parts in zip(*rows, strict=True)]

    def _charge(self, asks: Sequence[Ask], begins: Sequence[int]) -> None:
        """Charge each track for every text that its asks made the rewriter write, the earlier ones
        that it wrote again included, as if the track had been alone: what other searches of the
        same prompt had written saves time, and no cost."""
        tracks = {id(ask.track): ask.track for ask in asks}
        for own, track in tracks.items():
            mine = [(a, b) for a, b in zip(asks, begins, strict=True) if id(a.track) == own]
            for key, number in _wanted(mine, track.written).items():
                track.written[key] = number
                track.cost.lm_calls += number * self.is_model
                told = self._told[key][:number]
                mean = sum(seconds for _, seconds in told) / len(told)
                track.cost.add_seconds("writing", number * mean)
                flops = math.nan if self._flops is None else self._flops
                track.cost.add_flops(number * flops)

    def text(self, track: Track, parts: Sequence[str], operator: str, *parents: int) -> Proposal:
        """A proposal that no model wrote."""
        made = (
            Rewrite(source, part, seed=track.seed, model_id=self.guarded.model_id)
            for source, part in zip(track.sources, parts, strict=True)
        )
        return Proposal(tuple(made), operator, parents)

    def judge(self, track: Track, proposal: Proposal) -> Rewrite:
        """Let the guard decide on a proposal for the prompt of a track."""
        return self.guarded.judge(track.prompt, proposal.parts, seed=track.seed)

    # ---- asking ---------------------------------------------------------------------------------

    def _fill(self, asks: Sequence[Ask], begins: Sequence[int]) -> None:
        """Ask for what is not known yet, rows of one task, seed and number together."""
        known = {key: len(told) for key, told in self._told.items()}
        wanted = _wanted(list(zip(asks, begins, strict=True)), known)
        groups: dict[tuple[Template | None, int, int], list[_Key]] = {}
        for key, end in wanted.items():
            groups.setdefault((key[0], key[2], end), []).append(key)
        for (template, seed, end), keys in groups.items():
            self._extend(self._task(template), keys, seed, end)

    def _extend(self, rewriter: Rewriter, keys: Sequence[_Key], seed: int, end: int) -> None:
        """The first ``end`` answers for each source: the first of several are those of fewer."""
        sources = [source for _, source, _ in keys]
        if self.count_flops and self._flops is None and self.is_model:
            self._flops = counted(lambda: rewriter.rewrite(sources[:1], seed=seed))
        begun = time.perf_counter()
        rows = rewriter.rewrite(sources, num_generations=end, seed=seed)
        spent = (time.perf_counter() - begun) / (len(keys) * end)
        for key, row in zip(keys, rows, strict=True):
            told = self._told.setdefault(key, [])
            told += [(r, spent) for r in row[len(told) :]]

    def _task(self, template: Template | None) -> Rewriter:
        """The rewriter with another task."""
        if template is None:
            task: Rewriter = self.rewriter
            return task
        if template not in self._tasks:
            self._tasks[template] = self.rewriter.with_template(template)
        return self._tasks[template]


def _wanted(asks: Sequence[tuple[Ask, int]], known: Mapping[_Key, int]) -> dict[_Key, int]:
    """How many answers must be written for each key of which more are asked than are known; with
    each ask comes the number of its first answer."""
    wanted: dict[_Key, int] = {}
    for ask, begin in asks:
        for source in ask.sources:
            key = (ask.template, source, ask.track.seed)
            end, had = begin + ask.number, known.get(key, 0)
            if end > had:
                # Earlier answers are written again: twice as many keeps that below one half.
                wanted[key] = max(end, 2 * had, wanted.get(key, 0))
    return wanted
