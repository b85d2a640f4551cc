"""How each mode of guidance draws a batch: ``Batch`` in, ``Drawn`` out. The table
of modes is ``t2x.guidance.recipe.MODES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.generators.calls import of_rows
from t2x.generators.diffusion import DiffusionGenerator, own_noise
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.guide import guide
from t2x.guidance.hook import watch_steps
from t2x.guidance.noise_optimisation import optimise_noise
from t2x.guidance.objective import Objective
from t2x.guidance.particles import Particles
from t2x.guidance.policy import PromptPolicy, own_policy
from t2x.guidance.primitives import Primitives
from t2x.guidance.recipe import MODES, GuidanceRecipe
from t2x.guidance.search import (
    Budget,
    Found,
    Task,
    best_of_n,
    candidate_seeds,
    search_paths,
    zero_order_search,
)
from t2x.guidance.step import Call, CallSettings, Control, Step
from t2x.guidance.support import check_whole_sample
from t2x.guidance.trace import GuidanceTrace, TracedCall, TracedStep
from t2x.scoring.ensemble import RewardEnsemble
from t2x.scoring.pairs import context_rows
from t2x.types import Context, RewardModel

__all__ = [
    "Batch",
    "Drawn",
    "affordable_steps",
    "optimised",
    "searched",
    "selected",
    "steered",
    "trajectory_cost",
]

_MOST_STEPS = 1000  # levels of the schedules that models are trained on


@dataclass(frozen=True)
class Batch:
    """N pictures to draw.

    ``arguments`` go to the pipeline's call, ``prompt`` is in them; ``seeds`` N; ``originals`` N
    texts that rewards score against; ``passes``: denoiser evaluations of a picture in one step, 2
    with classifier-free guidance; ``thumbnails``: longest side of the trace's pictures, or None;
    ``on_step`` hears each step of the trace as it is written; ``read`` finds the primitives of a
    prompt for the policy, rules without.
    """

    generator: DiffusionGenerator
    arguments: dict[str, Any]
    seeds: list[int]
    originals: list[str]
    context: Context | None
    rewards: Sequence[RewardModel]
    recipe: GuidanceRecipe
    passes: int
    thumbnails: int | None
    on_step: Callable[[TracedCall, TracedStep], None] | None = None
    read: Callable[[str], Primitives] | None = None

    @property
    def pipe(self) -> Any:
        """The diffusers pipeline."""
        return self.generator.pipeline

    @property
    def steps(self) -> int:
        """Of one run."""
        default = self.generator.settings()["num_inference_steps"]
        return int(self.arguments.get("num_inference_steps", default))

    @property
    def beside(self) -> dict[str, Any]:
        """What of the arguments goes with the prompts."""
        names = ("negative_prompt", "image")
        return {name: self.arguments[name] for name in names if name in self.arguments}

    def ensemble(self) -> RewardEnsemble:
        """The weighed sum of the rewards, for choosing."""
        return RewardEnsemble(self.rewards, self.recipe.config.rewards, name="guidance")

    def repeated(self, count: int) -> Batch:
        """Each picture ``count`` times, in rows that follow each other, from noise of their own;
        the first has the seed's."""
        rows = [i for i in range(len(self.seeds)) for _ in range(count)]
        own = of_rows({"prompt": self.arguments["prompt"], **self.beside}, rows)
        return replace(
            self,
            arguments={**self.arguments, **own},
            seeds=[s for seed in self.seeds for s in candidate_seeds(seed, count)],
            originals=[self.originals[i] for i in rows],
            context=context_rows(self.context, rows),
        )


@dataclass(frozen=True)
class Drawn:
    """What the pipeline gave for N pictures, the trace with the (call, row) of each, or none for
    modes without, and ``notes`` for each: decisions and candidates, as JSON values."""

    output: Any
    trace: GuidanceTrace
    places: list[tuple[int, int] | None]
    notes: list[dict[str, Any]] = field(default_factory=list)


# ---- modes --------------------------------------------------------------------------------------


def steered(batch: Batch) -> Drawn:
    """Modes E and J: one call under ``guide``. A budget decides the number of steps."""
    arguments = dict(batch.arguments)
    if batch.recipe.budget is not None:
        arguments["num_inference_steps"] = affordable_steps(batch.recipe, batch.passes)
    _check_acts(batch.recipe.config, arguments.get("num_inference_steps", batch.steps))
    policy = _policy(batch)
    with _guided(batch, policy, []) as trace:
        output = batch.pipe(**arguments, generator=own_noise(batch.seeds))
    places = [(-1, row) for row in range(len(batch.seeds))]
    return Drawn(output, trace, [*places], _decisions(policy, batch))


