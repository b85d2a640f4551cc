"""Langevin noise and correctors on the Gaussian bed, batches, and mutations that have to show."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance import hook, reward_guidance
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.hook import watch_steps
from t2x.guidance.objective import Objective, Valued
from t2x.guidance.reward_guidance import RewardGuidance
from t2x.testing.gaussian_bed import (
    GaussianLaw,
    QuadraticReward,
    bed_betas,
    bed_pipeline,
    draw_samples,
)

DATA, TILTED = GaussianLaw(0.2, 0.25), GaussianLaw(0.6, 0.125)
BETAS = bed_betas(0.125)
VP = ("epsilon", "v_prediction", "sample")


def _vp(kind: Any, prediction: str, **more: Any) -> Callable[[], Any]:
    return lambda: kind(trained_betas=BETAS, prediction_type=prediction, **more)


_OF_FLOW: dict[str, Any] = {"use_flow_sigmas": True, "prediction_type": "flow_prediction"}
_DDIM: dict[str, Any] = {"clip_sample": False, "timestep_spacing": "trailing"}
_SOLVERS: list[tuple[str, Any, dict[str, Any]]] = [
    ("ddim", diffusers.DDIMScheduler, _DDIM),
    ("euler", diffusers.EulerDiscreteScheduler, {}),
    ("dpm", diffusers.DPMSolverMultistepScheduler, {}),
    ("deis", diffusers.DEISMultistepScheduler, {}),
    ("unipc", diffusers.UniPCMultistepScheduler, {}),
]
SCHEDULERS: dict[str, Callable[[], Any]] = {
    **{
        name if prediction == "epsilon" else f"{name} {prediction}": _vp(kind, prediction, **more)
        for prediction in VP
        for name, kind, more in _SOLVERS
    },
    "unipc flow": lambda: diffusers.UniPCMultistepScheduler(**_OF_FLOW),
    "flow": lambda: diffusers.FlowMatchEulerDiscreteScheduler(),
    "dpm flow": lambda: diffusers.DPMSolverMultistepScheduler(**_OF_FLOW),
}


def predicted(name: str) -> Any:
    """What the network of a run predicts: the last word of its name, epsilon without."""
    last = name.split()[-1]
    return last if last in (*VP, "flow") else "epsilon"


def settings(size: float, **more: Any) -> GuidanceConfig:
    given = {"variance": 0.25, "free_last": 0, "corrector_ratio": 0.05, "seed": 1, **more}
    return GuidanceConfig(rule="tilt", size=size, **given)


def guidance(size: float = 2.0, seeds: Sequence[int] | None = None, **more: Any) -> RewardGuidance:
    objective = Objective([QuadraticReward([1.0])], normalise=False)
    return RewardGuidance(objective, settings(size, **more), seeds=seeds)


def run(name: str, control: Any = None, law: Any = DATA, **draw: Any) -> Tensor:
    pipe = bed_pipeline(SCHEDULERS[name](), law, predicted(name))
    controls = [control] if control is not None else []
    return draw_samples(pipe, controls, **{"seed": 1, **draw})


def moments(name: str, steps: int, law: Any = DATA, **config: Any) -> tuple[float, float]:
    """Mean and variance of 100,000 samples, extrapolated from n and 2 n steps: noise is of first
    order in the step under any solver. Standard errors are 0.5 % and 1 %. DDIM steps by 1000 // n
    whatever its list says, so that its n divides 1000."""
    found = []
    if name.startswith("ddim"):
        steps = 100 if config.get("correctors") else 50
    for n in (steps, 2 * steps):
        samples = run(name, guidance(**config), law, steps=n).double()
        found.append((samples.mean().item(), samples.var().item()))
    (m1, v1), (m2, v2) = found
    return 2 * m2 - m1, 2 * v2 - v1


def check(found: tuple[float, float], law: GaussianLaw) -> None:
    assert found[0] == pytest.approx(law.mean, rel=0.012)
    assert found[1] == pytest.approx(law.variance, rel=0.02)


QUICK = [("dpm v_prediction", "E", 0.5), ("unipc flow", "J", 1.0), ("euler sample", "E", 0.0)]
PLAIN = [name for name in SCHEDULERS if predicted(name) in ("epsilon", "flow")]
# Both modes and noises by epsilon and flow, each once by the others, whose x0_hat is the same.
COMBINED = [
    *[(name, mode, noise) for name in PLAIN for mode in "EJ" for noise in (0.5, 1.0)],
    *[(name, *way) for name in SCHEDULERS if name not in PLAIN for way in (("E", 0.5), ("J", 1.0))],
]
NOISY = [
    pytest.param(*cell, marks=() if cell in QUICK else (pytest.mark.slow,)) for cell in COMBINED
]


@pytest.mark.parametrize(("name", "mode", "noise"), NOISY)
def test_noise_leaves_the_tilted_law(name: str, mode: Any, noise: float) -> None:
    check(moments(name, 60, mode=mode, noise=noise), TILTED)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "flow" else (pytest.mark.slow,)) for n in SCHEDULERS]
)
def test_noise_without_a_reward_leaves_the_data(name: str) -> None:
    mean, variance = moments(name, 60, size=0.0, noise=0.7)
    assert mean == pytest.approx(0.2, abs=0.008)  # 1.6 % of the deviation
    assert variance == pytest.approx(0.25, rel=0.02)


CORRECTED = [
    pytest.param(name, mode, marks=() if (name, mode, 0.0) in QUICK else (pytest.mark.slow,))
    for name in SCHEDULERS
    for mode in ("EJ" if name in PLAIN else "J" if "v_" in name else "E")
]


@pytest.mark.parametrize(("name", "mode"), CORRECTED)
def test_correctors_leave_the_tilted_law(name: str, mode: Any) -> None:
    """A chain of ratio 0.05 is too wide by 0.25 %."""
    check(moments(name, 40, mode=mode, correctors=1), TILTED)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["unipc", "flow"])
def test_correctors_without_a_reward_leave_the_data(name: str) -> None:
    """Steps at one level, from the law of that level. The reward's strength is as good as 0, since
    at 0 no step is guided."""
    mean, variance = moments(name, 40, size=1e-9, correctors=2)
    assert mean == pytest.approx(0.2, abs=0.01)  # 2 % of the deviation
    assert variance == pytest.approx(0.25, rel=0.02)
    few = {"steps": 10, "samples": 600}
    moved = run(name, guidance(1e-9, correctors=2), **few)
    assert not torch.allclose(run(name, **few), moved, atol=0.05)


@pytest.mark.parametrize("name", ["unipc", "unipc flow"])
def test_unipc_does_not_throw_noise_away(name: str) -> None:
    """At noise 1 little is left of where a run started: the exact ancestral chain's correlation
    with its first noise is 0, that of the ODE 1. UniPC's own corrector rebuilds x_t from the sample
    before, noise and all."""
    ode = run(name, steps=30, samples=6000).flatten()
    noisy = run(name, guidance(0.0, noise=1.0), steps=30, samples=6000).flatten()
    assert torch.corrcoef(torch.stack([ode, noisy]))[0, 1].abs() < 0.1


def test_unipc_keeps_its_corrector_where_nothing_is_moved() -> None:
    """Guidance by x0_hat alone has UniPC's accuracy."""
    found = run("unipc flow", guidance(), steps=40).double()
    assert found.var().item() == pytest.approx(0.125, rel=0.012)


