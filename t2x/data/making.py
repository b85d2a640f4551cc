"""Makes data files from start to end: prompts, candidates, choice, file and card.

Behind ``t2x data``; each function gives the card of what it wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.data.collect import CHUNK, collect, load_writer
from t2x.data.decontaminate import find_benchmark, sources
from t2x.data.files import check_free, write_rows
from t2x.data.prompts import PromptRules, Sieve
from t2x.data.ranking import Combine, rank
from t2x.data.records import Scored, read_histories, read_scored
from t2x.data.rows import prompt_row
from t2x.data.selection import (
    AnswerRules,
    PairRules,
    accepted_answers,
    best_answers,
    choose_pairs,
)
from t2x.data.sources import Sourced, read_prompts
from t2x.data.world import of_world, world_rows
from t2x.errors import T2XError
from t2x.plain import plain

if TYPE_CHECKING:
    from t2x.training.config import RewardConfig

__all__ = ["PromptSource", "Sampling", "make_pairs", "make_prompts", "make_sft", "scored_path"]

WORLD = 1000  # prompts of the world, which never end, where nobody says how many
_FOREVER = 200  # draws from the world for each prompt wanted, after which there are no more
SCORED = ".scored.jsonl"
Progress: TypeAlias = "Callable[[int, int | None], None]"


@dataclass(frozen=True)
class PromptSource:
    """Which prompts: see ``t2x.data.sources.read_prompts`` and ``PromptRules``.

    ``source`` may also be scored candidates: a file of an earlier run (``NAME.scored.jsonl``), or a
    folder that ``t2x search`` wrote. ``n`` is at most how many; None is all of a file. ``kinds``
    and ``tasks`` are the world's. ``policy`` counts ``rules.max_tokens``.
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
    """Who writes candidates, and what their pictures are scored by; see ``load_writer``.

    ``reward`` None draws nothing. ``combine`` is over the whole file (``t2x.data.ranking.rank``).
    """

    writer: str
    num: int = 4
    seed: int = 0
    temperature: float | None = None
    reward: RewardConfig | None = None
    combine: Combine = "sum"


def scored_path(out: Path) -> Path:
    """Where the candidates of a data file are kept, to go on with and to choose from again."""
    return out.with_name(out.stem + SCORED)


# ---- commands -----------------------------------------------------------------------------------


def make_prompts(prompts: PromptSource, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write prompts to roll out from: prompt, original_prompt, and the world's kind and task."""
    check_free(out, overwrite=overwrite)
    dropped: Counter[str] = Counter()
    found = _gather(prompts, dropped)
    rows = [prompt_row(p.text, _seen(p.text), **p.fields) for p in found]
    card = _card("prompts", prompts, dropped)
    return write_rows(out, rows, card, overwrite=overwrite)


def make_sft(
    prompts: PromptSource,
    sampling: Sampling | None,
    rules: AnswerRules,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write prompts with the answers to learn.

    Without ``sampling`` they are of the world's own teacher, or of the candidates that
    ``prompts.source`` holds. With rewards an answer has to be better than the prompt as it is.
    """
    check_free(out, overwrite=overwrite)
    dropped: Counter[str] = Counter()
    if sampling is None and prompts.source == "world":
        query = f"sft?n={prompts.n or WORLD}&seed={prompts.seed}"
        rows = world_rows(query, dropped)
        return write_rows(out, rows, _card("sft", prompts, dropped), overwrite=overwrite)
    scored = _candidates(
        prompts, sampling, out, dropped, as_policy=False, overwrite=overwrite, progress=progress
    )
    if any(one.original for one in scored):
        weights = _weights(sampling, scored)
        combine = sampling.combine if sampling is not None else "sum"
        rows = best_answers(rank(scored, weights, combine=combine), rules, dropped)
    else:
        rows = accepted_answers(scored, rules, dropped)
    card = _card("sft", prompts, dropped, sampling=sampling, rules=rules)
    return write_rows(out, rows, card | _kinds(scored), overwrite=overwrite)


def make_pairs(
    prompts: PromptSource,
    sampling: Sampling | None,
    rules: PairRules,
    out: Path,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write prompts with a better and a worse answer.

    ``sampling`` may be None if ``prompts.source`` holds scored candidates; else it needs rewards.
    """
    check_free(out, overwrite=overwrite)
    if not prompts.is_scored and (sampling is None or sampling.reward is None):
        raise T2XError("pairs are chosen by pictures; give a policy and rewards")
    dropped: Counter[str] = Counter()
    scored = _candidates(
        prompts, sampling, out, dropped, as_policy=True, overwrite=overwrite, progress=progress
    )
    combine = sampling.combine if sampling is not None else "sum"
    ranking = rank(scored, _weights(sampling, scored), combine=combine)
    rows, known = choose_pairs(ranking, rules, dropped)
    card = _card("pairs", prompts, dropped, sampling=sampling, rules=rules)
    known["pictures_per_text"] = ranking.pictures
    return write_rows(out, rows, {**card, **_kinds(scored), "pairs": known}, overwrite=overwrite)


# ---- prompts and candidates ---------------------------------------------------------------------


def _gather(prompts: PromptSource, dropped: Counter[str]) -> list[Sourced]:
    """The prompts that fit, as many as are wanted."""
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
    rules = prompts.rules
    if rules.max_tokens is None or prompts.policy is None:
        return Sieve(rules)
    from t2x.registry import is_language_model, load_rewriter

    if not is_language_model(prompts.policy):
        raise T2XError(f"{prompts.policy!r} is no language model, and counts no tokens")
    encoder: Any = load_rewriter(prompts.policy)
    return Sieve(rules, count_tokens=lambda text: len(encoder.encoder.encode(text)))


def _candidates(
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
            _gather(prompts, dropped), sampling, scored_path(out), as_policy=as_policy,
            overwrite=overwrite, progress=progress,
        )  # fmt: skip
    if not prompts.rules.decontaminated:
        return found
    return [_clean(one, dropped) for one in found]


def _read_candidates(prompts: PromptSource, dropped: Counter[str]) -> list[Scored]:
    path = Path(prompts.source)
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


# ---- cards --------------------------------------------------------------------------------------


def _seen(prompt: str) -> str:
    from t2x.rollouts.reading import policy_text

    return policy_text(prompt)


def _weights(sampling: Sampling | None, scored: Sequence[Scored]) -> dict[str, float]:
    """The rewards' weights: 1 each for candidates of a file, where nobody says others."""
    if sampling is not None and sampling.reward is not None:
        return dict(sampling.reward.rewards)
    return dict.fromkeys((name for one in scored for name in one.original), 1.0)


def _kinds(scored: Sequence[Scored]) -> dict[str, Any]:
    kinds = Counter(c.kind for one in scored for c in one.candidates)
    return {"prompts_with_candidates": len(scored), "candidates": dict(sorted(kinds.items()))}


def _card(
    command: str,
    prompts: PromptSource,
    dropped: Counter[str],
    *,
    sampling: Sampling | None = None,
    rules: AnswerRules | PairRules | None = None,
) -> dict[str, Any]:
    from t2x import __version__

    if sampling is not None and sampling.reward is not None:  # where pictures lie changes nothing
        sampling = replace(sampling, reward=replace(sampling.reward, store=None))
    return {
        "command": f"t2x data {command}",
        "t2x": __version__,
        "prompts": plain(prompts, exact=True),
        "sampling": plain(sampling, exact=True),
        "rules": plain(rules, exact=True),
        "dropped": dict(sorted(dropped.items())),
        "decontaminated": [*sources()["benchmarks"]] if prompts.rules.decontaminated else [],
    }