def selected(batch: Batch) -> Drawn:
    """Particles, alone or beside gradients: of each picture several trajectories, the best is kept.
    A budget decides how many."""
    settings = batch.recipe.settings
    if (budget := batch.recipe.budget) is not None:
        one = trajectory_cost(batch.recipe, batch.steps, batch.passes)
        settings = replace(settings, count=_affordable(batch, budget, one, "particles", least=2))
    rows = batch.repeated(settings.count)
    particles = Particles(batch.ensemble(), settings, context=rows.context, seeds=batch.seeds)
    policy = _policy(batch)
    steering = MODES[batch.recipe.mode].steered
    if steering:
        _check_acts(batch.recipe.config, batch.steps)
    opened = _guided(rows, policy, [particles]) if steering else _watched(rows, particles)
    with opened as trace:
        output = batch.pipe(**rows.arguments, generator=own_noise(rows.seeds))
    _enter_checks(trace, particles)
    best = particles.best.tolist()
    values = particles.values.view(-1, settings.count).tolist()
    notes = [{"particles": row} for row in values]
    for note, decision in zip(notes, _decisions(policy, batch), strict=False):
        note.update(decision)
    return Drawn(_taken(output, best), trace, [(-1, row) for row in best], notes)


def optimised(batch: Batch) -> Drawn:
    """The first noise is optimised through the whole run. A budget decides the iterations, of which
    each is a run and a backward pass."""
    settings = batch.recipe.settings
    if (budget := batch.recipe.budget) is not None:
        one = 3 * batch.passes * batch.steps
        settings = replace(settings, iterations=_affordable(batch, budget, one, "iterations"))
    objective = Objective(batch.rewards, batch.recipe.config.rewards, normalise=False)
    trace = GuidanceTrace()
    with trace.watching(batch.pipe):
        found = optimise_noise(
            batch.generator,
            batch.arguments["prompt"],
            seeds=batch.seeds,
            objective=objective,
            config=settings,
            originals=batch.originals,
            context=batch.context,
            size=_size(batch),
            num_frames=batch.arguments.get("num_frames"),
            beside=batch.beside,
        )
    notes = [{"value": v, "curve": row} for v, row in _rows(found.values, found.curve)]
    return _whole(batch, found.media, trace, notes)


def searched(batch: Batch) -> Drawn:
    """The best of several whole pictures. A budget decides how many are paid for."""
    settings = batch.recipe.settings
    steps = batch.steps
    if batch.recipe.budget is None:
        evaluations = settings.pictures * steps
    else:
        one = batch.passes * steps
        evaluations = _affordable(batch, batch.recipe.budget, one, "pictures", least=2) * steps
    task = Task(
        batch.generator,
        batch.arguments["prompt"],
        batch.seeds,
        batch.ensemble(),
        originals=batch.originals,
        context=batch.context,
        size=_size(batch),
        num_frames=batch.arguments.get("num_frames"),
        beside=batch.beside,
    )
    trace = GuidanceTrace()
    with trace.watching(batch.pipe):
        found = _search(task, Budget(evaluations=evaluations), settings)
    notes = [
        {"value": value, "tried": [t.value for t in tried], "chosen": chosen}
        for value, tried, chosen in zip(
            found.values.tolist(), found.tried, found.chosen, strict=True
        )
    ]
    return _whole(batch, found.media, trace, notes)


def _search(task: Task, budget: Budget, settings: Any) -> Found:
    if settings.method == "zero-order":
        given = {"neighbours": settings.neighbours, "distance": settings.distance}
        return zero_order_search(task, budget, **given)
    if settings.method == "paths":
        return search_paths(
            task,
            budget,
            paths=settings.paths,
            branches=settings.branches,
            start=settings.begin,
            stop=settings.until,
        )
    return best_of_n(task, budget)


# ---- cost ---------------------------------------------------------------------------------------


def trajectory_cost(recipe: GuidanceRecipe, steps: int, passes: int) -> int:
    """Denoiser evaluations of one trajectory: ``passes`` for each visit of a level, and two more
    for each of them where a backward pass follows (mode J)."""
    config, steering = recipe.config, MODES[recipe.mode].steered
    guided = sum(config.guides(index, steps) for index in range(steps)) if steering else 0
    visits = steps + guided * config.correctors
    backward = guided * (1 + config.correctors) if steering == "J" else 0
    return passes * (visits + 2 * backward)


def affordable_steps(recipe: GuidanceRecipe, passes: int) -> int:
    """The most steps that ``recipe.budget`` pays for. Raises T2XError if that is none, or more than
    noise schedules have levels."""
    budget = recipe.budget
    assert budget is not None
    steps = 0
    if budget >= trajectory_cost(recipe, _MOST_STEPS + 1, passes):
        most = trajectory_cost(recipe, _MOST_STEPS, passes)
        raise T2XError(
            f"a budget of {budget} denoiser evaluations pays for more than {_MOST_STEPS} steps of "
            f"mode {recipe.mode}; give at most {most}"
        )
    while trajectory_cost(recipe, steps + 1, passes) <= budget:
        steps += 1
    if steps == 0:
        least = trajectory_cost(recipe, 1, passes)
        raise T2XError(
            f"a budget of {budget} denoiser evaluations pays for no step of mode {recipe.mode}; "
            f"give at least {least}"
        )
    return steps