@pytest.mark.parametrize(
    ("scheduler", "config"),
    [
        (diffusers.HeunDiscreteScheduler(), {"noise": 0.5}),
        (diffusers.HeunDiscreteScheduler(), {"correctors": 1}),
        (diffusers.DPMSolverSinglestepScheduler(), {"correctors": 1}),
        (diffusers.LMSDiscreteScheduler(), {"noise": 0.5}),
        (diffusers.EulerAncestralDiscreteScheduler(), {"noise": 0.5}),
        (diffusers.DPMSolverMultistepScheduler(algorithm_type="sde-dpmsolver++"), {"noise": 0.5}),
        (diffusers.FlowMatchEulerDiscreteScheduler(stochastic_sampling=True), {"noise": 0.5}),
    ],
)
def test_what_would_be_lost_is_refused(scheduler: Any, config: dict[str, Any]) -> None:
    prediction = "flow" if "Flow" in type(scheduler).__name__ else "epsilon"
    pipe = bed_pipeline(scheduler, DATA, prediction)
    with pytest.raises(T2XError, match=r"noise 0|adds noise itself"):
        draw_samples(pipe, [guidance(**config)], steps=4, samples=60)


@pytest.mark.parametrize("name", ["euler", "unipc flow", "dpm", "flow", "deis v_prediction"])
@pytest.mark.parametrize(
    "config", [{"mode": "E"}, {"mode": "J"}, {"noise": 0.5}, {"correctors": 1, "mode": "J"}]
)
def test_a_batch_of_two_is_two_singles(name: str, config: dict[str, Any]) -> None:
    """Pictures of 60 samples each. The objective, norms and noise of one know nothing of the other.
    Float32 at sigma / alpha = 160 leaves 1e-5."""
    pipe = bed_pipeline(SCHEDULERS[name](), DATA, predicted(name))
    noise = torch.randn(2, 3, 1, 20, generator=torch.Generator().manual_seed(3))

    def draw(rows: list[int]) -> Tensor:
        with watch_steps(pipe, [guidance(seeds=rows, **config)], prompts=["a"] * len(rows)):
            return pipe(
                ["a"] * len(rows), width=20, num_inference_steps=10, latents=noise[rows].clone()
            )

    both = draw([0, 1])
    for row in (0, 1):
        assert torch.allclose(both[row], draw([row])[0], atol=1e-4)


