"""Langevin noise and correctors on the Gaussian bed, batches, and mutations that have to show."""

from __future__ import annotations

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
SCHEDULERS: dict[str, Callable[[], Any]] = {
    "ddim": lambda: diffusers.DDIMScheduler(
        trained_betas=BETAS, clip_sample=False, timestep_spacing="trailing"
    ),
    "euler": lambda: diffusers.EulerDiscreteScheduler(trained_betas=BETAS),
    "dpm": lambda: diffusers.DPMSolverMultistepScheduler(trained_betas=BETAS),
    "deis": lambda: diffusers.DEISMultistepScheduler(trained_betas=BETAS),
    "unipc": lambda: diffusers.UniPCMultistepScheduler(trained_betas=BETAS),
    "unipc flow": lambda: diffusers.UniPCMultistepScheduler(
        use_flow_sigmas=True, prediction_type="flow_prediction"
    ),
    "flow": lambda: diffusers.FlowMatchEulerDiscreteScheduler(),
    "dpm flow": lambda: diffusers.DPMSolverMultistepScheduler(
        use_flow_sigmas=True, prediction_type="flow_prediction"
    ),
}


def settings(size: float, **more: Any) -> GuidanceConfig:
    given = {"variance": 0.25, "free_last": 0, "corrector_ratio": 0.05, "seed": 1, **more}
    return GuidanceConfig(rule="tilt", size=size, **given)


def guidance(size: float = 2.0, seeds: Sequence[int] | None = None, **more: Any) -> RewardGuidance:
    objective = Objective([QuadraticReward([1.0])], normalise=False)
    return RewardGuidance(objective, settings(size, **more), seeds=seeds)


def run(name: str, control: Any = None, law: Any = DATA, **draw: Any) -> Tensor:
    prediction = "flow" if "flow" in name else "epsilon"
    pipe = bed_pipeline(SCHEDULERS[name](), law, prediction)
    controls = [control] if control is not None else []
    return draw_samples(pipe, controls, **{"seed": 1, **draw})


def moments(name: str, steps: int, law: Any = DATA, **config: Any) -> tuple[float, float]:
    """Mean and variance of 100,000 samples, extrapolated from n and 2 n steps: noise is of first
    order in the step under any solver. Standard errors are 0.5 % and 1 %."""
    found = []
    for n in (steps, 2 * steps):
        samples = run(name, guidance(**config), law, steps=n).double()
        found.append((samples.mean().item(), samples.var().item()))
    (m1, v1), (m2, v2) = found
    return 2 * m2 - m1, 2 * v2 - v1


def check(found: tuple[float, float], law: GaussianLaw) -> None:
    assert found[0] == pytest.approx(law.mean, rel=0.012)
    assert found[1] == pytest.approx(law.variance, rel=0.02)


NOISY = [
    pytest.param(name, mode, noise, marks=() if quick else (pytest.mark.slow,))
    for name in SCHEDULERS
    for mode in ("E", "J")
    for noise in (0.5, 1.0)
    for quick in [(name, mode, noise) in (("dpm", "E", 0.5), ("unipc flow", "J", 1.0))]
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
    pytest.param(name, mode, marks=() if (name, mode) == ("euler", "E") else (pytest.mark.slow,))
    for name in SCHEDULERS
    for mode in ("E", "J")
]


@pytest.mark.parametrize(("name", "mode"), CORRECTED)
def test_correctors_leave_the_tilted_law(name: str, mode: Any) -> None:
    """A chain of ratio 0.05 is too wide by 0.25 %."""
    check(moments(name, 40, mode=mode, correctors=1), TILTED)


@pytest.mark.parametrize("name", ["unipc", "flow"])
def test_correctors_without_a_reward_leave_the_data(name: str) -> None:
    """Steps at one level, from the law of that level: what comes out has the data's law as well as
    the run without them. The reward's strength is as good as 0, since at 0 no step is guided."""
    plain = run(name, steps=40).double()
    moved = run(name, guidance(1e-9, correctors=2), steps=40).double()
    assert not torch.allclose(plain, moved, atol=0.05)
    assert moved.mean().item() == pytest.approx(plain.mean().item(), abs=0.01)
    assert moved.var().item() == pytest.approx(plain.var().item(), rel=0.06)


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


@pytest.mark.parametrize("name", ["euler", "unipc flow", "dpm", "flow"])
@pytest.mark.parametrize(
    "config", [{"mode": "E"}, {"mode": "J"}, {"noise": 0.5}, {"correctors": 1, "mode": "J"}]
)
def test_a_batch_of_two_is_two_singles(name: str, config: dict[str, Any]) -> None:
    """Pictures of 60 samples each. The objective, norms and noise of one know nothing of the other.
    Float32 at sigma / alpha = 160 leaves 1e-5."""
    prediction = "flow" if "flow" in name else "epsilon"
    pipe = bed_pipeline(SCHEDULERS[name](), DATA, prediction)
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
    """The bed's check, of fewer samples and steps, fails."""
    found = run("dpm", guidance(**config), steps=60, samples=30_000).double()
    with pytest.raises(AssertionError):
        loosely((found.mean().item(), found.var().item()))


def loosely(found: tuple[float, float]) -> None:
    assert found[0] == pytest.approx(0.6, rel=0.02)
    assert found[1] == pytest.approx(0.125, rel=0.06)


@pytest.mark.parametrize(
    "config", [{"mode": "E"}, {"mode": "J"}, {"noise": 0.5}, {"correctors": 1, "mode": "J"}]
)
def test_without_a_mutation_the_small_check_passes(config: dict[str, Any]) -> None:
    found = run("dpm", guidance(**config), steps=60, samples=30_000).double()
    loosely((found.mean().item(), found.var().item()))


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
    found = run("dpm", adaptive(), steps=60, samples=30_000).double()
    loosely((found.mean().item(), found.var().item()))


def test_weights_that_are_not_detached_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The released RewardFlow's fault: the gradient of sum_i w_i(r) r_i."""

    def evaluate(
        self: Objective,
        prompts: Sequence[str],
        media: Tensor,
        *,
        index: int,
        total: int,
        **more: Any,
    ) -> Valued:
        with torch.enable_grad():
            leaf = media.detach().clamp(0, 1).requires_grad_()
            scores = self.ensemble.components(prompts, leaf)
            values = torch.stack([scores[name] for name in self.names], 1)
            weights = Adaptive().weights(prompts, index, total, values, values)
            (gradient,) = torch.autograd.grad((weights * values).sum(), leaf)
        values, weights = values.detach(), weights.detach()
        return Valued(values, weights, values, gradient)

    monkeypatch.setattr(Objective, "evaluate", evaluate)
    found = run("dpm", adaptive(), steps=60, samples=30_000).double()
    with pytest.raises(AssertionError):
        loosely((found.mean().item(), found.var().item()))
