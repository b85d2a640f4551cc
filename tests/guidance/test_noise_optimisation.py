"""Optimisation of the initial noise through the whole chain, with unmodified pipelines."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.noise import clipped_gradient, noise_penalty
from t2x.generators.diffusion import DiffusionGenerator, own_noise
from t2x.guidance.hook import watch_steps
from t2x.guidance.metering import Meter
from t2x.guidance.noise_optimisation import NoiseConfig, OptimisedNoise, optimise_noise
from t2x.guidance.objective import Objective
from t2x.guidance.step import Step
from t2x.registry import load_generator, load_reward
from t2x.testing import DISTILLED, FAMILIES, tiny_stable_diffusion

PROMPTS, SEEDS = ["a cat", "two dogs"], [0, 1]


class Bright:
    name, modality, scale, differentiable = "bright", "image", "mean", True
    range = (0.0, 1.0)

    def __init__(self, lost: int | None = None) -> None:
        self.lost = lost

    def score(self, prompts: list[str], media: Tensor, *, context: Any = None) -> Tensor:
        values = media.flatten(1).mean(1)
        if self.lost is not None:
            values = torch.where(torch.arange(len(values)) == self.lost, math.nan, values)
        return values


def objective(**more: Any) -> Objective:
    return Objective([Bright(**more)], {"bright": 2.0}, normalise=False)


@pytest.fixture(scope="module")
def generator() -> DiffusionGenerator:
    sampling = {"num_inference_steps": 2, "guidance_scale": 2.0}
    return DiffusionGenerator(tiny_stable_diffusion(), sampling=sampling)


@pytest.fixture(scope="module")
def found(generator: DiffusionGenerator) -> OptimisedNoise:
    config = NoiseConfig(iterations=4, penalty=0.0)
    return optimise_noise(generator, PROMPTS, seeds=SEEDS, objective=objective(), config=config)


def test_the_reward_rises_and_the_best_is_kept(
    generator: DiffusionGenerator, found: OptimisedNoise
) -> None:
    assert bool((found.curve.diff(dim=1) > 0).all())
    assert torch.equal(found.values, found.curve.max(1).values)
    assert found.evaluations == 4 * 2
    scores = 2 * Bright().score(PROMPTS, found.media)
    assert torch.allclose(scores, found.values, atol=2e-3)  # 8 bits


def test_the_best_is_kept_where_the_ascent_overshoots(generator: DiffusionGenerator) -> None:
    class Near(Bright):
        def score(self, prompts: list[str], media: Tensor, *, context: Any = None) -> Tensor:
            return -(super().score(prompts, media) - 0.53).abs()

    config, near = NoiseConfig(iterations=5, rate=300.0, penalty=0.0), Near()
    goal = Objective([near], normalise=False)
    got = optimise_noise(generator, PROMPTS, seeds=SEEDS, objective=goal, config=config)
    assert bool((got.curve[:, -1] < got.curve.max(1).values - 0.002).all())
    assert torch.equal(got.values, got.curve.max(1).values)
    assert torch.allclose(near.score(PROMPTS, got.media), got.values, atol=1e-3)  # 8 bits


def test_the_first_iterate_is_the_picture_of_the_seed(generator: DiffusionGenerator) -> None:
    config = NoiseConfig(iterations=1)
    got = optimise_noise(generator, PROMPTS, seeds=SEEDS, objective=objective(), config=config)
    assert torch.equal(got.media, generator.generate(PROMPTS, seeds=SEEDS))
    expected = noise_penalty(got.noise)
    assert torch.allclose(got.penalties[:, 0], expected)


def test_the_noise_draws_the_picture(generator: DiffusionGenerator, found: OptimisedNoise) -> None:
    """The pipeline, given the noise as latents, draws the same."""
    settings = {"num_inference_steps": 2, "guidance_scale": 2.0, "output_type": "pt"}
    drawn = generator.pipeline(PROMPTS, latents=found.noise, **settings).images
    assert (drawn - found.media).abs().max().item() < 0.51 / 255


def test_alone_as_in_company(generator: DiffusionGenerator, found: OptimisedNoise) -> None:
    config = NoiseConfig(iterations=4, penalty=0.0)
    alone = optimise_noise(
        generator, PROMPTS[1:], seeds=SEEDS[1:], objective=objective(), config=config
    )
    assert torch.allclose(alone.curve, found.curve[1:], atol=1e-5)
    assert torch.allclose(alone.noise, found.noise[1:], atol=1e-3)


def test_the_last_iterate_takes_no_gradient(generator: DiffusionGenerator) -> None:
    """Of 3 iterations, 2 pictures, 2 steps, 2 passes: 8 evaluations back in two of them."""
    meter = Meter()
    with meter.watching(generator.pipeline):
        config = NoiseConfig(iterations=3)
        optimise_noise(generator, PROMPTS, seeds=SEEDS, objective=objective(), config=config)
    assert (meter.counts.forward["denoiser"], meter.counts.backward["denoiser"]) == (24, 16)
    assert (meter.counts.forward["decoder"], meter.counts.backward["decoder"]) == (6, 4)


def test_the_gradient_is_that_of_the_whole_chain(generator: DiffusionGenerator) -> None:
    """One step of rate 1 without momentum moves the noise by the clipped gradient; along it the
    reward rises as a finite difference through the pipeline says."""
    config = NoiseConfig(iterations=2, rate=1.0, momentum=0.0, penalty=0.0, clip=1e-3)
    first, second = (
        optimise_noise(
            generator,
            PROMPTS[:1],
            seeds=SEEDS[:1],
            objective=objective(),
            config=NoiseConfig(**{**vars(config), "iterations": n}),
        )
        for n in (1, 2)
    )
    move = second.noise - first.noise
    assert move.norm().item() == pytest.approx(1e-3, rel=0.01)

    def reward(noise: Tensor) -> float:
        settings = {"num_inference_steps": 2, "guidance_scale": 2.0, "output_type": "latent"}
        latents = generator.pipeline(PROMPTS[:1], latents=noise, **settings).images
        media = generator.pipeline.vae.decode(latents).sample.detach() / 2 + 0.5
        return media.clamp(0, 1).double().mean().item()

    unit = move / move.norm()
    slope = (reward(first.noise + 0.05 * unit) - reward(first.noise - 0.05 * unit)) / 0.1
    other = torch.randn(unit.shape, generator=torch.Generator().manual_seed(0))
    other = other / other.norm()
    across = (reward(first.noise + 0.05 * other) - reward(first.noise - 0.05 * other)) / 0.1
    assert slope > 5 * abs(across)


def test_the_penalty_pulls_to_the_norm_of_noise(generator: DiffusionGenerator) -> None:
    """Far heavier than the reward it brings |e| nearer to sqrt(d - 1)."""
    config = NoiseConfig(iterations=6, penalty=100.0, clip=0.02, rate=1.0, momentum=0.0)
    got = optimise_noise(generator, PROMPTS, seeds=SEEDS, objective=objective(), config=config)
    assert bool((got.penalties[:, -1] < got.penalties[:, 0]).all())


def test_a_sample_that_cannot_be_measured_is_missing(generator: DiffusionGenerator) -> None:
    config = NoiseConfig(iterations=3, penalty=0.0)
    got = optimise_noise(
        generator, PROMPTS, seeds=SEEDS, objective=objective(lost=0), config=config
    )
    assert got.values.isnan().tolist() == [True, False]
    assert bool(got.curve[0].isnan().all()) and bool((got.curve[1].diff() > 0).all())


@pytest.mark.parametrize("family", ["sdxl", "flux", "sana", "z", "flux2", "sprint"])
def test_families(family: str) -> None:
    """Packed latents, two passes of guidance, lists and signs: the chain is the pipeline's own."""
    from t2x.testing import CALLS

    call = {k: v for k, v in CALLS[family].items() if k != "negative_prompt"}
    sampling = {**call, "num_inference_steps": 2}
    generator = DiffusionGenerator({**FAMILIES, **DISTILLED}[family](), sampling=sampling)
    config = NoiseConfig(iterations=3, penalty=0.0, rate=20.0)
    got = optimise_noise(
        generator, PROMPTS[:1], seeds=SEEDS[:1], objective=objective(), config=config
    )
    assert got.curve[0, -1] > got.curve[0, 0]
    assert not {"start", "step"} & set(vars(generator.pipeline.scheduler))
    assert torch.is_grad_enabled()


