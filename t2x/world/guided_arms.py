"""Ways to spend operations on a picture: the arms that ``t2x eval guidance`` compares.

An arm has one number that says how much it spends, its ``size``: steps, pictures to choose from,
particles or iterations. ``run`` draws one picture for each text at a size, and scores against the
user's words. What a size costs is measured, not worked out (``fit_size``), so that a method needs
no bookkeeping of its own to be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from t2x.errors import T2XError
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.cost import CostModel
from t2x.guidance.guide import guide
from t2x.guidance.hook import watch_steps
from t2x.guidance.metering import Meter
from t2x.guidance.noise_optimisation import NoiseConfig, optimise_noise
from t2x.guidance.objective import Objective
from t2x.guidance.particles import ParticleConfig, Particles
from t2x.guidance.policy import PromptPolicy
from t2x.guidance.reward_guidance import RewardGuidance
from t2x.guidance.search import candidate_seeds
from t2x.guidance.step import Control
from t2x.world.primitives import emoji_primitives

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.generators.diffusion import DiffusionGenerator
    from t2x.guidance.search import Found
    from t2x.types import Context, Media, Modality, RewardModel

__all__ = [
    "MAX_SIZE",
    "Arm",
    "Bench",
    "Guided",
    "NoiseOptimised",
    "OnePicture",
    "Order",
    "Particled",
    "Searched",
    "Unguided",
    "fit_size",
    "with_rewards",
]

MAX_SIZE = 512


@dataclass(frozen=True)
class Order:
    """A picture: of ``text``, scored against ``prompt``, the user's words, drawn from ``seed``."""

    prompt: str
    text: str
    seed: int


@dataclass(frozen=True)
class _Ensemble:
    """The weighed sum of rewards, each in deviations from plain pictures; NaN if one is."""

    bench: Bench
    name: str = "ensemble"
    scale: str = "deviations from plain pictures"
    range: tuple[float, float] = (-math.inf, math.inf)
    modality: Modality = "image"
    differentiable: bool = False

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """(N,) of N pictures."""
        import torch

        bench, total = self.bench, torch.zeros(len(prompts))
        with torch.no_grad():
            for reward in bench.rewards:
                scores = reward.score(prompts, media, context=context).cpu()
                total += bench.weights[reward.name] * bench.standardised(reward.name, scores)
        return total