# ---- mutations: each is a fault that somebody has published, and the bed has to see it ----------


def fails(**config: Any) -> None:
    with pytest.raises(AssertionError):
        small_check(guidance(**config))


SMALL: dict[str, Any] = {"steps": 60, "samples": 30_000}


@functools.cache
def wanted(noise: float) -> tuple[float, float]:
    """Mean and variance of the unguided pipeline of the tilted law."""
    plain = guidance(0.0, noise=noise) if noise else None
    found = run("dpm", plain, TILTED, **SMALL).double()
    return found.mean().item(), found.var().item()


@pytest.fixture(scope="module", autouse=True)
def _before_any_mutation() -> None:
    """What is wanted is drawn by what is right."""
    wanted(0.0), wanted(0.5)


def small_check(control: RewardGuidance) -> None:
    """30,000 samples in 60 steps, beside as many of what is wanted, of the same random numbers, so
    that neither steps nor samples err. Correctors, which the other run has none of, leave a
    variance that is 3 % too small in so few steps."""
    rough = bool(control.config.correctors)
    mean, variance = wanted(control.config.noise)
    found = run("dpm", control, **SMALL).double()
    assert found.mean().item() == pytest.approx(mean, rel=0.01 if rough else 1e-3)
    assert found.var().item() == pytest.approx(variance, rel=0.04 if rough else 2e-3)


@pytest.mark.parametrize(
    "config", [{"mode": "E"}, {"mode": "J"}, {"noise": 0.5}, {"correctors": 1, "mode": "J"}]
)
def test_without_a_mutation_the_small_check_passes(config: dict[str, Any]) -> None:
    small_check(guidance(**config))


