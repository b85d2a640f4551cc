"""Prompts and their candidates, as a data set is asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.benchmarks.marker import refuse_benchmark
from t2x.data.collect import CHUNK, collect, load_writer
from t2x.data.decontaminate import find_benchmark
from t2x.data.prompts import PromptRules, Sieve
from t2x.data.records import Scored, read_histories, read_scored
from t2x.data.sources import Sourced, read_prompts
from t2x.data.world import of_world
from t2x.errors import T2XError
from t2x.jobs.rewriting import Progress
from t2x.plain import plain

if TYPE_CHECKING:
    from t2x.training.config import RewardConfig

__all__ = ["PromptSource", "Sampling", "gather", "gather_candidates", "scored_path"]

WORLD = 1000  # prompts of the world, which never end, where nobody says how many
_FOREVER = 200  # draws from the world for each prompt wanted, after which there are no more
SCORED = ".scored.jsonl"


@dataclass(frozen=True)
class PromptSource:
    """Which prompts: see ``t2x.data.sources.read_prompts`` and ``PromptRules``.

    ``source`` may also be scored candidates: a file of an earlier run (``NAME.scored.jsonl``), or a
    folder that ``t2x search`` wrote. ``n`` is at most how many; None is all of a file. ``kinds``
    and ``tasks`` are the world's. ``policy`` counts ``rules.max_tokens``. ``exclude`` is a file
    whose prompts are left out, so that two sets share none.
    """

    source: str = "world"
    n: int | None = None
    seed: int = 0
    column: str | None = None
    split: str = "train"
    kinds: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    rules: PromptRules = field(default_factory=PromptRules)
    policy: str | None = None
    exclude: str | None = None

    def __post_init__(self) -> None:
        if self.n is not None and self.n < 1:
            raise T2XError(f"n is {self.n}; give at least 1, or leave it out")
        if (self.kinds or self.tasks) and self.source != "world":
            raise T2XError(f"kinds and tasks are the world's, and the source is {self.source!r}")

    @property
    def is_scored(self) -> bool:
        """Whether it holds candidates with scores."""
        return self.source.endswith(SCORED) or Path(self.source).is_dir()


@dataclass(frozen=True)
class Sampling:
    """Who writes candidates, and what their pictures are scored by (None draws nothing); see
    ``load_writer``.
    """

    writer: str
    num: int = 4
    seed: int = 0
    temperature: float | None = None
    reward: RewardConfig | None = None


def scored_path(out: Path) -> Path:
    """Where the candidates of a data file are kept, to go on with and to choose from again."""
    return out.with_name(out.stem + SCORED)


def gather(prompts: PromptSource, dropped: Counter[str]) -> list[Sourced]:
    """The prompts that fit, as many as are wanted; T2XError for what ``t2x benchmark`` wrote."""
    if prompts.source != "world":
        refuse_benchmark(prompts.source)
    found: Iterator[Sourced] = read_prompts(
        prompts.source, seed=prompts.seed, column=prompts.column, split=prompts.split
    )
    wanted = prompts.n
    if prompts.source == "world":
        wanted = prompts.n or WORLD
        found = of_world(islice(found, _FOREVER * wanted), kinds=prompts.kinds, tasks=prompts.tasks)
    sieve = _sieve(prompts)
    kept = list(islice(sieve.admit(found), wanted))
    dropped.update(sieve.dropped)
    if prompts.source == "world" and wanted is not None and len(kept) < wanted:
        raise T2XError(
            f"the world has only {len(kept)} different prompts like that; give a smaller n, or "
            "rules that let more through"
        )
    return kept


def _sieve(prompts: PromptSource) -> Sieve:
    count = None
    if prompts.rules.max_tokens is not None and prompts.policy is not None:
        count = _token_counter(prompts.policy)
    sieve = Sieve(prompts.rules, count_tokens=count)
    if prompts.exclude is not None:
        sieve.exclude(read_prompts(prompts.exclude))
    return sieve


def _token_counter(policy: str) -> Callable[[str], int]:
    from t2x.registry import is_language_model, load_rewriter

    if not is_language_model(policy):
        raise T2XError(f"{policy!r} is no language model, and counts no tokens")
    rewriter: Any = load_rewriter(policy)
    return lambda text: len(rewriter.encoder.encode(text))


def gather_candidates(
    prompts: PromptSource,
    sampling: Sampling | None,
    out: Path,
    dropped: Counter[str],
    *,
    as_policy: bool,
    overwrite: bool,
    progress: Progress | None,
) -> list[Scored]:
    """Scored candidates of every prompt, without those that say what a benchmark says."""
    if prompts.is_scored:
        found = _read_candidates(prompts, dropped)
    elif sampling is None:
        raise T2XError(f"{prompts.source!r} holds prompts alone; say who writes answers to them")
    else:
        found = _collected(
            gather(prompts, dropped), sampling, scored_path(out), as_policy=as_policy,
            overwrite=overwrite, progress=progress,
        )  # fmt: skip
    if not prompts.rules.decontaminated:
        return found
    return [_clean(one, dropped) for one in found]


def _read_candidates(prompts: PromptSource, dropped: Counter[str]) -> list[Scored]:
    path = Path(prompts.source)
    refuse_benchmark(path)
    found = read_histories(path) if path.is_dir() else read_scored(path)
    sieve = _sieve(prompts)
    places = ((Sourced(one.prompt, {"at": i})) for i, one in enumerate(found))
    kept = list(islice(sieve.admit(places), prompts.n))
    dropped.update(sieve.dropped)
    return [found[p.fields["at"]] for p in kept]


def _collected(
    prompts: Sequence[Sourced],
    sampling: Sampling,
    out: Path,
    *,
    as_policy: bool,
    overwrite: bool,
    progress: Progress | None,
) -> list[Scored]:
    from t2x.rollouts.config import RolloutConfig
    from t2x.rollouts.measuring import build_measurer

    if not prompts:
        raise T2XError("no prompt is left to write answers to; give other ones, or milder rules")
    reward = sampling.reward
    return collect(
        prompts,
        partial(
            load_writer,
            sampling.writer,
            as_policy=as_policy,
            generator=None if reward is None else reward.generator,
            rewards=None if reward is None else reward.rewards,
            num=sampling.num,
            pictures=1 if reward is None else reward.pictures,
            seed=sampling.seed,
            temperature=sampling.temperature,
        ),
        out,
        settings=_settings(prompts, sampling),
        measurer=None if reward is None else partial(build_measurer, reward, RolloutConfig()),
        names=None if reward is None else [*reward.rewards],
        pictures=1 if reward is None else reward.pictures,
        seed=sampling.seed,
        overwrite=overwrite,
        progress=progress,
    )


def _settings(prompts: Sequence[Sourced], sampling: Sampling) -> dict[str, Any]:
    """What must be the same for a run to go on where another stopped."""
    from t2x.jobs.lines import prompt_source
    from t2x.jobs.rewriting import Job

    source = prompt_source([p.text for p in prompts])
    job = Job(sampling.writer, sampling.num, sampling.seed).settings(source)
    reward = plain(sampling.reward, exact=True)
    if reward is not None:
        del reward["combine"], reward["store"]  # they change no score
    own = {"temperature": sampling.temperature, "reward": reward, "batch": CHUNK}
    return job | own


def _clean(one: Scored, dropped: Counter[str]) -> Scored:
    """Without candidates whose text is, or holds, a prompt of a benchmark."""
    kept = []
    for candidate in one.candidates:
        match = find_benchmark(candidate.text) if candidate.text != one.unchanged else None
        if match is None:
            kept.append(candidate)
        else:
            dropped[f"answer of {match.benchmark} ({match.kind})"] += 1
    return replace(one, candidates=tuple(kept))
