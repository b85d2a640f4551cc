"""``rule="relative"``, the default, on the Gaussian bed: each edit of x0_hat, in closed form.

The two laws of classifier-free guidance have one variance v, so that their x0_hat differ by
sigma^2 / (alpha^2 v + sigma^2) times the distance of their means, everywhere, under any
parameterisation and whatever space the scheduler's samples are in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor

from t2x.guidance.config import GuidanceConfig
from t2x.guidance.hook import watch_steps
from t2x.guidance.objective import Objective
from t2x.guidance.reward_guidance import RewardGuidance
from t2x.guidance.step import Call, Step
from t2x.testing.gaussian_bed import (
    GaussianLaw,
    GuidedLaw,
    QuadraticReward,
    bed_betas,
    bed_pipeline,
)

VARIANCE, SCALE, SIZE, STEPS = 0.25, 3.0, 0.3, 6
TOLD, PLAIN = GaussianLaw(0.2, VARIANCE), GaussianLaw(-0.5, VARIANCE)
BETAS = bed_betas(VARIANCE)
NOISE = torch.randn(2, 3, 1, 40, generator=torch.Generator().manual_seed(3))


def _vp(name: str, **more: Any) -> Callable[[str], Any]:
    def build(prediction: str) -> Any:
        kind = getattr(diffusers, name)
        return kind(trained_betas=BETAS, prediction_type=prediction, **more)

    return build


def _flow(name: str, **more: Any) -> Callable[[str], Any]:
    return lambda prediction: getattr(diffusers, name)(**more)


_OF_FLOW = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
_VP = ("epsilon", "v_prediction", "sample")
SCHEDULERS: dict[str, tuple[Callable[[str], Any], tuple[str, ...]]] = {
    "ddim": (
        _vp("DDIMScheduler", clip_sample=False, timestep_spacing="trailing"),
        _VP,
    ),
    "euler": (_vp("EulerDiscreteScheduler"), _VP),
    "dpm": (_vp("DPMSolverMultistepScheduler"), _VP),
    "unipc": (_vp("UniPCMultistepScheduler"), _VP),
    "deis": (_vp("DEISMultistepScheduler"), _VP),
    "flow euler": (_flow("FlowMatchEulerDiscreteScheduler"), ("flow",)),
    "flow dpm": (_flow("DPMSolverMultistepScheduler", **_OF_FLOW), ("flow",)),
    "flow unipc": (_flow("UniPCMultistepScheduler", **_OF_FLOW), ("flow",)),
}
QUICK = ("ddim-epsilon-E", "euler-epsilon-J", "dpm-v_prediction-J", "unipc-sample-E")
RUNS = [
    pytest.param(name, prediction, mode, id=cell, marks=marks)
    for name, (_, predictions) in SCHEDULERS.items()
    for prediction in predictions
    for mode in "EJ"
    for cell in [f"{name}-{prediction}-{mode}"]
    for marks in [() if cell in (*QUICK, "flow euler-flow-J") else (pytest.mark.slow,)]
]


class Edits:
    """Control that writes down what the one before it made of each step."""

    def __init__(self) -> None:
        self.steps: list[tuple[Any, Step]] = []

    def begin(self, call: Call, scheduler: Any) -> None:
        self.steps = []

    def gradient(self, index: int, total: int) -> bool:
        return False

    def visits(self, index: int, total: int) -> int:
        return 1

    def edit(self, step: Step) -> None:
        self.steps.append((step.scheduler.timesteps[step.index], step))

    def after(self, step: Step, sample: Tensor) -> Tensor:
        return sample

    def end(self, call: Call) -> None: ...


def steer(weights: dict[str, float] | None = None, **config: Any) -> RewardGuidance:
    """By the size alone, but for what ``config`` says."""
    given = {"size": SIZE, "damping": False, "eta_min": 1.0, "eta_max": 1.0, "free_last": 1}
    settings = GuidanceConfig(rule="relative", variance=VARIANCE, **{**given, **config})
    return RewardGuidance(Objective([QuadraticReward([1.0])], weights), settings)


def draw(
    name: str,
    prediction: Any,
    control: RewardGuidance | None,
    *,
    plain: GaussianLaw | None = PLAIN,
    rows: Sequence[int] = (0, 1),
) -> tuple[Tensor, Edits, Any]:
    """Pictures of 120 numbers each, what was done at each step, and the pipeline. ``plain``: the
    unconditional law; without, no classifier-free guidance."""
    law: Any = TOLD if plain is None else GuidedLaw(TOLD, plain)
    pipe = bed_pipeline(SCHEDULERS[name][0](prediction), law, prediction)
    seen = Edits()
    controls: list[Any] = [seen] if control is None else [control, seen]
    more: dict[str, Any] = {} if plain is None else {"guidance_scale": SCALE}
    with watch_steps(pipe, controls, prompts=["a"] * len(rows)):
        latents = NOISE[list(rows)].clone()
        found = pipe(
            ["a"] * len(rows), width=40, num_inference_steps=STEPS, latents=latents, **more
        )
    return found, seen, pipe


def rms(value: Tensor) -> Tensor:
    return value.double().flatten(1).square().mean(1).sqrt()


def check_edits(seen: Edits, pipe: Any, mode: str, reference: Callable[..., Tensor]) -> None:
    """``SIZE`` times the reference, along the reward's gradient, which the denoiser's Jacobian, a
    positive number here, does not turn; no edit in the free step.

    But for J at the first level of a flow: x_t says nothing of x0 there, and what the Jacobian is
    besides 0 comes of timesteps that flow sigmas round (UniPC tells the network 999 of 999.999).
    Elsewhere that rounding is 0.3 % of a size."""
    assert len(seen.steps) == STEPS
    for timestep, step in seen.steps[:-1]:
        edit = (step.clean - step.predicted).double()
        alpha, sigma = pipe.unet.level(float(timestep))
        signal = step.level.alpha / step.level.sigma
        if mode == "J" and step.level.prediction == "flow" and signal < 0.01:
            continue
        wanted = reference(step, alpha, sigma)
        assert torch.allclose(rms(edit), SIZE * wanted, rtol=5e-3), step.index
        gradient = (1.0 - step.predicted).double()
        cosine = (edit * gradient).sum((1, 2, 3)) / (rms(edit) * rms(gradient) * edit[0].numel())
        rough = mode == "J" and signal < 0.01  # then the Jacobian's own rounding is 1 %
        assert (cosine > 1 - (1e-3 if rough else 1e-5)).all(), step.index
    assert not seen.steps[-1][1].edited


def correction(step: Step, alpha: float, sigma: float) -> Tensor:
    """Root mean square of s (c - u) at x0_hat, of each sample."""
    apart = sigma**2 / (alpha**2 * VARIANCE + sigma**2) * (TOLD.mean - PLAIN.mean)
    return torch.full((len(step.sample),), SCALE * apart, dtype=torch.float64)


@pytest.mark.parametrize(("name", "prediction", "mode"), RUNS)
def test_an_edit_is_tied_to_the_cfg_correction(name: str, prediction: str, mode: str) -> None:
    _, seen, pipe = draw(name, prediction, steer(mode=mode))
    check_edits(seen, pipe, mode, correction)


@pytest.mark.parametrize("plain", [None, TOLD], ids=["no guidance", "no difference"])
@pytest.mark.parametrize(("name", "prediction", "mode"), RUNS)
def test_without_a_correction_it_is_tied_to_the_output(
    name: str, prediction: str, mode: str, plain: GaussianLaw | None
) -> None:
    """Without classifier-free guidance, and where its two halves agree, as for a prompt that is the
    negative one: the size of the output as it moves x0_hat."""

    def output(step: Step, alpha: float, sigma: float) -> Tensor:
        gain = {"epsilon": sigma / alpha if alpha else 0.0, "sample": 1.0}
        return rms(step.output) * gain.get(prediction, sigma)

    _, seen, pipe = draw(name, prediction, steer(mode=mode), plain=plain)
    check_edits(seen, pipe, mode, output)


@pytest.mark.parametrize(("name", "prediction", "mode"), RUNS)
def test_no_size_is_no_guidance_and_a_sign_says_which_way(
    name: str, prediction: str, mode: str
) -> None:
    plain, _, _ = draw(name, prediction, None)
    for nothing in ({"size": 0.0}, {"eta_min": 0.0, "eta_max": 0.0}):
        assert torch.equal(draw(name, prediction, steer(mode=mode, **nothing))[0], plain)

    def reward(found: Tensor) -> Tensor:
        return -(found - 1).square().sum((1, 2, 3))

    towards, _, _ = draw(name, prediction, steer(mode=mode))
    away, _, _ = draw(name, prediction, steer({"quadratic": -1.0}, mode=mode))
    assert (reward(towards) > reward(plain)).all()
    assert (reward(away) < reward(plain)).all()


@pytest.mark.parametrize(("name", "prediction", "mode"), RUNS)
def test_a_batch_of_two_is_two_singles(name: str, prediction: str, mode: str) -> None:
    """With the logistic factor and the damping of the defaults."""
    config: dict[str, Any] = {"mode": mode, "damping": True, "eta_min": 0.5, "eta_max": 1.5}
    both = draw(name, prediction, steer(**config))[0]
    for row in (0, 1):
        single = draw(name, prediction, steer(**config), rows=[row])[0]
        assert torch.allclose(both[row], single[0], atol=1e-4)


def test_the_defaults_factors_are_what_they_say() -> None:
    """The damping divides by 1 + 2 size s^2, s^2 the variance of x0 given x_t; the logistic factor
    is the one of a reward far below its target: eta_max."""
    config = {"damping": True, "eta_min": 0.5, "eta_max": 1.5, "steepness": 1e3}
    _, seen, pipe = draw("unipc", "v_prediction", steer(**config))
    for timestep, step in seen.steps[:-1]:
        alpha, sigma = pipe.unet.level(float(timestep))
        variance = VARIANCE * sigma**2 / (alpha**2 * VARIANCE + sigma**2)
        wanted = 1.5 * SIZE / (1 + 2 * SIZE * variance) * correction(step, alpha, sigma)
        assert torch.allclose(rms(step.clean - step.predicted), wanted, rtol=2e-3)
