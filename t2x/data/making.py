"""Makes data files from start to end: prompts, candidates, choice, file and card.

Behind ``t2x data``; each function gives the card of what it wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from t2x.data.answers import AnswerRules, accepted_answers, best_answers
from t2x.data.decontaminate import sources
from t2x.data.files import check_free, write_rows
from t2x.data.gathering import WORLD, PromptSource, Sampling, gather, gather_candidates, scored_path
from t2x.data.pairs import PairRules, choose_pairs
from t2x.data.ranking import Combine, Ranking, rank
from t2x.data.records import Scored
from t2x.data.rows import prompt_row
from t2x.data.world import world_rows
from t2x.errors import T2XError
from t2x.jobs.rewriting import Progress
from t2x.plain import plain
from t2x.rollouts.config import RolloutConfig
from t2x.rollouts.reading import policy_text

__all__ = ["Scale", "make_pairs", "make_prompts", "make_sft"]


@dataclass(frozen=True)
class Scale:
    """How rewards become one number (``t2x.data.ranking.rank``). ``weights`` None are those that
    the pictures are scored with, or 1 each for candidates of a file. ``failure_margin``: the
    ``margin`` of the section ``rollout``, if the policy is trained with another one.
    """

    weights: Mapping[str, float] | None = None
    combine: Combine = "sum"
    failure_margin: float = RolloutConfig.margin

    def __post_init__(self) -> None:
        if not self.failure_margin > 0:
            raise T2XError(f"failure_margin is {self.failure_margin}; it must be positive")

    def of(self, sampling: Sampling | None, scored: Sequence[Scored]) -> Scale:
        """The same with weights."""
        weights = self.weights
        if weights is None and sampling is not None and sampling.reward is not None:
            weights = sampling.reward.rewards
        if weights is None:
            weights = dict.fromkeys((name for one in scored for name in one.original), 1.0)
        return replace(self, weights=dict(weights))

    def rank(self, scored: Sequence[Scored]) -> Ranking:
        """Put the candidates of every prompt in order."""
        return rank(
            scored,
            self.weights or {},
            combine=self.combine,
            failure_margin=self.failure_margin,
        )


# ---- commands -----------------------------------------------------------------------------------


def make_prompts(prompts: PromptSource, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write prompts to roll out from: prompt, original_prompt, and the world's kind and task."""
    check_free(out, overwrite=overwrite)
    dropped: Counter[str] = Counter()
    found = gather(prompts, dropped)
    rows = [prompt_row(p.text, policy_text(p.text), **p.fields) for p in found]
    card = _card("prompts", prompts, dropped)
    return write_rows(out, rows, card, overwrite=overwrite)


def make_sft(
    prompts: PromptSource,
    sampling: Sampling | None,
    rules: AnswerRules,
    out: Path,
    *,
    scale: Scale | None = None,
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
        if prompts != PromptSource(n=prompts.n, seed=prompts.seed):
            raise T2XError(
                "the world's own teacher chooses its prompts; give a teacher, or no rules"
            )
        query = f"sft?n={prompts.n or WORLD}&seed={prompts.seed}"
        rows = world_rows(query, dropped)
        return write_rows(out, rows, _card("sft", prompts, dropped), overwrite=overwrite)
    scored = gather_candidates(
        prompts, sampling, out, dropped, as_policy=False, overwrite=overwrite, progress=progress
    )
    kept_at = Path(prompts.source) if prompts.is_scored else scored_path(out)
    known: dict[str, Any] = {}
    if any(one.original for one in scored):
        used = (scale or Scale()).of(sampling, scored)
        ranking = used.rank(scored)
        rows = best_answers(ranking, rules, dropped)
        known = {"scale": plain(used), "noise": ranking.noise}
    else:
        rows = accepted_answers(scored, rules, dropped)
    card = _card("sft", prompts, dropped, sampling=sampling, rules=rules, scored=kept_at)
    return write_rows(out, rows, {**card, **_kinds(scored), **known}, overwrite=overwrite)


def make_pairs(
    prompts: PromptSource,
    sampling: Sampling | None,
    rules: PairRules,
    out: Path,
    *,
    scale: Scale | None = None,
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
    scored = gather_candidates(
        prompts, sampling, out, dropped, as_policy=True, overwrite=overwrite, progress=progress
    )
    kept_at = Path(prompts.source) if prompts.is_scored else scored_path(out)
    used = (scale or Scale()).of(sampling, scored)
    ranking = used.rank(scored)
    rows, known = choose_pairs(ranking, rules, dropped)
    card = _card("pairs", prompts, dropped, sampling=sampling, rules=rules, scored=kept_at)
    card |= {**_kinds(scored), "scale": plain(used), "pairs": known}
    known["pictures_per_text"] = ranking.pictures
    return write_rows(out, rows, card, overwrite=overwrite)


# ---- cards --------------------------------------------------------------------------------------


def _job_of(scored: Path) -> dict[str, Any] | None:
    """What the run was that candidates are of (weights, versions), as the file beside them says."""
    from t2x.jobs.output import side_files
    from t2x.settings import read_object

    path = side_files(scored)[1]
    return read_object(path) if path.is_file() else None


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
    scored: Path | None = None,
) -> dict[str, Any]:
    from t2x import __version__

    if sampling is not None and sampling.reward is not None:  # where pictures lie changes nothing
        sampling = replace(sampling, reward=replace(sampling.reward, store=None))
    if prompts.is_scored:  # the candidates are given, with their scores
        sampling = None
    return {
        "command": f"t2x data {command}",
        "t2x": __version__,
        "prompts": plain(prompts, exact=True),
        "sampling": plain(sampling, exact=True),
        "candidates_of": None if scored is None else _job_of(scored),
        "rules": plain(rules, exact=True),
        "dropped": dict(sorted(dropped.items())),
        "decontaminated": [*sources()["benchmarks"]] if prompts.rules.decontaminated else [],
    }