def _affordable(batch: Batch, budget: int, one: int, what: str, *, least: int = 1) -> int:
    """How many a budget pays for. Raises T2XError if they are too few."""
    if budget < least * one:
        raise T2XError(
            f"a budget of {budget} denoiser evaluations pays for {budget // one} {what} of "
            f"{batch.steps} steps, {one} each; give at least {least * one}, or fewer steps"
        )
    return budget // one


# ---- parts --------------------------------------------------------------------------------------


def _check_acts(config: GuidanceConfig, steps: int) -> None:
    """Raise T2XError where no step would be guided, though it is asked for."""
    if config.size > 0 and not any(config.guides(index, steps) for index in range(steps)):
        raise T2XError(
            f"none of {steps} steps is guided: start is {config.start}, stop {config.stop}, and "
            f"free_last {config.free_last}; take more steps or a smaller free_last"
        )


def _policy(batch: Batch) -> PromptPolicy | None:
    steered = MODES[batch.recipe.mode].steered
    return own_policy(batch.rewards, batch.recipe.config, read=batch.read) if steered else None


def _decisions(policy: PromptPolicy | None, batch: Batch) -> list[dict[str, Any]]:
    if policy is None:
        return [{} for _ in batch.seeds]
    return [{"policy": policy.show([text])} for text in batch.originals]


@contextmanager
def _guided(
    batch: Batch, policy: PromptPolicy | None, controls: Sequence[Control]
) -> Iterator[GuidanceTrace]:
    with guide(
        batch.pipe,
        batch.rewards,
        batch.recipe.config,
        prompts=batch.originals,
        context=batch.context,
        seeds=batch.seeds,
        policy=policy,
        controls=[CallSettings(batch.arguments), *controls],
        thumbnails=batch.thumbnails,
    ) as trace:
        trace.on_step = batch.on_step
        yield trace


@contextmanager
def _watched(batch: Batch, particles: Particles) -> Iterator[GuidanceTrace]:
    check_whole_sample(batch.pipe)
    trace = GuidanceTrace(["reward"], thumbnails=batch.thumbnails)
    trace.on_step = batch.on_step
    with trace.watching(batch.pipe):
        controls: list[Control] = [CallSettings(batch.arguments), _Recorder(trace), particles]
        with watch_steps(batch.pipe, controls, prompts=batch.originals):
            yield trace


class _Recorder:
    """Control that writes each step, and a picture of x0_hat, into a trace."""

    def __init__(self, trace: GuidanceTrace) -> None:
        self.trace = trace

    def begin(self, call: Call, scheduler: Any) -> None:
        """A call begins."""
        self.trace.begin(call.prompts)

    def gradient(self, index: int, total: int) -> bool:
        """It asks for none."""
        return False

    def visits(self, index: int, total: int) -> int:
        """It asks for none more."""
        return 1

    def edit(self, step: Step) -> None:
        """Write the step down."""
        media = None
        if self.trace.thumbnails is not None:
            with torch.no_grad():
                media = step.call.space.decode(step.clean)
        self.trace.add(step.index, step.level.sigma, visit=step.visit, media=media)

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """It changes nothing."""
        return sample

    def end(self, call: Call) -> None:
        """Nothing is left to do."""


def _enter_checks(trace: GuidanceTrace, particles: Particles) -> None:
    """Write down which rows went on, and, where nothing steered, what they were compared by."""
    steps = {step.index: step for step in trace.calls[-1].steps}  # the last visit of each
    for check in particles.checks:
        step, parents = steps[check.index], check.parents.cpu()
        # Of the step's own rows: it may be followed by that of the finished samples.
        step.parents = parents if step.parents is None else step.parents[parents]
        if trace.rewards == ("reward",) and not bool(step.values.isfinite().any()):
            step.values = check.values.reshape(-1, 1).float().cpu()


def _taken(output: Any, rows: Sequence[int]) -> Any:
    """Rows of what a pipeline gave."""
    name = "images" if getattr(output, "images", None) is not None else "frames"
    given = getattr(output, name)
    return SimpleNamespace(
        **{name: given[list(rows)] if isinstance(given, Tensor) else [given[i] for i in rows]}
    )


def _whole(batch: Batch, media: Tensor, trace: GuidanceTrace, notes: list[dict[str, Any]]) -> Drawn:
    name = "frames" if batch.generator.modality == "video" else "images"
    return Drawn(SimpleNamespace(**{name: media}), trace, [None] * len(media), notes)


def _size(batch: Batch) -> tuple[int, int] | None:
    height, width = (batch.arguments.get(name) for name in ("height", "width"))
    return None if height is None or width is None else (int(height), int(width))


def _rows(*columns: Tensor) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)
