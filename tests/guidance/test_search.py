"""Search over noise and paths, and time travel, on stock pipelines from tiny configurations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.noise import time_travelled
from t2x.generators.diffusion import DiffusionGenerator
from t2x.guidance.hook import watch_steps
from t2x.guidance.particles import ParticleConfig
from t2x.guidance.search import (
    Budget,
    Found,
    Task,
    best_of_n,
    candidate_seeds,
    draw_particles,
    search_paths,
    zero_order_search,
)
from t2x.guidance.step import Call, Step
from t2x.guidance.travel import TimeTravel
from t2x.testing.pipelines import tiny_flux, tiny_stable_diffusion

STEPS = 3
PROMPTS, SEEDS = ["a cat", "two dogs"], [3, 4]


class Reddish:
    """Mean of red less blue: differs between pictures, never asks for gradients."""

    name, modality, scale, differentiable = "reddish", "image", "difference", False
    range = (-1.0, 1.0)

    def __init__(self, missing: bool = False) -> None:
        self.missing = missing
        self.words: list[str] = []
        self.scored = 0

    def score(self, prompts: list[str], media: Tensor, *, context: Any = None) -> Tensor:
        assert not media.requires_grad
        self.words += prompts
        self.scored += len(media)
        values = (media[:, 0] - media[:, 2]).flatten(1).mean(1)
        return torch.full_like(values, math.nan) if self.missing else values


@pytest.fixture(scope="module")
def generator() -> DiffusionGenerator:
    sampling = {"num_inference_steps": STEPS, "guidance_scale": 2.0}
    return DiffusionGenerator(tiny_stable_diffusion(), sampling=sampling)


METHODS = {
    "best": lambda task, budget: best_of_n(task, budget),
    "zero": lambda task, budget: zero_order_search(task, budget, neighbours=2),
    "paths": lambda task, budget: search_paths(task, budget, paths=1, branches=2, start=0, stop=1),
}


@pytest.fixture(scope="module")
def found(generator: DiffusionGenerator) -> dict[str, Found]:
    task = Task(generator, PROMPTS, SEEDS, Reddish())
    return {name: run(task, Budget(evaluations=12)) for name, run in METHODS.items()}


@pytest.mark.parametrize("name", METHODS)
def test_the_budget_is_used_and_kept(found: dict[str, Found], name: str) -> None:
    """12 evaluations of 3 steps: 4 candidates; 2 paths with a fork at both levels that are not the
    last, 2 (3 + 2) = 10, scored at each fork and at the end."""
    got = found[name]
    spent, candidates = {"best": (12, 4), "zero": (12, 4), "paths": (10, 2)}[name]
    assert got.evaluations == spent and [len(row) for row in got.tried] == [candidates] * 2
    assert got.calls == {"best": 4, "zero": 4, "paths": 6}[name]


@pytest.mark.parametrize("name", METHODS)
def test_the_best_that_was_tried_is_given(found: dict[str, Found], name: str) -> None:
    got = found[name]
    for row, tried in enumerate(got.tried):
        best = max(t.value for t in tried)
        assert got.values[row].item() == pytest.approx(best)
        assert tried[got.chosen[row]].value == best
    assert Reddish().score(PROMPTS, got.media).tolist() == pytest.approx(got.values.tolist())


def test_the_first_candidate_is_the_picture_of_the_seed(
    generator: DiffusionGenerator, found: dict[str, Found]
) -> None:
    plain = Reddish().score(PROMPTS, generator.generate(PROMPTS, seeds=SEEDS))
    for name in ("best", "zero"):
        first = [tried[0] for tried in found[name].tried]
        assert [t.value for t in first] == pytest.approx(plain.tolist())
        assert [t.seed for t in first] == SEEDS


def test_a_candidate_can_be_drawn_again(
    generator: DiffusionGenerator, found: dict[str, Found]
) -> None:
    got = found["best"]
    seeds = [got.tried[row][got.chosen[row]].seed for row in range(2)]
    assert torch.equal(got.media, generator.generate(PROMPTS, seeds=seeds))
    assert candidate_seeds(3, 4) == [t.seed for t in got.tried[0]]


@pytest.mark.parametrize("name", METHODS)
def test_alone_as_in_company(
    generator: DiffusionGenerator, found: dict[str, Found], name: str
) -> None:
    task = Task(generator, PROMPTS[1:], SEEDS[1:], Reddish())
    alone = METHODS[name](task, Budget(evaluations=12))
    assert (alone.media[0] - found[name].media[1]).abs().max() <= 1 / 255
    assert [t.seed for t in alone.tried[0]] == [t.seed for t in found[name].tried[1]]
    again = METHODS[name](task, Budget(evaluations=12))
    assert torch.equal(alone.media, again.media)


def test_reward_calls_are_a_budget_too(generator: DiffusionGenerator) -> None:
    reward = Reddish()
    got = best_of_n(Task(generator, PROMPTS, SEEDS, reward), Budget(calls=2))
    assert [len(row) for row in got.tried] == [2, 2] and reward.scored == 4
    reward = Reddish()
    paths = Task(generator, PROMPTS, SEEDS, reward)
    got = search_paths(paths, Budget(calls=4), paths=1, branches=2, start=0, stop=1)
    assert got.calls == 4 and reward.scored == 8 and got.evaluations == 2 * (STEPS + 1)


def test_pictures_are_scored_against_the_users_words(generator: DiffusionGenerator) -> None:
    reward = Reddish()
    task = Task(generator, PROMPTS, SEEDS, reward, originals=["cat", "dogs"])
    best_of_n(task, Budget(calls=1))
    assert reward.words == ["cat", "dogs"]


def test_zero_order_search_moves_its_pivot(generator: DiffusionGenerator) -> None:
    """Neighbours are made from the best so far, and the best never gets worse."""
    task = Task(generator, PROMPTS[:1], SEEDS[:1], Reddish())
    got = zero_order_search(task, Budget(evaluations=21), neighbours=2, distance=0.9)
    tried = got.tried[0]
    assert [t.parent for t in tried[1:3]] == [0, 0]
    for start in (3, 5):
        so_far = [t.value for t in tried[:start]]
        assert {t.parent for t in tried[start : start + 2]} == {so_far.index(max(so_far))}


def test_a_small_distance_is_a_near_picture(generator: DiffusionGenerator) -> None:
    def reach(distance: float) -> float:
        task = Task(generator, PROMPTS[:1], SEEDS[:1], Reddish())
        budget = Budget(evaluations=2 * STEPS)
        tried = zero_order_search(task, budget, neighbours=1, distance=distance).tried[0]
        return abs(tried[1].value - tried[0].value)

    assert reach(1e-4) < 1e-4 < reach(1.0)


def test_what_cannot_be_measured_is_missing(generator: DiffusionGenerator) -> None:
    got = best_of_n(Task(generator, PROMPTS, SEEDS, Reddish(missing=True)), Budget(calls=2))
    assert bool(got.values.isnan().all()) and got.chosen == [0, 0]
    assert torch.equal(got.media, generator.generate(PROMPTS, seeds=SEEDS))


def test_packed_latents_need_no_care() -> None:
    """Flux hands packed latents around, and a loaded pipeline will do."""
    pipe = tiny_flux()
    generator = DiffusionGenerator(
        pipe, sampling={"num_inference_steps": 2, "height": 32, "width": 32}
    )
    for run in METHODS.values():
        got = run(Task(generator, PROMPTS, SEEDS, Reddish()), Budget(evaluations=8))
        assert got.values[0] >= got.tried[0][0].value and got.media.shape == (2, 3, 32, 32)
    assert "step" not in vars(pipe.scheduler)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda task: Budget(), "budget of a search is empty"),
        (lambda task: Budget(evaluations=0), "evaluations is 0"),
        (lambda task: Task(task.generator, ["a"], [], task.reward), "1 prompts, 0 seeds"),
        (lambda task: zero_order_search(task, Budget(calls=1), distance=2.0), "distance 2.0"),
        (lambda task: search_paths(task, Budget(calls=1), paths=0), "0 paths"),
        (lambda task: search_paths(task, Budget(evaluations=11)), "give at least 12 evaluations"),
    ],
)
def test_wrong_input_is_refused(generator: DiffusionGenerator, call: Any, message: str) -> None:
    task = Task(generator, PROMPTS, SEEDS, Reddish())
    with pytest.raises(T2XError, match=message):
        call(task)


def test_particles_by_the_same_door(generator: DiffusionGenerator) -> None:
    """2 particles of 3 steps, compared at 2 levels, at the end, and as finished pictures."""
    config = ParticleConfig(count=2, strength=100.0)
    reward = Reddish()
    both = draw_particles(Task(generator, PROMPTS, SEEDS, reward), config)
    assert (both.evaluations, both.calls) == (6, 8) and reward.scored == 16
    assert both.values.tolist() == [max(t.value for t in tried) for tried in both.tried]
    alone = draw_particles(Task(generator, PROMPTS[1:], SEEDS[1:], Reddish()), config)
    assert (alone.media[0] - both.media[1]).abs().max() <= 1 / 255


# ---- time travel --------------------------------------------------------------------------------


class Watch:
    """Remembers where steps were."""

    def __init__(self, push: float = 0.0) -> None:
        self.steps: list[Step] = []
        self.push = push

    def begin(self, call: Call, scheduler: Any) -> None: ...

    def gradient(self, index: int, total: int) -> bool:
        return False

    def visits(self, index: int, total: int) -> int:
        return 1

    def edit(self, step: Step) -> None:
        step.clean = step.clean + self.push
        self.steps.append(step)

    def after(self, step: Step, sample: Tensor) -> Tensor:
        return sample

    def end(self, call: Call) -> None: ...


def test_time_travel_goes_down_and_up(generator: DiffusionGenerator) -> None:
    """4 steps, from 0.25 to 0.75 two repeats: levels 1 and 2 three times each. The next visit's x_t
    is ``time_travelled`` of the edited x0_hat and the noise of the row's own stream."""
    watch, travel = Watch(push=0.01), TimeTravel(2, start=0.25, stop=0.75, seeds=[7, 8])
    pipe = generator.pipeline
    streams = [torch.Generator().manual_seed(s) for s in SEEDS]
    with watch_steps(pipe, [watch, travel]):
        whole = pipe(PROMPTS, generator=streams, num_inference_steps=4, output_type="pt").images
    assert [s.index for s in watch.steps] == [0, 1, 1, 1, 2, 2, 2, 3]
    first, second = watch.steps[1:3]
    levels = first.level
    pair = ((levels.alpha, levels.sigma), (levels.next_alpha, levels.next_sigma))
    zero = time_travelled(first.sample, first.clean, torch.zeros_like(first.sample), pair)
    ratio = levels.alpha / levels.next_alpha
    new = math.sqrt(levels.sigma**2 - (ratio * levels.next_sigma) ** 2)
    noise = (second.sample - zero) / new
    assert noise.std().item() == pytest.approx(1, abs=0.1)
    with watch_steps(pipe, [Watch(push=0.01), TimeTravel(2, start=0.25, stop=0.75, seeds=[8])]):
        alone = pipe(
            PROMPTS[1:],
            generator=[torch.Generator().manual_seed(SEEDS[1])],
            num_inference_steps=4,
            output_type="pt",
        ).images
    assert torch.allclose(alone[0], whole[1], atol=1e-4)


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"start": 0.8, "stop": 0.2}])
def test_wrong_time_travel_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(T2XError, match="time travel"):
        TimeTravel(**wrong)
