"""Guidance under every scheduler draws the tilted law, on the Gaussian bed.

Data are N(0.2, 1/4), the reward -(x - 1)^2 at strength 2: the tilted law is N(0.6, 1/8). There the
damped rule is exact, so that a guided run has to be, number by number, the unguided run of a
pipeline whose data have the tilted law: no discretisation and no sampling error stand between
them. That the runs then have the law's moments is a second test, of 100,000 samples.
"""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import diffusers
import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.tilting import (
    Mixture,
    mixture_moments,
    tilted_gaussian,
    tilted_mixture,
)
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.levels import KNOWN_SCHEDULERS
from t2x.guidance.objective import Objective
from t2x.guidance.reward_guidance import RewardGuidance
from t2x.guidance.solvers import check_moves, check_noise
from t2x.testing.gaussian_bed import (
    GaussianLaw,
    MixtureLaw,
    QuadraticReward,
    bed_betas,
    bed_pipeline,
    draw_samples,
)

# diffusers' KDPM2 with numpy 2; LMS' own quadrature
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning"),
]

DATA, TILTED = GaussianLaw(0.2, 0.25), GaussianLaw(0.6, 0.125)
STRENGTH, TARGET = 2.0, 1.0
VP = ("epsilon", "sample", "v_prediction")
BETAS = bed_betas(0.125)


class Case(NamedTuple):
    """``order`` 1: the error of n steps is c / n, which two runs extrapolate away. ``steps`` 0: the
    scheduler takes x0_hat for a sample, so that its runs have no law but their own. DDIM's kind
    steps by 1000 // n whatever its list says, so n divides 1000; DEIS with flow sigmas ends at the
    last level but zero, of sigma 1 / n."""

    name: str
    settings: dict[str, Any]
    predictions: tuple[str, ...] = VP
    order: int = 2
    steps: int = 60
    call: dict[str, Any] = {}  # noqa: RUF012