@dataclass
class Bench:
    """What all arms share: one generator, one ensemble of rewards, one meter.

    ``rewards`` are metered; ``weights`` by name; ``means`` and ``spreads`` by name: of a reward
    over plain pictures, so that a sum of several means something.
    """

    generator: DiffusionGenerator
    rewards: Sequence[RewardModel]
    weights: Mapping[str, float]
    meter: Meter
    costs: CostModel
    means: dict[str, float] = field(default_factory=dict)
    spreads: dict[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Of a picture as the generator draws it by itself."""
        return int(self.generator.settings()["num_inference_steps"])

    @property
    def ensemble(self) -> RewardModel:
        """What chooses among finished pictures."""
        return cast("RewardModel", _Ensemble(self))

    def draw(self, orders: Sequence[Order], **sampling: Any) -> Tensor:
        """A picture for each order, (N, 3, H, W), with other sampling arguments."""
        from torch import Tensor

        model = self.sampling(len(orders), **sampling)
        media = model.generate([o.text for o in orders], seeds=[o.seed for o in orders])
        assert isinstance(media, Tensor)
        return media

    def sampling(self, batch_size: int, **sampling: Any) -> DiffusionGenerator:
        """The same generator with other sampling arguments, and batches of this size."""
        from t2x.generators.diffusion import DiffusionGenerator

        return DiffusionGenerator(
            self.generator.pipeline,
            model_id=self.generator.model_id,
            revision="unused",  # nobody asks a copy for its key
            batch_size=max(batch_size, 1),
            sampling={**self.generator.sampling, **sampling},
        )

    def chosen(self, config: GuidanceConfig) -> list[RewardModel]:
        """The rewards that settings name."""
        return [r for r in self.rewards if r.name in config.rewards]

    def standardised(self, name: str, scores: Tensor) -> Tensor:
        """Scores of one reward in deviations from plain pictures."""
        return (scores - self.means.get(name, 0.0)) / self.spreads.get(name, 1.0)

    def measure_spread(self, orders: Sequence[Order]) -> None:
        """Set ``means`` and ``spreads`` by what unguided pictures score."""
        media, prompts = self.draw(orders), [o.prompt for o in orders]
        for reward in self.rewards:
            scores = reward.score(prompts, media).double()
            self.means[reward.name] = float(scores.mean())
            self.spreads[reward.name] = max(float(scores.std()), 1e-6)
        self.meter.take()


class Arm(Protocol):
    """One way to spend operations."""

    @property
    def name(self) -> str:
        """What the table calls it."""
        ...

    @property
    def least(self) -> int:
        """The smallest ``size`` that it has."""
        ...

    @property
    def most(self) -> int:
        """The largest."""
        ...

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """One picture for each order, (N, 3, H, W) in 8 bits."""
        ...


# ---- how much a budget buys ---------------------------------------------------------------------


def fit_size(
    least: int, cost: Callable[[int], float], budget: float, *, most: int = MAX_SIZE
) -> int | None:
    """The largest size from ``least`` to ``most`` whose ``cost`` is within ``budget``; None if that
    of the least is not. Costs grow about linearly, so that a few trials find it."""
    known: dict[int, float] = {}

    def fits(size: int) -> bool:
        known[size] = cost(size)
        return known[size] <= budget

    def guess(a: int, b: int) -> int:
        slope = (known[b] - known[a]) / (b - a)
        return int(a + (budget - known[a]) / slope) if slope > 0 else most

    if not fits(least):
        return None
    low, high = least, least + 1
    while high <= most and fits(high):
        low, high = high, max(high + 1, min(guess(least, high), most + 1))
    while high - low > 1:  # low fits, high does not
        near = guess(low, high) if high in known else (low + high) // 2
        middle = min(max(near, low + 1), high - 1)
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# ---- arms ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OnePicture:
    """The generator's own picture, whatever the budget: what over-optimisation is told from."""

    name: str = "one-picture"
    least: int = 1
    most: int = 1

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """One picture."""
        return bench.draw(orders)


@dataclass(frozen=True)
class Unguided:
    """More steps of the solver."""

    name: str = "unguided"
    guidance_scale: float | None = None
    least: int = 1
    most: int = MAX_SIZE

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """``size`` steps."""
        return bench.draw(orders, num_inference_steps=size, **_scale(self.guidance_scale))


@dataclass(frozen=True)
class Searched:
    """Search for noise or paths by the ensemble (t2x.guidance.search); size is pictures scored.
    ``method``: *best_of_n*, *zero_order_search* or *search_paths*; ``steps`` is a share of the
    generator's own; ``config``: gradients that steer each candidate as well, ``policy`` as in
    ``Guided``."""

    name: str
    method: str = "best_of_n"
    guidance_scale: float | None = None
    steps: float = 1.0
    config: GuidanceConfig | None = None
    policy: bool = False
    least: int = 1
    most: int = MAX_SIZE

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """``size`` pictures."""
        from t2x.guidance import search

        controls: list[Control] = []
        steps = max(1, round(self.steps * bench.steps))
        if self.config is not None:
            config = with_rewards(self.config, bench)
            chosen = bench.chosen(config)
            objective = Objective(
                chosen,
                config.rewards,
                policy=PromptPolicy(chosen, config, read=emoji_primitives) if self.policy else None,
                normalise=config.rule == "relative",
            )
            controls, steps = [RewardGuidance(objective, config)], max(steps, config.free_last + 1)
        given = _scale(self.guidance_scale)
        task = search.Task(
            bench.sampling(len(orders), num_inference_steps=steps, **given),
            [o.text for o in orders],
            [o.seed for o in orders],
            bench.ensemble,
            controls=controls,
            originals=[o.prompt for o in orders],
        )
        found: Found = getattr(search, self.method)(task, search.Budget(calls=size))
        return found.media


@dataclass(frozen=True)
class Particled:
    """FK steering, SVDD: particles that compete while they are drawn; size is how many."""

    name: str
    config: ParticleConfig
    guidance_scale: float | None = None
    steps: float = 1.0
    least: int = 2
    most: int = MAX_SIZE

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """``size`` particles, the best of which is the picture."""
        particles = Particles(
            bench.ensemble, replace(self.config, count=size), seeds=[o.seed for o in orders]
        )
        rows = [replace(o, seed=seed) for o in orders for seed in candidate_seeds(o.seed, size)]
        steps = max(2, round(self.steps * bench.steps))
        given = _scale(self.guidance_scale)
        with watch_steps(bench.generator.pipeline, [particles], prompts=[o.prompt for o in rows]):
            media = bench.draw(rows, num_inference_steps=steps, **given)
        return media[particles.best]


@dataclass(frozen=True)
class NoiseOptimised:
    """ReNO: gradient ascent on the first noise through a few-step chain; size is iterations."""

    name: str = "reno"
    rate: float = 5.0
    penalty: float = 0.01
    guidance_scale: float | None = None
    least: int = 1
    most: int = MAX_SIZE

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """``size`` iterations, the best of which is the picture."""
        weights = {name: w / bench.spreads.get(name, 1.0) for name, w in bench.weights.items()}
        found = optimise_noise(
            bench.sampling(len(orders), **_scale(self.guidance_scale)),
            [o.text for o in orders],
            seeds=[o.seed for o in orders],
            objective=Objective(bench.rewards, weights, normalise=False),
            config=NoiseConfig(iterations=size, rate=self.rate, penalty=self.penalty),
            originals=[o.prompt for o in orders],
        )
        return found.media


@dataclass(frozen=True)
class Guided:
    """Reward gradients on one trajectory. ``spend``: what size buys: *steps*, or *correctors*,
    Langevin steps at each guided level of a run of ``steps`` times the generator's own steps.
    ``policy``: weights and steps by what the prompt asks for (t2x.guidance.policy)."""

    name: str
    config: GuidanceConfig
    guidance_scale: float | None = None
    spend: str = "steps"
    steps: float = 1.0
    policy: bool = False
    most: int = MAX_SIZE

    @property
    def least(self) -> int:
        """One guided step, or no corrector."""
        return self.config.free_last + 1 if self.spend == "steps" else 0

    def run(self, bench: Bench, size: int, orders: Sequence[Order]) -> Tensor:
        """``size`` steps or correctors."""
        config, steps = with_rewards(self.config, bench), max(1, round(self.steps * bench.steps))
        if self.spend == "steps":
            steps = size
        else:
            config = replace(config, correctors=size)
        given = _scale(self.guidance_scale)
        chosen = bench.chosen(config)
        with guide(
            bench.generator.pipeline,
            chosen,
            config,
            policy=PromptPolicy(chosen, config, read=emoji_primitives) if self.policy else None,
            prompts=[o.prompt for o in orders],
            seeds=[o.seed for o in orders],
        ):
            return bench.draw(orders, num_inference_steps=steps, **given)


def _scale(guidance_scale: float | None) -> dict[str, Any]:
    return {} if guidance_scale is None else {"guidance_scale": guidance_scale}


def with_rewards(config: GuidanceConfig, bench: Bench) -> GuidanceConfig:
    """The weights of the bench, of those that the settings name, or of all."""
    weights = {n: w for n, w in bench.weights.items() if not config.rewards or n in config.rewards}
    if not weights:
        raise T2XError(
            f"the settings name {', '.join(config.rewards)}; the rewards of this evaluation are: "
            f"{', '.join(bench.weights)}"
        )
    return replace(config, rewards=weights)