def test_every_iteration_draws_the_same_prompts() -> None:
    """At rate 0 the noise stays, and so must the reward: Z-Image writes its chat template into the
    list of prompts that it gets."""
    generator = DiffusionGenerator(
        FAMILIES["z"](), sampling={"num_inference_steps": 1, "height": 32, "width": 32}
    )
    found = optimise_noise(
        generator,
        ["a cat"],
        seeds=[1],
        objective=objective(),
        config=NoiseConfig(iterations=2, rate=0.0),
    )
    assert found.curve[0, 0] == found.curve[0, 1]


def test_bfloat16(generator: DiffusionGenerator) -> None:
    pipe = tiny_stable_diffusion().to(torch.bfloat16)
    got = optimise_noise(
        DiffusionGenerator(pipe, sampling={"num_inference_steps": 1, "guidance_scale": 1.0}),
        PROMPTS[:1],
        seeds=SEEDS[:1],
        objective=objective(),
        config=NoiseConfig(iterations=2),
    )
    assert got.noise.dtype == torch.float32 and bool(got.noise.isfinite().all())


def test_the_distilled_generator_of_the_world() -> None:
    """Four steps, two pictures, three iterations: the reward that reads them rises for both."""
    reward = load_reward("clip")
    prompts = ["two red cats", "a blue bus left of a pizza"]
    got = optimise_noise(
        load_generator("emoji-flow-turbo"),
        prompts,
        seeds=SEEDS,
        objective=Objective([reward], normalise=False),
        config=NoiseConfig(iterations=3),
    )
    assert bool((got.values > got.curve[:, 0] + 0.01).all()) and got.evaluations == 12
    assert torch.allclose(reward.score(prompts, got.media), got.values, atol=0.02)