@pytest.mark.parametrize("mode", ["E", "J"])
def test_a_flipped_sign_fails(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    right = RewardGuidance._shift
    monkeypatch.setattr(RewardGuidance, "_shift", lambda *given: -right(*given))
    fails(mode=mode)


@pytest.mark.parametrize("mode", ["E", "J"])
def test_no_damping_fails(mode: Any) -> None:
    fails(mode=mode, damping=False)


def test_noise_without_its_drift_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpaid(
        sample: Tensor, predicted: Tensor, noise: Tensor, split: Any, alpha: float
    ) -> Tensor:
        return sample + alpha * split.new * noise

    monkeypatch.setattr(reward_guidance, "trade_noise", unpaid)
    fails(noise=0.5)


def test_a_corrector_without_its_drift_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def unpaid(sample: Tensor, score: Tensor, noise: Tensor, step: Tensor) -> Tensor:
        return sample + (2 * step).sqrt().view(-1, 1, 1, 1) * noise

    monkeypatch.setattr(reward_guidance, "langevin_update", unpaid)
    fails(correctors=1)


@pytest.mark.parametrize("config", [{"mode": "E"}, {"mode": "J"}, {"noise": 0.5}])
def test_the_next_levels_sigma_fails(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a step the scheduler's index points at the level that comes."""
    right = hook.read_level

    def late(scheduler: Any, timestep: Any) -> Any:
        level = right(scheduler, timestep)
        sigma = max(level.next_sigma, 1e-6)
        return replace(level, alpha=level.next_alpha, sigma=sigma)

    monkeypatch.setattr(hook, "read_level", late)
    fails(**config)


class Halves(QuadraticReward):
    """Half the reward, less 1 for each sample: of another scale and place."""

    name = "half"

    def score(self, prompts: Sequence[str], media: Tensor, context: Any = None) -> Tensor:
        return super().score(prompts, media, context) / 2 - media[0].numel()


class Adaptive:
    """Weights a and 2 (1 - a) of the reward and its half, by how much there is of the first: in sum
    always the gradient of the reward, as long as a is held fixed."""

    def weights(
        self, prompts: Sequence[str], index: int, total: int, values: Tensor, given: Tensor
    ) -> Tensor:
        share = (values[:, 0] - values[:, 1]) / values.sum(1).abs()
        first = torch.sigmoid(2 * share)
        return torch.stack([first, 2 - 2 * first], 1)


def adaptive() -> RewardGuidance:
    rewards = [QuadraticReward([1.0]), Halves([1.0])]
    return RewardGuidance(
        Objective(rewards, policy=Adaptive(), normalise=False), settings(2.0, mode="J")
    )


def test_adaptive_weights_do_not_move_the_law() -> None:
    small_check(adaptive())


def let_weights_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The released RewardFlow's fault in the product's own evaluation: its scores, running sizes
    and policy as they are, but the gradient is that of sum_i w_i(r) r_i / size_i."""
    right, observe = Objective.evaluate, Objective._observe
    kept: list[Tensor] = []

    def watched(self: Objective, *given: Tensor) -> Tensor:
        kept.append(observe(self, *given))
        return kept[-1]

    def evaluate(self: Objective, prompts: Any, media: Tensor, **more: Any) -> Valued:
        found = right(self, prompts, media, **more)
        with torch.enable_grad():
            leaf = media.detach().clamp(0, 1).requires_grad_()
            scores = self.ensemble.components(prompts, leaf)
            live = torch.stack([scores[name] for name in self.names], 1)
            assert self.policy is not None
            weights = self.policy.weights(prompts, more["index"], more["total"], live, live)
            sizes = kept[-1] if self.normalise else torch.ones_like(live)
            (gradient,) = torch.autograd.grad((weights / sizes * live).sum(), leaf)
        return replace(found, gradient=gradient)

    monkeypatch.setattr(Objective, "_observe", watched)
    monkeypatch.setattr(Objective, "evaluate", evaluate)


def test_weights_that_are_not_detached_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    let_weights_pass(monkeypatch)
    with pytest.raises(AssertionError):
        small_check(adaptive())


class Apart(QuadraticReward):
    """Of the first two channels, with targets of their own: a gradient of another direction."""

    name = "apart"

    def __init__(self) -> None:
        super().__init__([0.4, -0.6])


def check_blend() -> None:
    """Rewards of adaptive weights, each gradient divided by its running size: four steps of an
    objective against sum_i w_i g_i / size_i, worked out from g_i = 2 (target - x)."""
    first, second = QuadraticReward([1.0]), Apart()
    policy = Adaptive()
    objective = Objective([first, second], policy=policy)
    stream, square = torch.Generator().manual_seed(5), torch.zeros(2, 2)
    wall = torch.tensor([0.4, -0.6, 0.0]).view(3, 1, 1)
    for i in range(4):
        x = torch.randn(2, 3, 1, 20, generator=stream) * (1 - i / 5)
        media = x / 32 + 0.5
        found = objective.evaluate([""] * 2, media, index=i, total=4)
        gradients = 32 * torch.stack(
            [2 * (1 - x), 2 * (wall - x) * torch.tensor([1.0, 1.0, 0.0]).view(3, 1, 1)]
        )
        square = 0.8 * square + 0.2 * gradients.square().mean((2, 3, 4)).T
        sizes = (square / (1 - 0.8 ** (i + 1))).sqrt()
        weights = policy.weights([""] * 2, i, 4, found.values, found.values)
        assert torch.equal(found.weights, weights)
        wanted = torch.einsum("nk,knchw->nchw", weights / sizes, gradients)
        assert torch.allclose(found.gradient, wanted, rtol=1e-3, atol=1e-4)


def test_normalised_gradients_blend_by_weights_that_are_constants() -> None:
    check_blend()


def test_normalised_weights_that_are_not_detached_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    let_weights_pass(monkeypatch)
    with pytest.raises(AssertionError):
        check_blend()
