"""Editing measured: is the target reached (the judge), and is the background kept (PSNR), at equal
FLOPs, on sources that the generator drew itself.

Sources are pictures in which the judge finds exactly the source scene: of any other nobody could
say what an edit should leave alone. They are the same for all methods, and nobody pays for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from t2x.errors import T2XError, UnknownNameError
from t2x.evaluation.intervals import bootstrap_mean, paired_difference
from t2x.functional.psnr import masked_psnr
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.editing import EditConfig, edit
from t2x.guidance.metering import Counts
from t2x.world.edits import EDIT_KINDS, WorldEdit, background, sample_edit
from t2x.world.guided import HELD_OUT, REWARDS
from t2x.world.guided_arms import MAX_SIZE, Bench, Order, fit_size, with_rewards
from t2x.world.guided_names import ABLATIONS, PLAIN
from t2x.world.guided_pictures import Drawn, Workbench

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.store import Store
    from t2x.types import RewardModel

__all__ = ["EDIT_ABLATIONS", "EDIT_ADDITIONS", "EDIT_ARMS", "EditSetup", "evaluate_edits"]

Progress: TypeAlias = "Callable[[str, int, int], None]"
REFERENCES = ("sdedit", "plain")
_TRIES = 8  # pictures per wanted source, at most

EDIT_ARMS: dict[str, EditConfig] = {
    "sdedit": EditConfig("sdedit", strength=0.7),
    "flowedit": EditConfig("flowedit"),
    "plain": EditConfig(
        "rewardflow", strength=0.7, guidance=GuidanceConfig(**PLAIN, mode="J", size=0.2)
    ),
    "rewardflow": EditConfig("rewardflow", strength=0.7, tether=1.0, guidance=GuidanceConfig()),
}
# What rewardflow is measured without. Its policy knows the target's words alone.
EDIT_ABLATIONS = (
    "without tether",
    *(part for part, changes in ABLATIONS.items() if not {"policy", "adaptive"} & set(changes)),
)
# And what it is measured with: a policy that reads the instruction.
EDIT_ADDITIONS = ("with policy",)


@dataclass(frozen=True, eq=False)
class _EditOrder(Order):
    """A picture to edit: ``text`` tells the target."""

    edit: WorldEdit
    picture: Tensor


@dataclass(frozen=True)
class _EditArm:
    """A method of ``t2x.guidance.editing``; size is the number of steps that the levels are cut
    in. ``instructed``: its policy reads the instruction in place of the target's words, as its name
    tells; keys of stores hold names."""

    name: str
    config: EditConfig
    instructed: bool = field(default=False, repr=False)

    @property
    def least(self) -> int:
        """Enough for one step that is guided."""
        free = 0 if self.config.guidance is None else self.config.guidance.free_last
        return math.ceil((free + 1) / self.config.strength)

    @property
    def most(self) -> int:
        """As of other arms."""
        return MAX_SIZE

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """The edited pictures."""
        import torch

        own = [order for order in orders if isinstance(order, _EditOrder)]
        config, guided = self.config, self.config.guidance
        if guided is not None:
            config = replace(config, guidance=with_rewards(guided, bench))
        named = config.guidance.rewards if config.guidance is not None else ()
        media = edit(
            bench.sampling(2 * len(own), num_inference_steps=size),
            torch.stack([order.picture for order in own]),
            source_prompts=[order.edit.source_prompt for order in own],
            target_prompts=[order.text for order in own],
            seeds=[order.seed for order in own],
            config=config,
            rewards=[reward for reward in bench.rewards if reward.name in named],
            instructions=[order.edit.instruction for order in own] if self.instructed else None,
        )
        assert isinstance(media, torch.Tensor)
        return media


@dataclass(frozen=True)
class EditSetup:
    """What is compared: ``arms`` of ``EDIT_ARMS``, of rewardflow also without each of
    ``EDIT_ABLATIONS`` and with ``EDIT_ADDITIONS``; ``n`` edits, ``budget`` in plain pictures; the
    rest as in ``GuidedSetup``."""

    arms: Sequence[str] = tuple(EDIT_ARMS)
    n: int = 200
    budget: float = 3.0
    seed: int = 7
    generator: str | DiffusionGenerator = "emoji-flow"
    rewards: Mapping[str, float] | Sequence[RewardModel] = field(default_factory=REWARDS.copy)
    held_out: str | RewardModel = HELD_OUT
    chunk: int = 16
    dtype: str = "float32"


def _arm(name: str) -> _EditArm:
    if name in {f"rewardflow {part}" for part in EDIT_ADDITIONS}:
        return _EditArm(name, EDIT_ARMS["rewardflow"], instructed=True)
    base, _, without = name.partition(" without ")
    known = EDIT_ARMS.get(base)
    if known is None or (without and base != "rewardflow"):
        raise UnknownNameError(f"unknown arm {name!r}; allowed: {', '.join(EDIT_ARMS)}")
    if not without:
        return _EditArm(name, known)
    if f"without {without}" not in EDIT_ABLATIONS or known.guidance is None:
        raise UnknownNameError(
            f"unknown arm {name!r}; allowed: {base} {f', {base} '.join(EDIT_ABLATIONS)}"
        )
    if without == "tether":
        return _EditArm(name, replace(known, tether=0.0))
    changes = ABLATIONS[f"without {without}"]
    if "rewards" in changes:
        changes = {**changes, "rewards": dict.fromkeys(changes["rewards"], 1.0)}
    return _EditArm(name, replace(known, guidance=replace(known.guidance, **changes)))


# ---- running ------------------------------------------------------------------------------------


def evaluate_edits(
    setup: EditSetup, *, store: Store | None = None, progress: Progress | None = None
) -> dict[str, Any]:
    """Edit the same sources by each method at equal FLOPs; plain data for JSON.

    ``arms`` maps names to overall (share of pictures that show the target), ci95, kinds, psnr (of
    the background, in decibels) with psnr_ci95, psnr_reached (where the target is), reward
    components, heldout_reward, size, and per picture flops, flops_of_budget, nfe, reward_forwards,
    reward_backwards, seconds. ``differences`` maps "A - B" to paired differences in overall and
    psnr, of every arm against sdedit, plain and, of an ablation, the whole.

    Raises T2XError for unknown arms, and if too few sources show their scene.
    """
    arms = [_arm(name) for name in setup.arms]
    if setup.n < 1 or len({a.name for a in arms}) != len(arms):
        raise T2XError(f"n is {setup.n}, arms are {', '.join(setup.arms)}; give each once, n > 0")
    studio = Workbench.load(
        setup.generator, setup.rewards, setup.held_out, store=store, dtype=setup.dtype
    )
    orders, masks = _sources(setup, studio, progress)
    found: dict[str, tuple[int | None, list[Drawn]]] = {}
    for number, arm in enumerate(arms):
        cost = studio.cost_of(arm, probe=orders[0])
        size = fit_size(arm.least, cost, setup.budget * studio.unit)
        drawn: list[Drawn] = []
        for start in range(0, len(orders) if size is not None else 0, setup.chunk):
            part = slice(start, start + setup.chunk)
            drawn += _edited(studio, arm, size or 0, orders[part], masks[part])
            if progress is not None:
                progress(arm.name, number * setup.n + len(drawn), len(arms) * setup.n)
        found[arm.name] = size, drawn
    return _table(setup, studio, orders, found)


def _edited(
    studio: Workbench, arm: _EditArm, size: int, orders: Sequence[_EditOrder], masks: Tensor
) -> list[Drawn]:
    import torch

    sources = torch.stack([order.picture for order in orders])

    def measure(media: Tensor) -> list[dict[str, float]]:
        return [{"psnr": float(value)} for value in masked_psnr(media, sources, masks)]

    scenes = [order.edit.target for order in orders]
    settings = {"arm": repr(arm), "size": size, "task": "edit"}
    return studio.drawn(arm, size, orders, scenes, settings, measure)


def _sources(
    setup: EditSetup, studio: Workbench, progress: Progress | None
) -> tuple[list[_EditOrder], Tensor]:
    """The first ``n`` edits whose source was drawn right, and the background of each,
    (n, 1, H, W)."""
    import torch

    from t2x.world.arms import picture_seed
    from t2x.world.judge import judge_pictures

    orders: list[_EditOrder] = []
    masks: list[Tensor] = []
    for start in range(0, _TRIES * setup.n, setup.chunk):
        edits = [sample_edit(number) for number in range(start, start + setup.chunk)]
        seeds = [picture_seed(setup.seed, start + i) for i in range(len(edits))]
        drawn = studio.bench.draw(
            [Order(e.source_prompt, e.source_prompt, s) for e, s in zip(edits, seeds, strict=True)]
        )
        verdicts = judge_pictures([e.source for e in edits], drawn)
        for one, seed, picture, verdict in zip(edits, seeds, drawn, verdicts, strict=True):
            if verdict.correct:
                text = one.target_prompt
                orders.append(_EditOrder(text, text, seed, one, picture))
                masks.append(torch.from_numpy(background(one, verdict.detections)).float())
        if progress is not None:
            progress("drawing sources", min(len(orders), setup.n), setup.n)
        if len(orders) >= setup.n:
            studio.bench.meter.take()
            return orders[: setup.n], torch.stack(masks[: setup.n]).unsqueeze(1)
    raise T2XError(
        f"{studio.bench.generator.model_id} drew {len(orders)} right sources out of "
        f"{_TRIES * setup.n}; {setup.n} are needed, give a smaller n or another generator"
    )


# ---- tables -------------------------------------------------------------------------------------


def _table(
    setup: EditSetup,
    studio: Workbench,
    orders: Sequence[_EditOrder],
    found: Mapping[str, tuple[int | None, list[Drawn]]],
) -> dict[str, Any]:
    kinds = [order.edit.kind for order in orders]
    columns = {
        name: {
            "overall": np.array([d.correct for d in drawn]),
            "psnr": np.array([d.extra["psnr"] for d in drawn]),
        }
        for name, (_, drawn) in found.items()
        if drawn
    }
    arms: dict[str, Any] = {}
    differences: dict[str, Any] = {}
    for name, (size, drawn) in found.items():
        if not drawn:
            arms[name] = {"size": None}
            continue
        arms[name] = _summary(setup, studio, kinds, columns[name], size, drawn)
        whole = name.partition(" with")[0]
        for other in (*REFERENCES, whole):
            if other != name and other in columns and name != REFERENCES[0]:
                differences[f"{name} - {other}"] = {
                    key: asdict(
                        paired_difference(
                            columns[name][key], columns[other][key], strata=kinds, seed=setup.seed
                        )
                    )
                    for key in ("overall", "psnr")
                }
    return {
        "generator": studio.bench.generator.model_id,
        "n": setup.n,
        "seed": setup.seed,
        "budget": setup.budget,
        "plain_picture_flops": studio.unit,
        "dtype": studio.identity["dtype"],
        "rewards": dict(studio.bench.weights),
        "held_out": studio.held_out.name,
        "arms": arms,
        "differences": differences,
    }


def _summary(
    setup: EditSetup,
    studio: Workbench,
    kinds: Sequence[str],
    columns: Mapping[str, Any],
    size: int | None,
    drawn: Sequence[Drawn],
) -> dict[str, Any]:
    reached, psnr = columns["overall"], columns["psnr"]
    overall, kept = (
        bootstrap_mean(values, strata=kinds, seed=setup.seed) for values in (reached, psnr)
    )
    counts = sum((d.counts for d in drawn), Counts()).scaled(1 / len(drawn))
    cost = studio.bench.costs.cost(counts, float(np.mean([d.seconds for d in drawn])))
    rewards = drawn[0].rewards
    own = {kind: [i for i, k in enumerate(kinds) if k == kind] for kind in EDIT_KINDS}
    return {
        "size": size,
        "overall": overall.mean,
        "ci95": [overall.low, overall.high],
        "kinds": {k: float(np.mean(reached[at])) for k, at in own.items() if at},
        "psnr": kept.mean,
        "psnr_ci95": [kept.low, kept.high],
        "psnr_reached": float(np.nanmean(psnr[reached > 0])) if reached.any() else math.nan,
        "rewards": {name: float(np.nanmean([d.rewards[name] for d in drawn])) for name in rewards},
        "heldout_reward": float(np.nanmean([d.heldout for d in drawn])),
        **asdict(cost),
        "flops_of_budget": cost.flops / (setup.budget * studio.unit),
    }
