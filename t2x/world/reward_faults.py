"""Where a reward is blind: its AUC against the judge by the kind of fault, on generated pictures.

For each held-out prompt the generator draws the scene that is asked for and one that differs from
it in a single thing: another colour, count, object or relation. A pair counts if the judge finds
the first picture right and the second wrong in just that thing, so that nothing else tells the two
apart. *blur* compares right pictures with themselves, blurred. What a reward sees is the prompt as
the user typed it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.world.captions import dense_prompt
from t2x.world.corruption import blur
from t2x.world.judge import FAULTS, Verdict, judge_pictures
from t2x.world.preferences import perturb
from t2x.world.prompts import UserPrompt, held_out_prompts
from t2x.world.reward_auc import auc
from t2x.world.scene import TASKS, Scene

if TYPE_CHECKING:
    from t2x.types import Generator, RewardModel
    from t2x.world.evaluate import Progress

__all__ = [
    "BLIND",
    "BLUR",
    "KINDS",
    "FaultPairs",
    "blind_to",
    "draw_fault_pairs",
    "fault_table",
    "plant",
    "score_faults",
]

KINDS = (*FAULTS, "blur")
BLIND = 0.6  # an AUC below it is hardly better than a coin
BLUR = 1.2  # standard deviation of the Gaussian in pixels of a 64x64 picture: a person sees it

_CHANGES = {
    "recolor": "colour",
    "swap colors": "colour",
    "recount": "count",
    "reclass": "object",
    "add": "object",
    "drop": "object",
    "flip": "relation",
}
_TRIES = 60
_RESAMPLES = 1000


@dataclass(frozen=True)
class FaultPairs:
    """P prompts with a right and a wrong picture each, (P, 3, H, W) in [0, 1], and the fault of
    the wrong one; ``asked`` says how many pairs of each fault were drawn before the judge chose.
    """

    prompts: tuple[str, ...]
    faults: tuple[str, ...]
    right: Tensor
    wrong: Tensor
    asked: Counter[str]


def plant(scene: Scene, fault: str, rng: random.Random) -> Scene | None:
    """Change one thing of ``scene``, of the kind ``fault`` (a key of ``FAULTS``); None where the
    scene states nothing of that kind.
    """
    for _ in range(_TRIES):
        changed, name = perturb(scene, rng, held_out=True)
        if _CHANGES.get(name) == fault:
            return changed
    return None


def _plan(prompts: Sequence[UserPrompt], seed: int) -> list[tuple[UserPrompt, Scene, str]]:
    """Give every prompt a changed scene, of the fault that has the fewest so far."""
    rng = random.Random(f"faults {seed}")
    given: Counter[str] = Counter()
    planned = []
    for prompt in prompts:
        for fault in sorted(FAULTS, key=lambda f: (given[f], FAULTS.index(f))):
            if changed := plant(prompt.scene, fault, rng):
                planned.append((prompt, changed, fault))
                given[fault] += 1
                break
    return planned


def draw_fault_pairs(
    generator: Generator,
    prompts: Sequence[UserPrompt],
    *,
    seed: int = 0,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> FaultPairs:
    """Draw both pictures of every prompt in the generator's best caption style, and keep the pairs
    in which the judge finds nothing but the fault.
    """
    planned = _plan(prompts, seed)
    right: list[Tensor] = []
    wrong: list[Tensor] = []
    kept: list[int] = []
    for start in range(0, len(planned), batch_size):
        part = range(start, min(start + batch_size, len(planned)))
        scenes = [[planned[i][0].scene for i in part], [planned[i][1] for i in part]]
        seeds = [seed + 2 * i for i in part], [seed + 2 * i + 1 for i in part]
        drawn = [_draw(generator, s, own) for s, own in zip(scenes, seeds, strict=True)]
        good = judge_pictures(scenes[0], drawn[0])
        made = judge_pictures(scenes[1], drawn[1])
        off = judge_pictures(scenes[0], drawn[1])
        for row, i in enumerate(part):
            if _counts(good[row], made[row], off[row], planned[i][2]):
                kept.append(i)
                right.append(drawn[0][row])
                wrong.append(drawn[1][row])
        if progress is not None:
            progress("pairs", part[-1] + 1, len(planned))
    if not kept:
        raise T2XError(
            f"none of {len(planned)} pairs holds a right picture and one with a single fault; take "
            "a better generator or more prompts"
        )
    return FaultPairs(
        tuple(planned[i][0].text for i in kept),
        tuple(planned[i][2] for i in kept),
        torch.stack(right),
        torch.stack(wrong),
        Counter(fault for *_, fault in planned),
    )


def _draw(generator: Generator, scenes: Sequence[Scene], seeds: Sequence[int]) -> Tensor:
    texts = [dense_prompt(s, seed) for s, seed in zip(scenes, seeds, strict=True)]
    media = generator.generate(texts, seeds=seeds)
    return media if isinstance(media, Tensor) else torch.cat(media)


def _counts(good: Verdict, made: Verdict, off: Verdict, fault: str) -> bool:
    """Whether a pair shows the fault and no other: the second picture is right for what it was
    told, and wrong for the prompt in that very thing.
    """
    return good.correct and made.correct and off.fault == fault


# ---- table --------------------------------------------------------------------------------------


def _interval(right: Tensor, wrong: Tensor, seed: int) -> list[float]:
    """95 % bootstrap interval of the AUC over pairs."""
    rng = np.random.default_rng(seed)
    n = len(right)
    labels = torch.arange(2 * n) < n
    rows = torch.from_numpy(rng.integers(n, size=(_RESAMPLES, n)))
    values = [auc(torch.cat([right[r], wrong[r]]), labels) for r in rows]
    return [float(x) for x in np.nanquantile(values, [0.025, 0.975])]


def _entry(right: Tensor, wrong: Tensor, seed: int) -> dict[str, Any]:
    """AUC over all right against all wrong pictures of a fault, and the share of pairs in order."""
    known = ~(right.isnan() | wrong.isnan())
    a, b = right[known], wrong[known]
    if len(a) == 0:
        return {"auc": float("nan"), "ci95": [float("nan")] * 2, "paired": float("nan"),
                "missing": len(right)}  # fmt: skip
    labels = torch.arange(2 * len(a)) < len(a)
    return {
        "auc": auc(torch.cat([a, b]), labels),
        "ci95": _interval(a, b, seed),
        "paired": float(((a > b).double() + 0.5 * (a == b)).mean()),
        "missing": int((~known).sum()),
    }


def score_faults(
    rewards: Sequence[RewardModel], pairs: FaultPairs, *, seed: int = 0
) -> dict[str, Any]:
    """Of every reward and fault: ``auc`` with ``ci95``, ``paired``, and ``missing`` pairs."""
    found: dict[str, Any] = {}
    for reward in rewards:
        right = reward.score(pairs.prompts, pairs.right).double()
        wrong = reward.score(pairs.prompts, pairs.wrong).double()
        blurred = reward.score(pairs.prompts, blur(pairs.right, BLUR)).double()
        rows = {}
        for fault in FAULTS:
            own = torch.tensor([f == fault for f in pairs.faults])
            if own.any():
                rows[fault] = _entry(right[own], wrong[own], seed)
        rows["blur"] = _entry(right, blurred, seed)
        found[reward.name] = rows
    return found


def blind_to(kinds: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Faults that a reward does not see: their AUC in ``score_faults`` is below ``BLIND``."""
    return [kind for kind, entry in kinds.items() if not entry["auc"] >= BLIND]


def fault_table(
    rewards: Sequence[RewardModel],
    *,
    generator: str | Generator = "emoji-flow",
    n: int = 1000,
    seed: int = 11,
    batch_size: int = 32,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure rewards by kind of fault on ``n`` held-out prompts; plain data for JSON.

    ``pairs`` counts those that the judge kept, by fault; ``rewards`` holds the rows of
    ``score_faults``. Raises T2XError for fewer prompts than tasks.
    """
    from t2x.registry import load_generator

    if n < len(TASKS):
        raise T2XError(
            f"{n} prompts do not reach all {len(TASKS)} tasks; give at least {len(TASKS)}"
        )
    model = load_generator(generator) if isinstance(generator, str) else generator
    pairs = draw_fault_pairs(
        model, held_out_prompts(n, seed), seed=seed, batch_size=batch_size, progress=progress
    )
    counts = Counter(pairs.faults)
    return {
        "generator": model.model_id,
        "n": n,
        "seed": seed,
        "pairs": {**{f: counts[f] for f in FAULTS}, "blur": len(pairs.faults)},
        "asked": dict(pairs.asked),
        "rewards": score_faults(rewards, pairs, seed=seed),
    }