NO_CLIP = {"clip_sample": False, "timestep_spacing": "trailing"}
CASES = [
    Case("DDIMScheduler", NO_CLIP, order=1, steps=50),
    Case("DDIMParallelScheduler", NO_CLIP, ("epsilon",), order=1, steps=50),
    Case("DDPMScheduler", NO_CLIP, order=1),
    Case("DDPMParallelScheduler", NO_CLIP, ("epsilon",), order=1),
    Case(
        "PNDMScheduler",
        {"skip_prk_steps": True, "timestep_spacing": "trailing"},
        ("epsilon",),
        steps=50,
    ),
    Case("LCMScheduler", {"original_inference_steps": 1000}, steps=0),
    Case("TCDScheduler", {"original_inference_steps": 1000}, order=1, call={"eta": 0.0}),
    Case("TCDScheduler", {"original_inference_steps": 1000}, steps=0, call={"eta": 0.3}),
    Case(
        "CogVideoXDDIMScheduler",
        {**NO_CLIP, "rescale_betas_zero_snr": True},
        ("v_prediction", "sample"),
        order=1,
        steps=50,
    ),
    Case("CogVideoXDPMScheduler", {**NO_CLIP, "snr_shift_scale": 1.0}, steps=125),
    Case("EulerDiscreteScheduler", {}, order=1),
    Case("EulerDiscreteScheduler", {"use_karras_sigmas": True}, ("epsilon",), order=1),
    Case("EulerAncestralDiscreteScheduler", {}, ("epsilon", "v_prediction"), order=1),
    Case("HeunDiscreteScheduler", {}, steps=80),
    Case("LMSDiscreteScheduler", {}),
    Case("KDPM2DiscreteScheduler", {}, ("epsilon", "v_prediction")),
    Case("KDPM2AncestralDiscreteScheduler", {}, ("epsilon", "v_prediction")),
    Case("DPMSolverMultistepScheduler", {}),
    Case("DPMSolverMultistepScheduler", {"solver_order": 3}, ("epsilon",)),
    Case(
        "DPMSolverMultistepScheduler",
        {"algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"},
    ),
    Case("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}),
    Case(
        "DPMSolverMultistepScheduler",
        {"algorithm_type": "sde-dpmsolver", "final_sigmas_type": "sigma_min"},
        steps=200,
    ),
    Case("DPMSolverMultistepScheduler", {"use_flow_sigmas": True}, ("flow",), steps=100),
    Case(
        "DPMSolverMultistepScheduler",
        {"use_flow_sigmas": True, "algorithm_type": "sde-dpmsolver++"},
        ("flow",),
        steps=200,
    ),
    Case("DPMSolverSinglestepScheduler", {}, steps=100),
    Case("DPMSolverSinglestepScheduler", {"use_flow_sigmas": True}, ("flow",), steps=100),
    Case("DEISMultistepScheduler", {}),
    Case("DEISMultistepScheduler", {"use_flow_sigmas": True}, ("flow",), steps=250),
    Case("UniPCMultistepScheduler", {}),
    Case("UniPCMultistepScheduler", {"use_flow_sigmas": True}, ("flow",)),
    Case("SASolverScheduler", {}, steps=100),
    Case("SASolverScheduler", {"use_flow_sigmas": True}, ("flow",), steps=200),
    Case("FlowMatchEulerDiscreteScheduler", {}, ("flow",), order=1),
    Case("FlowMatchEulerDiscreteScheduler", {"shift": 3.0}, ("flow",), order=1),
    Case("FlowMatchEulerDiscreteScheduler", {"stochastic_sampling": True}, ("flow",), steps=0),
    Case("FlowMatchHeunDiscreteScheduler", {}, ("flow",), steps=40),
    Case("FlowMatchLCMScheduler", {}, ("flow",), steps=0),
    Case("LTXEulerAncestralRFScheduler", {}, ("flow",), order=1, steps=120),
]
QUICK = ("UniPCMultistep", "DPMSolverMultistep", "FlowMatchEuler", "DEIS")  # moments, each time
_SLOW, _ONE = pytest.mark.slow, "KDPM2DiscreteSchedulerepsilon"
RUNS = [
    pytest.param(
        case,
        prediction,
        id="-".join((case.name, *map(str, case.settings), prediction)),
        # KDPM2 takes seconds to set its timesteps
        marks=() if "KDPM2" not in case.name or case.name + prediction == _ONE else (_SLOW,),
    )
    for case in CASES
    for prediction in case.predictions
]


def build(case: Case, prediction: str) -> Any:
    """The case's scheduler, on the bed's noise schedule where it has one of its own."""
    settings = dict(case.settings)
    if not case.name.startswith(("FlowMatch", "LTX")):
        settings["prediction_type"] = "flow_prediction" if prediction == "flow" else prediction
        if prediction != "flow":
            settings["trained_betas"] = BETAS
    return getattr(diffusers, case.name)(**settings)


def guidance(size: float = STRENGTH, seed: int = 1, **config: Any) -> RewardGuidance:
    config = {"variance": DATA.variance, "free_last": 0, "corrector_ratio": 0.05, **config}
    settings = GuidanceConfig(rule="tilt", size=size, seed=seed, **config)
    return RewardGuidance(Objective([QuadraticReward([TARGET])], normalise=False), settings)


def run(case: Case, prediction: Any, law: Any, control: Any = None, **draw: Any) -> Tensor:
    pipe = bed_pipeline(build(case, prediction), law, prediction)
    controls = [control] if control is not None else []
    return draw_samples(pipe, controls, **{"seed": 1, **case.call, **draw})


def _few(case: Case) -> int:
    """Steps for what does not depend on their number. KDPM2 takes seconds to set them; the SDE form
    of the first DPM-Solver and KDPM2Ancestral leave all bounds when they are large."""
    if case.name == "KDPM2DiscreteScheduler":
        return 4
    return 60 if case.settings.get("algorithm_type") == "sde-dpmsolver" else 8


def allowed(check: Any, case: Case, prediction: str) -> bool:
    try:
        check(build(case, prediction))
    except T2XError:
        return False
    return True


def draws_noise(case: Case, prediction: str) -> bool:
    refuses = not allowed(check_noise, case, prediction) and allowed(check_moves, case, prediction)
    return refuses or "Ancestral" in case.name


def moments(case: Case, prediction: str, law: Any = DATA, **config: Any) -> tuple[float, float]:
    """Mean and variance of 100,000 guided samples (300,000 where the run draws noise); of first
    order solvers extrapolated from n and 2 n steps, which leaves an error of 1 / n^2."""
    found = []
    count = 300_000 if draws_noise(case, prediction) else 100_000
    for steps in (case.steps, 2 * case.steps) if case.order == 1 else (case.steps,):
        samples = run(case, prediction, law, guidance(**config), steps=steps, samples=count)
        assert len(samples) >= count
        found.append((samples.mean().item(), samples.double().var().item()))
    if len(found) == 1:
        return found[0]
    (m1, v1), (m2, v2) = found
    return 2 * m2 - m1, 2 * v2 - v1


def check_moments(found: tuple[float, float], law: GaussianLaw, *, random: bool) -> None:
    """1 % of the mean, 1.2 % of the variance (1.8 % where the run draws noise: a standard error of
    0.26 %, of an extrapolated pair 0.6 %)."""
    assert found[0] == pytest.approx(law.mean, rel=0.01)
    assert found[1] == pytest.approx(law.variance, rel=0.018 if random else 0.012)


def test_the_tilted_law_in_closed_form() -> None:
    law = tilted_gaussian(
        torch.tensor(DATA.mean), torch.tensor(DATA.variance), strength=STRENGTH, target=TARGET
    )
    assert [v.item() for v in law] == pytest.approx([TILTED.mean, TILTED.variance])


def test_every_scheduler_is_on_the_bed() -> None:
    """But SCM, whose few consistency steps have no law to tilt: tests/guidance/test_families.py."""
    assert {case.name for case in CASES} == set(KNOWN_SCHEDULERS) - {"SCMScheduler"}


@pytest.mark.parametrize(("case", "prediction"), RUNS)
def test_a_guided_run_is_the_run_of_the_tilted_law(case: Case, prediction: str) -> None:
    """Number by number, in modes E and J, with noise where the scheduler can have it. Differences
    are float32's, of J where sigma / alpha magnifies it, against a deviation of 0.35: a bias of
    1 % of the tilt would be 0.004 everywhere."""
    draw = {"steps": _few(case), "samples": 600}
    noises = (0.0, 0.5) if allowed(check_noise, case, prediction) else (0.0,)
    for noise in noises:
        plain = guidance(0.0, noise=noise) if noise else None
        wanted = run(case, prediction, TILTED, plain, **draw)
        for mode in ("E", "J"):
            found = run(case, prediction, DATA, guidance(mode=mode, noise=noise), **draw)
            gap = (found - wanted).abs()
            assert gap.max() < 4e-3 and gap.mean() < 1e-3, (mode, noise)


@pytest.mark.parametrize(("case", "prediction"), RUNS)
def test_no_strength_is_no_guidance_bit_for_bit(case: Case, prediction: str) -> None:
    draw = {"steps": _few(case), "samples": 60}
    plain = run(case, prediction, DATA, **draw)
    for mode in ("E", "J"):
        assert torch.equal(run(case, prediction, DATA, guidance(0.0, mode=mode), **draw), plain)


def _moment_runs() -> list[Any]:
    """Some schedulers always, in a mode by its name; the rest when asked for."""
    found, seen = [], set[str]()
    for case in (c for c in CASES if c.steps):
        for prediction in case.predictions:
            first = "EJ"[zlib.crc32(case.name.encode()) % 2]
            for mode in "EJ":
                quick = case.name.startswith(QUICK) and mode == first and case.name not in seen
                seen |= {case.name} if quick else set()
                marks = () if quick else (pytest.mark.slow,)
                name = "-".join((case.name, *map(str, case.settings), prediction, mode))
                found.append(pytest.param(case, prediction, mode, id=name, marks=marks))
    return found


@pytest.mark.parametrize(("case", "prediction", "mode"), _moment_runs())
def test_guidance_draws_the_tilted_law(case: Case, prediction: str, mode: Any) -> None:
    found = moments(case, prediction, mode=mode)
    check_moments(found, TILTED, random=draws_noise(case, prediction))


def test_a_bias_of_2_percent_fails() -> None:
    case = CASES[[c.name for c in CASES].index("UniPCMultistepScheduler")]
    good = moments(case, "epsilon")
    check_moments(good, TILTED, random=False)
    for factor in ((1.02, 1.0), (0.98, 1.0), (1.0, 1.02), (1.0, 0.98)):
        with pytest.raises(AssertionError):
            check_moments((good[0] * factor[0], good[1] * factor[1]), TILTED, random=False)


PARTS = Mixture(
    torch.tensor([0.4, 0.6]),
    torch.tensor([[-0.8, 0.3], [0.7, -0.2]]),
    torch.tensor([[[0.08, 0.02], [0.02, 0.05]], [[0.05, -0.01], [-0.01, 0.1]]]),
)


def test_a_mixture_in_two_dimensions() -> None:
    """The unguided law, and what a plug-in gradient does to it: it moves towards the target, and
    not as far as the tilted law, whose parts change their weights, too."""
    case = CASES[[c.name for c in CASES].index("DPMSolverMultistepScheduler")]
    law, target = MixtureLaw(PARTS), torch.tensor([0.9, 0.1])
    samples = run(case, "epsilon", law, steps=40, samples=100_000)
    mean, covariance = mixture_moments(PARTS)
    assert samples.shape == (100_000, 2)
    assert torch.allclose(samples.mean(0), mean, atol=0.01)
    assert torch.allclose(samples.T.cov(), covariance, atol=0.01)
    goal, _ = mixture_moments(tilted_mixture(PARTS, strength=1.0, target=target))
    config = GuidanceConfig(rule="tilt", size=1.0, variance=0.1, mode="J", free_last=0)
    control = RewardGuidance(Objective([QuadraticReward([0.9, 0.1])], normalise=False), config)
    guided = run(case, "epsilon", law, control, steps=40, samples=20_000).mean(0)
    assert (guided - target).norm() < 0.8 * (mean - target).norm()
    assert (guided - goal).norm() > 0.02
