"""Guidance measured honestly: arms that spend the same FLOPs on the same held-out prompts and
seeds, with the same rewards, scored by the judge.

    result = evaluate_guidance(GuidedSetup(n=1000), store=Store("runs/guidance"))

A budget is a number of plain pictures: what the generator's own default picture costs, times that
number, in FLOPs, with rewards, backward passes, decoder, text encoders and rewriter. Each arm buys
as much of what it does as fits. Beside the judge's score stand the ensemble that the arms raise, a
reward that none of them sees (``held_out``), and diversity over seeds; an arm that raises the first
while the judge or the second falls is over-optimised, and is called so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from t2x.errors import T2XError
from t2x.evaluation.intervals import Difference, bootstrap_mean, paired_difference
from t2x.guidance.metering import Counts
from t2x.registry import check_names
from t2x.world.arms import check_sources
from t2x.world.guided_arms import Arm, Order, fit_size
from t2x.world.guided_names import ABLATIONS, ARMS, make_arm
from t2x.world.guided_pictures import Drawn, Workbench
from t2x.world.prompts import SPLITS, UserPrompt

if TYPE_CHECKING:
    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.store import Store
    from t2x.types import RewardModel

__all__ = [
    "BUDGETS",
    "HELD_OUT",
    "REWARDS",
    "GuidedSetup",
    "ablated_arms",
    "evaluate_guidance",
    "over_optimised",
]

# What all arms optimise, and what none does: of weights of its own, so that what deceives the first
# two need not deceive it. Questions, since adaptive weights need answers.
REWARDS: dict[str, float] = {"questions": 1.0, "clip": 1.0}
HELD_OUT = "hps"
BUDGETS = (3.0, 6.0, 12.0)
REFERENCES = ("one-picture", "unguided", "best-of-n")
Progress: TypeAlias = "Callable[[str, int, int], None]"  # what, done, total
Array: TypeAlias = "NDArray[np.floating[Any]]"


@dataclass(frozen=True)
class GuidedSetup:
    """What is compared.

    Args:
        arms: names of ``t2x.world.guided_names``.
        n: prompts.
        budgets: in plain pictures.
        rewriters: sources of texts (``t2x.world.arms``), "raw" is the user's words; each arm runs
            with each.
        seed: of prompts and pictures.
        generator: what draws.
        rewards: what the arms raise: names with weights, or loaded rewards, each weighing 1.
        held_out: a reward that no arm sees.
        settings: of the arms, by name; defaults for those that are not there.
        split: "held-out", or "validation" to choose settings on.
        diverse: prompts (the first) that are drawn from several seeds.
        diverse_seeds: how many seeds those are.
        chunk: pictures drawn together; also what a kill can cost of an arm.
        dtype: number format of the generator and of what the arms raise: "float32", "bfloat16", or
            "auto", which is the second where the machine is fast at it.
    """

    arms: Sequence[str] = tuple(ARMS)
    n: int = 1000
    budgets: Sequence[float] = BUDGETS
    rewriters: Sequence[str] = ("raw", "rewrite")
    seed: int = 7
    generator: str | DiffusionGenerator = "emoji-flow-turbo"
    rewards: Mapping[str, float] | Sequence[RewardModel] = field(default_factory=REWARDS.copy)
    held_out: str | RewardModel = HELD_OUT
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    split: str = "held-out"
    diverse: int = 50
    diverse_seeds: int = 4
    chunk: int = 32
    dtype: str = "float32"

    def check(self) -> None:
        """Raise T2XError, before anything is loaded, for what can't be run."""
        for names, what in ((self.arms, "arms"), (self.rewriters, "rewriters")):
            if not names or len(set(names)) != len(names):
                raise T2XError(f"the {what} are {', '.join(names) or 'none'}; give each once")
        for name in self.arms:
            self.arm(name)
        if self.split not in SPLITS:
            raise T2XError(f"unknown split {self.split!r}; allowed: {', '.join(SPLITS)}")
        if self.n < 1 or self.chunk < 1:
            raise T2XError(f"n is {self.n} and chunk {self.chunk}; give at least 1")
        if not self.budgets or not all(1 <= budget < math.inf for budget in self.budgets):
            raise T2XError(f"budgets are {list(self.budgets)}; give 1 plain picture or more")
        check_sources({name: name for name in self.rewriters})
        if isinstance(self.rewards, Mapping):
            check_names("rewards", self.rewards)
        check_names("rewards", [self.held_out])
        if (found := len(self.prompts)) != self.n:
            raise T2XError(f"n is {self.n}, and the split {self.split} gave {found} prompts")
        held_out = self.held_out if isinstance(self.held_out, str) else self.held_out.name
        if held_out in self.reward_names:
            raise T2XError(
                f"{held_out} is optimised and held out; leave it out of the rewards, or hold "
                "another one out"
            )

    @property
    def reward_names(self) -> list[str]:
        """Of what the arms raise."""
        if isinstance(self.rewards, Mapping):
            return list(self.rewards)
        return [reward.name for reward in self.rewards]

    def arm(self, name: str) -> Arm:
        """An arm with its settings; an ablation has those of the whole."""
        return make_arm(name, self.settings.get(name.partition(" without ")[0]))

    @cached_property
    def prompts(self) -> list[UserPrompt]:
        """The prompts, the same for all arms."""
        return SPLITS[self.split](self.n, self.seed)


