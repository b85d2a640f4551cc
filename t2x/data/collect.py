"""Has candidates written, drawn and scored, prompt by prompt, into a file that grows.

Candidates come from a *policy*, whose completions are kept as it wrote them (for preferences), from
a *teacher*, any rewriter whose answers are put into the form that is to be learnt, or from a
search. A run that was stopped goes on with the next prompt, and ends with the bytes of one that was
not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from t2x.data.records import Candidate, Scored, Scores, history_record, read_scored
from t2x.data.sources import Sourced
from t2x.errors import T2XError
from t2x.jobs.rewriting import Progress
from t2x.rewriters.parsing import write_completion
from t2x.rollouts.reading import CompletionReader, policy_text
from t2x.rollouts.records import rollout_seeds
from t2x.search.evaluator import Order

if TYPE_CHECKING:
    from t2x.rewriters.guarded import Guarded
    from t2x.rewriters.language_model import LanguageModelRewriter
    from t2x.rollouts.measuring import Measurer
    from t2x.search.rewriter import SearchRewriter
    from t2x.types import Rewrite

__all__ = ["CHUNK", "Policy", "Search", "Teacher", "Writer", "collect", "load_writer", "measured"]

CHUNK = 16  # prompts written and drawn together; also what a kill can cost


class Writer(Protocol):
    """What gives candidates for prompts."""

    def write(self, prompts: Sequence[Sourced], start: int) -> list[Scored]:
        """Candidates of each prompt, their indices from ``start`` on; a search has scored them."""
        ...


@dataclass(frozen=True)
class Policy:
    """A language model's own completions, ``num`` for each prompt: the first greedy and the others
    sampled, unless the rewriter has a temperature.
    """

    rewriter: LanguageModelRewriter
    reader: CompletionReader
    num: int
    seed: int = 0

    def write(self, prompts: Sequence[Sourced], start: int) -> list[Scored]:
        """See ``Writer``."""
        seen = [policy_text(p.text) for p in prompts]
        groups = self.rewriter.complete(seen, num_generations=self.num, seed=self.seed)
        return [
            _scored(
                start + i,
                prompt,
                [
                    _candidate(c.text, *self.reader.read(prompt.text, c, seed=self.seed))
                    for c in group
                    if not c.problem  # not the policy's: the prompt is too long for it, say
                ],
            )
            for i, (prompt, group) in enumerate(zip(prompts, groups, strict=True))
        ]


@dataclass(frozen=True)
class Teacher:
    """The answers of any rewriter, checked by its guard, in the form ``<think>reasoning</think>
    <answer>prompt</answer>``. Where the rewriter can't take a prompt there are no candidates.
    """

    guard: Guarded
    num: int
    seed: int = 0

    def write(self, prompts: Sequence[Sourced], start: int) -> list[Scored]:
        """See ``Writer``."""
        from t2x.jobs.engines import answer_all

        seen = [policy_text(p.text) for p in prompts]
        groups = answer_all(self.guard.rewriter, seen, num=self.num, seed=self.seed)
        return [
            _scored(start + i, prompt, [] if isinstance(group, str) else self._all(prompt, group))
            for i, (prompt, group) in enumerate(zip(prompts, groups, strict=True))
        ]

    def _all(self, prompt: Sourced, parts: Sequence[Rewrite]) -> list[Candidate]:
        kinds = {"failed": "failed", "reverted": "broken"}
        found = []
        for part in parts:
            rewrite = self.guard.judge(prompt.text, [part], seed=self.seed)
            text = "" if part.status == "failed" else part.text
            completion = write_completion(text, part.reasoning, part.negative)
            found.append(_candidate(completion, kinds.get(rewrite.status, "rewrite"), rewrite))
        return found


@dataclass(frozen=True)
class Search:
    """What a search tried, with the scores that it gave; the data of Prompt-A-Video (arXiv
    2412.15156) with ``search:evolution``. ``names`` are other names for its rewards.
    """

    searcher: SearchRewriter
    seed: int = 0
    names: Mapping[str, str] = field(default_factory=dict)

    def write(self, prompts: Sequence[Sourced], start: int) -> list[Scored]:
        """See ``Writer``."""
        found = self.searcher.search([p.text for p in prompts], seed=self.seed)
        return [
            replace(
                history_record(history.record(), start + i, names=self.names), fields=prompt.fields
            )
            for i, (prompt, history) in enumerate(zip(prompts, found, strict=True))
        ]


def load_writer(
    name: str,
    *,
    as_policy: bool,
    generator: str | None = None,
    rewards: Mapping[str, float] | None = None,
    num: int = 4,
    pictures: int = 1,
    seed: int = 0,
    temperature: float | None = None,
) -> Writer:
    """Load what writes candidates.

    Args:
        name: a rewriter as ``load_rewriter`` takes it, ``openai:MODEL`` and ``search:METHOD``
            included.
        as_policy: keep the completions of a language model as it wrote them.
        generator: what will draw, whose limits candidates must fit; None knows none.
        rewards: with weights, for a search.
        num: candidates of each prompt; a search draws as many texts, the prompt itself beside.
        pictures: of each text in a search.
        seed: of the texts.
        temperature: of a policy; see ``LanguageModelRewriter``.

    Raises T2XError for a policy that is no language model, and for a search without rewards.
    """
    from t2x.registry import is_language_model, load_rewriter
    from t2x.rewriters.loading import load_guard

    if num < 1:
        raise T2XError(f"num is {num}; give at least 1")
    if name.startswith("search:"):
        return _load_search(name, generator, rewards, num, pictures, seed)
    if not as_policy:
        return Teacher(load_guard(name, generator=generator), num, seed)
    if not is_language_model(name):
        raise T2XError(
            f"{name!r} is no language model, so it has no completions to prefer; give one that "
            "is, or a search"
        )
    model = cast("LanguageModelRewriter", load_rewriter(name, temperature=temperature))
    return Policy(model, CompletionReader(model.template, generator=generator), num, seed)


def _load_search(
    name: str,
    generator: str | None,
    rewards: Mapping[str, float] | None,
    num: int,
    pictures: int,
    seed: int,
) -> Search:
    from t2x.search.loading import load_search

    if generator is None or not rewards:
        raise T2XError(f"{name} draws and scores; give it a generator and rewards")
    searcher = load_search(
        name.removeprefix("search:"),
        generator=generator,
        rewards=rewards,
        budget=(num + 1) * pictures,
        seeds=pictures,
    )
    own = (reward.name for reward in searcher.evaluator.rewards)
    return Search(searcher, seed, dict(zip(own, rewards, strict=True)))


def collect(
    prompts: Sequence[Sourced],
    writer: Writer | Callable[[], Writer],
    out: Path,
    *,
    settings: Mapping[str, Any],
    measurer: Measurer | Callable[[], Measurer] | None = None,
    names: Sequence[str] | None = None,
    pictures: int = 1,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[Scored]:
    """Write candidates of every prompt to ``out``, or go on with what is there, and give them all.

    ``settings`` are what must be the same for that; ``writer`` and ``measurer`` may be functions,
    called when there is something to do. Without a measurer nothing is drawn. All texts of a prompt
    are drawn from the same seeds. ``names`` are those that the rewards were asked for by; None
    takes their own.
    """
    from t2x.jobs.output import open_output

    with open_output(out, settings, overwrite=overwrite) as output:
        begin = (output.last + 1) // CHUNK * CHUNK
        if progress is not None:
            progress(output.last + 1, len(prompts))
        if output.last + 1 >= len(prompts):
            return read_scored(out)
        loaded = writer() if callable(writer) else writer
        scorer = measurer() if callable(measurer) else measurer
        for start in range(begin, len(prompts), CHUNK):
            chunk = loaded.write(prompts[start : start + CHUNK], start)
            if scorer is not None and not isinstance(loaded, Search):
                chunk = measured(chunk, scorer, pictures=pictures, seed=seed, names=names)
            output.write([one.record() for one in chunk], [])
            if progress is not None:
                progress(start + len(chunk), len(prompts))
    return read_scored(out)


def measured(
    chunk: Sequence[Scored],
    measurer: Measurer,
    *,
    pictures: int,
    seed: int = 0,
    names: Sequence[str] | None = None,
) -> list[Scored]:
    """The same prompts with scores of every candidate that can be drawn, and of the prompt as it
    is; see ``collect``."""
    wanted: list[Order] = []
    found: list[Scored] = []
    for one in chunk:
        seeds = rollout_seeds(seed, 0, one.prompt, pictures)
        found.append(replace(one, seeds=seeds))
        texts = [(one.unchanged, ""), *((c.text, c.negative) for c in _drawable(one))]
        wanted += [Order(one.prompt, *text, s) for text in texts for s in seeds]
    names = names or [reward.name for reward in measurer.ensemble.rewards]
    table = iter(measurer.measure(wanted).tolist())

    def take() -> Scores:
        rows = [next(table) for _ in range(pictures)]
        return {name: tuple(row[k] for row in rows) for k, name in enumerate(names)}

    scored = []
    for one in found:
        original = take()
        drawn = {id(c): replace(c, scores=take()) for c in _drawable(one)}
        candidates = tuple(drawn.get(id(c), c) for c in one.candidates)
        scored.append(replace(one, original=original, candidates=candidates))
    return scored


def _drawable(one: Scored) -> list[Candidate]:
    return [c for c in one.candidates if c.kind == "rewrite"]


def _scored(index: int, prompt: Sourced, candidates: Sequence[Candidate]) -> Scored:
    seen = policy_text(prompt.text)
    return Scored(index, prompt.text, seen, tuple(candidates), fields=prompt.fields)


def _candidate(completion: str, kind: str, rewrite: Rewrite) -> Candidate:
    reasons = [c.reason or c.name for c in rewrite.checks if not c.passed]
    reason = "; ".join(reasons) if kind != "rewrite" else ""
    return Candidate(completion, rewrite.text, rewrite.negative, kind, reason=reason)