def test_an_edit_would_break_the_chain(generator: DiffusionGenerator) -> None:
    class Chained:
        chain = True

        def begin(self, call: Any, scheduler: Any) -> None: ...

        def gradient(self, index: int, total: int) -> bool:
            return True

        def visits(self, index: int, total: int) -> int:
            return 1

        def edit(self, step: Step) -> None:
            step.clean = step.clean + 1

        def after(self, step: Step, sample: Tensor) -> Tensor:
            return sample

        def end(self, call: Any) -> None: ...

    with watch_steps(generator.pipeline, [Chained()]), pytest.raises(T2XError, match="whole chain"):
        generator.pipeline(PROMPTS, generator=own_noise(SEEDS), num_inference_steps=2)


def test_clipping_holds_with_the_penalty() -> None:
    gradient = torch.randn(3, 4, 8, 8, generator=torch.Generator().manual_seed(0))
    assert clipped_gradient(gradient, 0.1).flatten(1).norm(dim=1).max().item() <= 0.1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"iterations": 0}, "iterations is 0"),
        ({"clip": -1.0}, "clip is -1"),
        ({"rate": math.nan}, "rate"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(T2XError, match=message):
        NoiseConfig(**wrong)


def test_wrong_input_is_refused(generator: DiffusionGenerator) -> None:
    with pytest.raises(T2XError, match="2 prompts, 1 seeds"):
        optimise_noise(generator, PROMPTS, seeds=[0], objective=objective())
