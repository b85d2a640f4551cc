"""Search over noise and paths without gradients (Ma et al. 2025, arXiv 2501.09732), with any
unmodified pipeline: best-of-N, zero-order search, search over paths, all under one budget; and
particles by the same door.

    found = best_of_n(Task(generator, prompts, seeds, reward), Budget(evaluations=200))
    found.media, found.values, found.tried
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.noise import near_noise, noised
from t2x.generators.calls import of_rows
from t2x.generators.diffusion import DiffusionGenerator, own_noise
from t2x.generators.outputs import pixels
from t2x.guidance.hook import watch_steps
from t2x.guidance.noise_optimisation import noise_scale
from t2x.guidance.particles import ParticleConfig, Particles
from t2x.guidance.step import Call, CallSettings, Control, Step
from t2x.guidance.streams import hash_seed, normal_rows
from t2x.guidance.support import check_noise_start, check_whole_sample
from t2x.media import quantize
from t2x.scoring.pairs import context_rows

if TYPE_CHECKING:
    from t2x.types import Context, RewardModel

__all__ = [
    "Budget",
    "Found",
    "Task",
    "Tried",
    "best_of_n",
    "candidate_seeds",
    "draw_particles",
    "search_paths",
    "zero_order_search",
]


@dataclass(frozen=True)
class Budget:
    """What the search for one picture may take: ``evaluations`` of denoising steps
    (classifier-free guidance counts once) and reward ``calls``, one for each picture or x0_hat
    scored; None has no limit. The first candidate is drawn whatever the budget."""

    evaluations: int | None = None
    calls: int | None = None

    def __post_init__(self) -> None:
        if self.evaluations is None and self.calls is None:
            raise T2XError("the budget of a search is empty; give evaluations, calls or both")
        for name in ("evaluations", "calls"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise T2XError(f"budget: {name} is {value}; give 1 or more")

    def left(self, evaluations: float, calls: float) -> tuple[float, float]:
        """What is left of both."""
        first = math.inf if self.evaluations is None else self.evaluations - evaluations
        second = math.inf if self.calls is None else self.calls - calls
        return first, second


@dataclass(frozen=True)
class Tried:
    """A finished candidate of one picture: ``value`` (NaN where it can't be measured), ``seed`` of
    its noise (best-of-N and paths) or of its step from the pivot, ``parent`` the number of the
    candidate that it was made from, and what had been spent when it was scored."""

    value: float
    seed: int
    parent: int | None
    evaluations: int
    calls: int


@dataclass(frozen=True)
class Found:
    """What a search for N pictures found: ``media`` (N, ..., 3, H, W) in steps of 1/255, ``values``
    (N,) NaN where no candidate could be measured, ``tried``: every finished candidate of each
    picture, in order; ``chosen`` (N) the number of the best; ``evaluations`` and ``calls`` spent on
    each picture."""

    media: Tensor
    values: Tensor
    tried: list[list[Tried]]
    chosen: list[int]
    evaluations: int
    calls: int


def candidate_seeds(seed: int, count: int) -> list[int]:
    """Seeds of the first ``count`` candidates of a picture: its own, and numbers made of it."""
    return [seed if i == 0 else hash_seed(seed, i, "candidate") for i in range(count)]


@dataclass(frozen=True)
class Task:
    """N pictures to search for.

    Args:
        generator: a ``DiffusionGenerator`` or a pipeline.
        prompts, seeds: N each; the first candidate is the picture of the seed itself.
        reward: chooses; an ensemble for several. It needs no gradient.
        controls: that act in every candidate (gradients and selection together).
        originals: N texts to score against; the prompts without.
        context: for rewards that need more, N entries in each field.
        size, num_frames: as in ``Generator.generate``.
        beside: further arguments of the call that go with the prompts, N in a list or one for all:
            ``negative_prompt``, and ``image`` (``t2x.generators.sources``).

    Raises T2XError for anything but one seed and one original for each prompt.
    """

    generator: Any
    prompts: Sequence[str]
    seeds: Sequence[int]
    reward: RewardModel
    controls: Sequence[Control] = ()
    originals: Sequence[str] | None = None
    context: Context | None = None
    size: tuple[int, int] | None = None
    num_frames: int | None = None
    beside: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        originals = self.prompts if self.originals is None else self.originals
        counts = {len(self.prompts), len(self.seeds), len(originals)}
        if len(counts) > 1 or not self.prompts:
            raise T2XError(
                f"{len(self.prompts)} prompts, {len(self.seeds)} seeds, {len(originals)} originals;"
                " give one of each for each picture"
            )


def best_of_n(task: Task, budget: Budget) -> Found:
    """Draw as many pictures of each prompt as the budget allows; the reward chooses.

    The same seeds give the same bytes; a picture does not depend on the others of its task.
    """
    studio, log = _Studio(task), _Log(len(task.prompts), budget)
    number = 0
    while number == 0 or log.affords(studio.cost, 1):
        own = [candidate_seeds(seed, number + 1)[number] for seed in studio.seeds]
        media, values = studio.draw(own)
        log.add(media, values, own, None, studio.cost, 1)
        number += 1
    return log.found()


def zero_order_search(
    task: Task, budget: Budget, *, neighbours: int = 4, distance: float = 0.5
) -> Found:
    """Look around the best noise so far, again and again: ``neighbours`` of the pivot at
    ``distance`` (0 to 1, ``near_noise``) are drawn, the best of them and the pivot is the next
    pivot. The first pivot is the noise of the seed itself.

    Works on the first x_t that a pipeline prepares, so that packed and scaled latents need no care.
    """
    if neighbours < 1 or not 0 < distance <= 1:
        raise T2XError(
            f"zero-order search: {neighbours} neighbours at distance {distance}; give 1 or more at "
            "a distance above 0 and up to 1"
        )
    studio, log = _Studio(task), _Log(len(task.prompts), budget)
    check_noise_start(studio.source.pipeline)
    media, values = studio.draw(studio.seeds)
    log.add(media, values, studio.seeds, None, studio.cost, 1)
    assert studio.noise is not None
    pivots, number = studio.noise, 0
    while log.affords(studio.cost, 1):
        parents, best = list(log.chosen), pivots.clone()
        for _ in range(neighbours):
            if not log.affords(studio.cost, 1):
                break
            number += 1
            own = [hash_seed(seed, number, "neighbour") for seed in studio.seeds]
            near = near_noise(pivots, normal_rows(own_noise(own), pivots), distance)
            media, values = studio.draw(studio.seeds, near)
            for row in log.add(media, values, own, parents, studio.cost, 1):
                best[row] = near[row]
        pivots = best
    return log.found()


def search_paths(
    task: Task,
    budget: Budget,
    *,
    paths: int = 2,
    branches: int = 2,
    start: float = 0.25,
    stop: float = 0.75,
) -> Found:
    """Branch trajectories by time travel: at each of some levels between ``start`` and ``stop``
    (parts of the run) the ``paths`` best of ``paths`` * ``branches`` x0_hat go on; each is noised
    anew, ``branches`` times, to the same level, which the denoiser then evaluates again. There are
    as many such levels, evenly spaced, as the budget allows; the best finished picture is chosen.

    Differs from the paper: it noises up from x_t by a fixed step and solves back down; here x0_hat
    is noised, so that it works inside one call of any pipeline. Raises T2XError for a budget below
    ``paths`` * ``branches`` whole pictures.
    """
    k = paths * branches
    if paths < 1 or branches < 1 or not 0 <= start <= stop <= 1:
        raise T2XError(
            f"search over paths: {paths} paths of {branches} branches from {start} to {stop}; give "
            "1 or more of each, and 0 <= start <= stop <= 1"
        )
    studio, log = _Studio(task, group=k), _Log(len(task.prompts), budget)
    check_whole_sample(studio.source.pipeline)
    tree = _Tree(studio, paths, branches, (start, stop), budget)
    studio.controls = [*task.controls, tree]
    media, values = studio.draw(studio.seeds)
    for j in range(k):
        rows = slice(j, None, k)
        spent = (k * studio.cost, k * (1 + tree.forks)) if j == 0 else (0, 0)
        log.add(media[rows], values[rows], studio.seeds[rows], None, *spent)
    return log.found()


def draw_particles(task: Task, config: ParticleConfig | None = None) -> Found:
    """Draw ``config.count`` particles of each picture (``Particles``), which compete on the way;
    the best finished one is chosen.

    Takes count times the evaluations of one picture, and reward calls for each comparison.
    ``task.controls`` act before the particles: gradients without noise of their own.
    """
    config = config or ParticleConfig()
    k = config.count
    studio, log = _Studio(task, group=k), _Log(len(task.prompts), Budget(calls=1))
    own = _GroupParticles(studio, config)
    studio.controls = [*task.controls, own]
    media, values = studio.draw(studio.seeds)
    for j in range(k):
        rows = slice(j, None, k)
        spent = (k * studio.cost, k * (1 + len(own.checks))) if j == 0 else (0, 0)
        log.add(media[rows], values[rows], studio.seeds[rows], None, *spent)
    return log.found()


# ---- drawing ------------------------------------------------------------------------------------


class _Counter:
    """Control that counts evaluations, keeps the first noise, and may put another in its place."""

    def __init__(self, noise: Tensor | None) -> None:
        self.noise, self.steps = noise, 0

    def start(self, call: Call, latents: Tensor) -> Tensor:
        scale = noise_scale(call.pipe)
        if self.noise is None:
            self.noise = latents.detach().float() / scale
            return latents
        return (self.noise * scale).to(latents)

    def begin(self, call: Call, scheduler: Any) -> None:
        pass

    def gradient(self, index: int, total: int) -> bool:
        return False

    def visits(self, index: int, total: int) -> int:
        return 1

    def edit(self, step: Step) -> None:
        self.steps += 1

    def after(self, step: Step, sample: Tensor) -> Tensor:
        return sample

    def end(self, call: Call) -> None:
        pass


class _Studio:
    """Draws and scores one candidate of each picture, or ``group`` of each in rows that follow each
    other; knows what a candidate takes."""

    def __init__(self, task: Task, *, group: int = 1) -> None:
        given = task.generator
        self.source = given if hasattr(given, "pipeline") else DiffusionGenerator(given)
        self.arguments = self.source.settings(size=task.size, num_frames=task.num_frames)
        rows = [i for i in range(len(task.prompts)) for _ in range(group)]
        originals = task.prompts if task.originals is None else task.originals
        self.prompts = [task.prompts[i] for i in rows]
        self.words = [originals[i] for i in rows]
        self.beside = of_rows(task.beside, rows)
        self.seeds = [s for seed in task.seeds for s in candidate_seeds(int(seed), group)]
        self.context = context_rows(task.context, rows)
        self.reward, self.controls, self.group = task.reward, task.controls, group
        self.cost = 0  # evaluations of a candidate
        self.noise: Tensor | None = None  # of unit scale, of the last candidates
        self.rows: Sequence[int] = ()  # that are being drawn

    def draw(self, seeds: Sequence[int], noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Media (N, ...) and values (N,), from noise of the seeds, or from this noise."""
        size = max(1, self.source.batch_size // self.group) * self.group
        media, values, noises = [], [], []
        for start in range(0, len(self.prompts), size):
            rows = range(start, min(start + size, len(self.prompts)))
            drawn, first = self._call(rows, seeds, None if noise is None else noise[list(rows)])
            media.append(drawn)
            noises.append(first)
            values.append(self.score(drawn, rows))
        self.noise = torch.cat(noises)
        return torch.cat(media), torch.cat(values)

    def _call(
        self, rows: range, seeds: Sequence[int], noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        counter, self.rows = _Counter(noise), rows
        words = [self.words[i] for i in rows]
        own = own_noise([seeds[i] for i in rows])
        pipe = self.source.pipeline
        arguments = {**self.arguments, **of_rows(self.beside, rows)}
        controls: list[Control] = [CallSettings(arguments), counter, *self.controls]
        with watch_steps(pipe, controls, prompts=words):
            output = pipe(
                **arguments,
                prompt=[self.prompts[i] for i in rows],
                generator=own,
                output_type="pt",
            )
        self.cost = counter.steps
        assert counter.noise is not None
        media = quantize(pixels(output, self.source.modality))
        assert isinstance(media, Tensor)
        return media, counter.noise

    def score(self, media: Tensor, rows: Sequence[int]) -> Tensor:
        """Values (n,) float64 of media of some rows."""
        words = [self.words[i] for i in rows]
        with torch.no_grad():
            found = self.reward.score(words, media, context=context_rows(self.context, rows))
        return found.detach().double().cpu()


class _Log:
    """What was tried for each of N pictures, and the best so far."""

    def __init__(self, n: int, budget: Budget) -> None:
        self.tried: list[list[Tried]] = [[] for _ in range(n)]
        self.chosen = [0] * n
        self.budget = budget
        self.media: Tensor | None = None
        self.evaluations = self.calls = 0

    def affords(self, evaluations: int, calls: int) -> bool:
        left = self.budget.left(self.evaluations, self.calls)
        return evaluations <= left[0] and calls <= left[1]

    def add(
        self,
        media: Tensor,
        values: Tensor,
        seeds: Sequence[int],
        parents: Sequence[int] | None,
        evaluations: int,
        calls: int,
    ) -> list[int]:
        """Keep one candidate of each picture; the rows of those that are the best so far."""
        self.evaluations += evaluations
        self.calls += calls
        if self.media is None:
            self.media = media.clone()
        better = []
        for row, (value, seed) in enumerate(zip(values.tolist(), seeds, strict=True)):
            tried = self.tried[row]
            parent = None if parents is None else parents[row]
            tried.append(Tried(value, seed, parent, self.evaluations, self.calls))
            best = tried[self.chosen[row]].value
            if len(tried) == 1 or value > best or (math.isnan(best) and not math.isnan(value)):
                self.chosen[row] = len(tried) - 1
                self.media[row] = media[row]
                better.append(row)
        return better

    def found(self) -> Found:
        assert self.media is not None
        values = [tried[best].value for tried, best in zip(self.tried, self.chosen, strict=True)]
        return Found(
            self.media,
            torch.tensor(values),
            self.tried,
            self.chosen,
            self.evaluations,
            self.calls,
        )


class _GroupParticles(Particles):
    """Particles that know the seeds and the context of the rows that are drawn."""

    def __init__(self, studio: _Studio, config: ParticleConfig) -> None:
        super().__init__(studio.reward, config)
        self.studio = studio

    def begin(self, call: Call, scheduler: Any) -> None:
        rows = self.studio.rows
        self.seeds = [self.studio.seeds[row] for row in rows[:: self.config.count]]
        self.context = context_rows(self.studio.context, rows)
        super().begin(call, scheduler)


# ---- paths --------------------------------------------------------------------------------------


class _Tree:
    """Control of ``search_paths``: forks trajectories at some levels."""

    def __init__(
        self,
        studio: _Studio,
        paths: int,
        branches: int,
        window: tuple[float, float],
        budget: Budget,
    ) -> None:
        self.studio, self.paths, self.branches = studio, paths, branches
        self.window, self.budget = window, budget
        self.forks = 0  # of the last call
        self._levels: frozenset[int] = frozenset()
        self._noise: list[torch.Generator] = []

    def begin(self, call: Call, scheduler: Any) -> None:
        self.forks = 0
        seeds = [self.studio.seeds[row] for row in self.studio.rows]
        self._noise = own_noise([hash_seed(seed, "fork") for seed in seeds])

    def gradient(self, index: int, total: int) -> bool:
        return False

    def visits(self, index: int, total: int) -> int:
        if index == 0:
            self._levels = self._affordable(total)
        return 2 if index in self._levels else 1

    def _affordable(self, total: int) -> frozenset[int]:
        """Levels to fork at: as many as the budget allows, evenly spaced."""
        k = self.paths * self.branches
        evaluations, calls = self.budget.left(k * total, k)
        if min(evaluations, calls) < 0:
            raise T2XError(
                f"{k} trajectories of {total} steps exceed the budget; give at least {k * total} "
                f"evaluations and {k} reward calls, or fewer paths and branches"
            )
        low, high = (min(math.ceil(part * total), total - 1) for part in self.window)
        levels = list(range(low, high))
        count = int(min(evaluations / k, calls / k, len(levels)))
        return frozenset(levels[(2 * i + 1) * len(levels) // (2 * count)] for i in range(count))

    def edit(self, step: Step) -> None:
        if step.index not in self._levels or step.last_visit:
            return
        self.forks += 1
        with torch.no_grad():
            media = step.call.space.decode(step.clean).clamp(0, 1)
        values = self.studio.score(media, self.studio.rows).nan_to_num(-torch.inf)
        k = self.paths * self.branches
        best = values.view(-1, k).argsort(dim=1, descending=True, stable=True)[:, : self.paths]
        rows = best.repeat_interleave(self.branches, 1) + k * torch.arange(len(best))[:, None]
        step.reorder(rows.reshape(-1).to(step.sample.device))
        noise = normal_rows(self._noise, step.sample)
        step.move(noised(step.clean, noise, step.level.alpha, step.level.sigma))

    def after(self, step: Step, sample: Tensor) -> Tensor:
        return sample

    def end(self, call: Call) -> None:
        pass