def ablated_arms(names: Sequence[str]) -> list[str]:
    """The references, each guided arm of ``names``, and it with its parts left out one by one."""
    guided = [name for name in names if name not in REFERENCES]
    parts = [f"{name} {part}" for name in guided for part in ABLATIONS]
    return [*REFERENCES, *guided, *parts]


# ---- running ------------------------------------------------------------------------------------


@dataclass
class _Row:
    """An arm at a budget with one source of texts, and what it drew; nothing where the budget does
    not buy its least."""

    arm: str
    texts: str
    budget: float
    size: int | None
    drawn: list[Drawn] = field(default_factory=list)

    @property
    def label(self) -> str:
        """What the table calls it."""
        texts = "" if self.texts == "raw" else f"+{self.texts}"
        return f"{self.arm}{texts}@{self.budget:g}"


def evaluate_guidance(
    setup: GuidedSetup, *, store: Store | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Score arms at equal FLOPs; plain data for JSON.

    ``arms`` maps "ARM@BUDGET" (with "+SOURCE" for texts that are not the user's) to overall, ci95,
    tasks, size (what the budget bought), and per picture flops, flops_of_budget, nfe,
    reward_forwards, reward_backwards, seconds; reward (the ensemble, in deviations from plain
    pictures), rewards, heldout_reward, diversity, over_optimised ("true", "false", "undecided";
    against ``one-picture`` or ``unguided`` of the same texts). An arm whose least is above a budget
    has only size null. ``differences`` maps "A - B" to paired differences in the judge's score,
    ``reward`` and ``heldout_reward``.

    Args:
        setup: what is compared.
        store: pictures and results that are there already are not made again, so that an evaluation
            that was stopped goes on.
        progress: hears (what, pictures done, in all).

    Raises T2XError for what ``GuidedSetup.check`` refuses.
    """
    setup.check()
    if progress is not None:
        progress("loading, and measuring what each part costs", 0, 1)
    studio = Workbench.load(
        setup.generator, setup.rewards, setup.held_out, store=store, dtype=setup.dtype
    )
    if progress is not None:
        progress("finding what budgets buy", 0, 1)
    studio.calibrate([Order(p.text, p.text, 0) for p in _calibration(setup)])
    orders, scenes = _orders(setup)
    texts = {source: studio.texts(source, setup.prompts, setup.seed) for source in setup.rewriters}
    rows = [
        _Row(name, source, budget, size)
        for source in setup.rewriters
        for budget in setup.budgets
        for name in setup.arms
        for size in [_size(setup, studio, name, texts[source].charged, budget)]
    ]
    total, done = len(orders) * sum(row.size is not None for row in rows), 0
    for row in rows:
        if row.size is None:
            continue
        arm, source = setup.arm(row.arm), texts[row.texts]
        settings = {"arm": repr(arm), "size": row.size}
        for start in range(0, len(orders), setup.chunk):
            part = slice(start, start + setup.chunk)
            written = [Order(o.prompt, source.of[o.prompt], o.seed) for o in orders[part]]
            row.drawn += studio.drawn(arm, row.size, written, scenes[part], settings)
            done += len(written)
            if progress is not None:
                progress(row.label, done, total)
        row.drawn = [drawn.charged(source.charged) for drawn in row.drawn]
    return _table(setup, studio, rows)


def _calibration(setup: GuidedSetup) -> list[UserPrompt]:
    """Prompts that say how far plain pictures' rewards spread; of validation, whatever is
    measured."""
    return SPLITS["validation"](32, 1)


def _orders(setup: GuidedSetup) -> tuple[list[Order], list[Any]]:
    """One picture of each prompt, then more seeds of the first ``diverse`` ones; their scenes."""
    from t2x.world.arms import picture_seed

    seed, prompts = setup.seed, setup.prompts
    places = [(i, 0) for i in range(len(prompts))]
    more = range(1, setup.diverse_seeds)
    places += [(i, k) for i in range(min(setup.diverse, len(prompts))) for k in more]
    orders = [Order(prompts[i].text, prompts[i].text, picture_seed(seed, i, k)) for i, k in places]
    return orders, [prompts[i].scene for i, _ in places]


def _size(
    setup: GuidedSetup, studio: Workbench, name: str, charged: Counts, budget: float
) -> int | None:
    arm = setup.arm(name)
    left = budget * studio.unit - studio.bench.costs.flops(charged)
    return fit_size(arm.least, studio.cost_of(arm), left, most=arm.most)


# ---- tables -------------------------------------------------------------------------------------


def _table(setup: GuidedSetup, studio: Workbench, rows: Sequence[_Row]) -> dict[str, Any]:
    from t2x import __version__

    columns = {row.label: _Columns(setup, studio, row) for row in rows if row.drawn}
    arms: dict[str, Any] = {}
    differences: dict[str, Any] = {}
    for row in rows:
        if not row.drawn:
            arms[row.label] = {"arm": row.arm, "budget": row.budget, "size": None}
            continue
        own = columns[row.label]
        for other in _compared(row, rows):
            gap = own.against(columns[other.label])
            differences[f"{row.label} - {other.label}"] = {k: asdict(d) for k, d in gap.items()}
        flag = _flag(row, rows, columns)
        arms[row.label] = {**own.summary(), "over_optimised": flag}
    return {
        "generator": studio.bench.generator.model_id,
        "split": setup.split,
        "n": setup.n,
        "seed": setup.seed,
        "budgets": list(setup.budgets),
        "plain_picture_flops": studio.unit,
        "dtype": studio.identity["dtype"],
        "rewards": dict(studio.bench.weights),
        "held_out": studio.held_out.name,
        "settings": {name: repr(setup.arm(name)) for name in setup.arms},
        "t2x": __version__,
        "arms": arms,
        "differences": differences,
    }


def _flag(row: _Row, rows: Sequence[_Row], columns: Mapping[str, _Columns]) -> str:
    """``over_optimised`` against one picture of the same texts, or without such an arm against more
    steps; nothing is optimised in these two themselves."""
    if row.arm in ("one-picture", "unguided"):
        return "false"
    for name in ("one-picture", "unguided"):
        for other in rows:
            if other.drawn and (other.arm, other.texts, other.budget) == (
                name,
                row.texts,
                row.budget,
            ):
                return over_optimised(**columns[row.label].against(columns[other.label]))
    return "undecided"


def _compared(row: _Row, rows: Sequence[_Row]) -> list[_Row]:
    """What a row is set beside: the references of its budget and texts, the whole of an ablation,
    and the same arm on the user's own words."""
    whole = row.arm.partition(" without ")[0]
    found = []
    for other in rows:
        if other.size is None or other.budget != row.budget or other is row:
            continue
        same_texts = other.texts == row.texts
        named = other.arm in _before(row.arm)
        ablated = other.arm == whole != row.arm
        rewritten = other.arm == row.arm and other.texts == "raw"
        if (named or ablated) if same_texts else rewritten:
            found.append(other)
    return found


def _before(arm: str) -> tuple[str, ...]:
    """References that an arm is set beside: those before it."""
    return REFERENCES[: REFERENCES.index(arm)] if arm in REFERENCES else REFERENCES


def over_optimised(judge: Difference, reward: Difference, heldout_reward: Difference) -> str:
    """Whether an arm raises what it optimises, against plain pictures, while the judge's score or a
    reward that it does not see falls: "true" if both are sure, "false" if it raises nothing or
    neither falls by more than could be seen, else "undecided"."""
    others = (judge, heldout_reward)
    if reward.holds == "true" and any(d.holds == "false" for d in others):
        return "true"
    if reward.holds == "false" or all(d.holds == "true" for d in others):
        return "false"
    return "undecided"


class _Columns:
    """What a row drew, as columns: (n,) over prompts of the first seed."""

    def __init__(self, setup: GuidedSetup, studio: Workbench, row: _Row) -> None:
        self.setup, self.studio, self.row = setup, studio, row
        first = row.drawn[: setup.n]
        self.tasks = [p.task for p in setup.prompts]
        self.judge: Array = np.array([d.correct for d in first])
        self.heldout: Array = np.array([d.heldout for d in first])
        self.rewards: dict[str, Array] = {
            name: np.array([d.rewards[name] for d in first]) for name in studio.bench.weights
        }
        bench = studio.bench
        self.reward: Array = sum(
            (
                bench.weights[name] * (column - bench.means[name]) / bench.spreads[name]
                for name, column in self.rewards.items()
            ),
            np.zeros(len(first)),
        )

    def against(self, other: _Columns) -> dict[str, Difference]:
        """This less another, in each measure."""
        seed, tasks = self.setup.seed, self.tasks
        pairs = {
            "judge": (self.judge, other.judge),
            "reward": (self.reward, other.reward),
            "heldout_reward": (self.heldout, other.heldout),
        }
        return {
            name: paired_difference(a, b, strata=tasks, seed=seed) for name, (a, b) in pairs.items()
        }

    def summary(self) -> dict[str, Any]:
        """The row of the table."""
        setup, studio, drawn = self.setup, self.studio, self.row.drawn
        overall = bootstrap_mean(self.judge, strata=self.tasks, seed=setup.seed)
        counts = sum((d.counts for d in drawn), Counts()).scaled(1 / len(drawn))
        cost = studio.bench.costs.cost(counts, _mean([d.seconds for d in drawn]))
        tasks = {
            t: _mean(self.judge[[task == t for task in self.tasks]])
            for t in dict.fromkeys(self.tasks)
        }
        return {
            "arm": self.row.arm,
            "texts": self.row.texts,
            "budget": self.row.budget,
            "size": self.row.size,
            "overall": overall.mean,
            "ci95": [overall.low, overall.high],
            "tasks": tasks,
            **asdict(cost),
            "flops_of_budget": cost.flops / (self.row.budget * studio.unit),
            "reward": _mean(self.reward),
            "rewards": {name: _mean(column) for name, column in self.rewards.items()},
            "heldout_reward": _mean(self.heldout),
            "diversity": self._diversity(),
        }

    def _diversity(self) -> float:
        """Mean log det(L + I) over the seeds of a prompt (t2x.functional.diversity)."""
        import torch

        from t2x.functional.diversity import log_det

        setup, features = self.setup, [d.features for d in self.row.drawn]
        count, more = min(setup.diverse, setup.n), setup.diverse_seeds - 1
        if count < 1 or more < 1:
            return math.nan
        rest = features[setup.n :]
        sets = [[features[i], *rest[i * more : (i + 1) * more]] for i in range(count)]
        return float(log_det(torch.tensor(sets, dtype=torch.float64)).mean())


def _mean(values: Sequence[float] | Array) -> float:
    known = [float(v) for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan
