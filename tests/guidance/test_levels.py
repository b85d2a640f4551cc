"""Levels of every scheduler: x0_hat is the scheduler's own, and samples are what levels say."""

from __future__ import annotations

from typing import Any

import diffusers
import pytest
import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.guidance.levels import KNOWN_SCHEDULERS, Level, level_count, read_level

# diffusers' KDPM2 with numpy 2
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")

CENTRE = 0.7
VP = ("epsilon", "sample", "v_prediction")
# A case: class, settings, predictions. Defaults of the classes clip, which latents never want.
CASES: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("DDIMScheduler", {"clip_sample": False}, VP),
    ("DDIMScheduler", {"clip_sample": False, "timestep_spacing": "trailing"}, VP),
    ("DDIMParallelScheduler", {"clip_sample": False}, VP),
    ("DDPMScheduler", {"clip_sample": False}, VP),
    ("DDPMParallelScheduler", {"clip_sample": False}, VP),
    ("PNDMScheduler", {"skip_prk_steps": True}, ("epsilon",)),
    ("LCMScheduler", {"original_inference_steps": 50}, VP),
    ("TCDScheduler", {}, VP),
    ("CogVideoXDDIMScheduler", {"clip_sample": False}, VP),
    (
        "CogVideoXDDIMScheduler",
        {"clip_sample": False, "rescale_betas_zero_snr": True, "timestep_spacing": "trailing"},
        ("sample", "v_prediction"),
    ),
    ("CogVideoXDPMScheduler", {"clip_sample": False}, VP),
    ("EulerDiscreteScheduler", {}, VP),
    ("EulerDiscreteScheduler", {"use_karras_sigmas": True}, VP),
    ("EulerDiscreteScheduler", {"final_sigmas_type": "sigma_min"}, VP),
    ("EulerAncestralDiscreteScheduler", {}, ("epsilon", "v_prediction")),
    ("HeunDiscreteScheduler", {}, VP),
    ("LMSDiscreteScheduler", {}, VP),
    ("KDPM2DiscreteScheduler", {}, ("epsilon", "v_prediction")),
    ("KDPM2AncestralDiscreteScheduler", {}, ("epsilon", "v_prediction")),
    ("DPMSolverMultistepScheduler", {}, VP),
    ("DPMSolverMultistepScheduler", {"use_karras_sigmas": True, "solver_order": 3}, VP),
    (
        "DPMSolverMultistepScheduler",
        {"algorithm_type": "dpmsolver", "final_sigmas_type": "sigma_min"},
        VP,
    ),
    ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}, VP),
    (
        "DPMSolverMultistepScheduler",
        {"algorithm_type": "sde-dpmsolver", "final_sigmas_type": "sigma_min"},
        VP,
    ),
    ("DPMSolverMultistepScheduler", {"use_flow_sigmas": True, "flow_shift": 3.0}, ("flow",)),
    (
        "DPMSolverMultistepScheduler",
        {"use_flow_sigmas": True, "algorithm_type": "sde-dpmsolver++"},
        ("flow", "epsilon", "sample"),
    ),
    ("DPMSolverSinglestepScheduler", {}, VP),
    ("DPMSolverSinglestepScheduler", {"use_flow_sigmas": True}, ("flow",)),
    ("DEISMultistepScheduler", {}, VP),
    ("DEISMultistepScheduler", {"use_flow_sigmas": True}, ("flow",)),
    ("UniPCMultistepScheduler", {}, VP),
    ("UniPCMultistepScheduler", {"predict_x0": False, "final_sigmas_type": "sigma_min"}, VP),
    ("UniPCMultistepScheduler", {"use_flow_sigmas": True, "flow_shift": 5.0}, ("flow",)),
    ("SASolverScheduler", {}, VP),
    ("SASolverScheduler", {"use_flow_sigmas": True}, ("flow",)),
    ("FlowMatchEulerDiscreteScheduler", {}, ("flow",)),
    ("FlowMatchEulerDiscreteScheduler", {"shift": 3.0, "shift_terminal": 0.1}, ("flow",)),
    ("FlowMatchEulerDiscreteScheduler", {"use_dynamic_shifting": True}, ("flow",)),
    ("FlowMatchEulerDiscreteScheduler", {"stochastic_sampling": True}, ("flow",)),
    ("FlowMatchHeunDiscreteScheduler", {"shift": 2.0}, ("flow",)),
    ("FlowMatchLCMScheduler", {"shift": 2.0}, ("flow",)),
    ("LTXEulerAncestralRFScheduler", {}, ("flow",)),
    ("SCMScheduler", {}, ("trigflow",)),
    ("SCMScheduler", {"sigma_data": 1.0}, ("trigflow",)),
]
RUNS = [
    pytest.param(
        name, settings, prediction, id=f"{name}-{'-'.join(map(str, settings))}-{prediction}"
    )
    for name, settings, predictions in CASES
    for prediction in predictions
]


def _build(name: str, settings: dict[str, Any], prediction: str, steps: int = 10) -> Any:
    """A scheduler with its timesteps set."""
    given = dict(settings)
    if not name.startswith(("FlowMatch", "LTX")):
        given["prediction_type"] = "flow_prediction" if prediction == "flow" else prediction
    scheduler = getattr(diffusers, name)(**given)
    more: dict[str, Any] = {"mu": 0.8} if settings.get("use_dynamic_shifting") else {}
    if prediction == "trigflow":
        more["intermediate_timesteps"] = None
    scheduler.set_timesteps(steps, **more)
    return scheduler


def _output(level: Level, sample: Tensor) -> Tensor:
    """What a network says that knows that all pictures are CENTRE, by the definitions of
    predictions (and not by the code under test)."""
    alpha, sigma = level.alpha, level.sigma
    noise = (sample.double() - alpha * CENTRE) / sigma
    size = (alpha**2 + sigma**2) ** 0.5
    said = {
        "sample": torch.full_like(noise, CENTRE),
        "epsilon": noise,
        "v_prediction": (alpha * noise - sigma * CENTRE) / size,
        "flow": noise - CENTRE,
        # cos t s eps - sin t x0, where sigma = sin t s
        "trigflow": alpha * noise * sigma / (1 - alpha**2) ** 0.5 - (1 - alpha**2) ** 0.5 * CENTRE,
    }
    return said[level.prediction].float()


def _own_clean(scheduler: Any, level: Level, output: Tensor, sample: Tensor) -> Tensor | None:
    """x0_hat by the scheduler's own ``convert_model_output``, if it has one."""
    if not hasattr(scheduler, "convert_model_output"):
        return None
    if scheduler.step_index is None:
        scheduler._init_step_index(scheduler.timesteps[0])
    found = scheduler.convert_model_output(output, sample=sample)
    kind = scheduler.config.get("algorithm_type", "")
    if kind in ("dpmsolver", "sde-dpmsolver", "deis") or not getattr(scheduler, "predict_x0", True):
        return (sample - level.sigma * found) / level.alpha
    return found


def _step(scheduler: Any, output: Tensor, i: int, sample: Tensor, back: Any, noise: Any) -> Any:
    t = scheduler.timesteps[i]
    if hasattr(scheduler, "scale_model_input"):  # Karras' kind insists that a pipeline calls it
        scheduler.scale_model_input(sample, t)
    extra = {"generator": noise} if "generator" in scheduler.step.__code__.co_varnames else {}
    if "CogVideoXDPM" in type(scheduler).__name__:
        before = scheduler.timesteps[i - 1] if i else None
        return scheduler.step(output, back, t, before, sample, return_dict=False, **extra)
    return scheduler.step(output, t, sample, return_dict=False, **extra)


def _start(scheduler: Any, level: Level, noise: torch.Generator, n: int) -> Tensor:
    return level.alpha * CENTRE + level.sigma * torch.randn(n, 1, 1, 1, generator=noise)


@pytest.mark.parametrize(("name", "settings", "prediction"), RUNS)
def test_x0_hat_is_the_schedulers_own(name: str, settings: dict[str, Any], prediction: str) -> None:
    """Of arbitrary outputs, so that no two definitions agree by chance; and the output that says
    an x0_hat is read as that x0_hat by the scheduler."""
    scheduler = _build(name, settings, prediction)
    noise = torch.Generator().manual_seed(1)
    sample, back, checked = torch.randn(64, 1, 2, 2, generator=noise), None, 0
    sample = sample * float(getattr(scheduler, "init_noise_sigma", 1.0))
    for i, t in enumerate(scheduler.timesteps[: level_count(scheduler)]):
        level = read_level(scheduler, t)
        wanted = torch.randn(sample.shape, generator=noise)
        output = level.output(sample, wanted)
        own = _own_clean(scheduler, level, output, sample)
        found = _step(scheduler, output, i, sample, back, noise)
        if own is None and len(found) > 1 and "TCD" not in name:
            own = back = found[1]
        if own is not None:
            # float32 at sigma / alpha up to 160 (and, at UniPC's first flow level, 1e6)
            scale = 1e-5 * max(1.0, level.sigma / max(level.alpha, 1e-9))
            assert torch.allclose(level.clean(sample, output), own, atol=4 * scale, rtol=1e-4)
            assert torch.allclose(own, wanted, atol=4 * scale, rtol=1e-3)
            checked += 1
        sample = found[0]
    flows = name.startswith(("FlowMatch", "LTX")) or name in ("PNDMScheduler", "TCDScheduler")
    assert checked == (0 if flows else level_count(scheduler))


@pytest.mark.parametrize(("name", "settings", "prediction"), RUNS)
def test_samples_are_what_levels_say(name: str, settings: dict[str, Any], prediction: str) -> None:
    """All pictures are CENTRE, which every solver follows exactly: at each step the sample has mean
    alpha CENTRE and deviation sigma, x0_hat is CENTRE, and the level after a step is the level of
    the next. (x - alpha CENTRE) / sigma has a standard error of 0.7 % at 20,000 samples."""
    scheduler = _build(name, settings, prediction)
    noise = torch.Generator().manual_seed(2)
    sample = back = after = None
    rough = settings.get("algorithm_type") == "sde-dpmsolver"  # 1 + 2 (e^h - 1)^2 too wide a step
    for i, t in enumerate(scheduler.timesteps[: level_count(scheduler)]):
        level = read_level(scheduler, t)
        assert (level.index, level.total) == (i, level_count(scheduler))
        if sample is None:
            sample = _start(scheduler, level, noise, 20_000)
        elif after is not None and not rough:
            assert (level.alpha, level.sigma) == pytest.approx(after, abs=1e-6)
            _check_law(sample, *after)
        output = _output(level, sample)
        # float32 of the output: sigma / alpha times 6e-8
        slack = 1e-4 + 1e-6 * level.sigma / max(level.alpha, 1e-9)
        assert level.clean(sample, output).sub(CENTRE).abs().max() < slack
        found = _step(scheduler, output, i, sample, back, noise)
        sample, back = found[0], found[1] if len(found) > 1 else None
        after = (level.next_alpha, level.next_sigma)
    assert sample is not None and after is not None
    if not rough:
        _check_law(sample, *after)


def _check_law(sample: Tensor, alpha: float, sigma: float) -> None:
    mean, deviation = sample.mean().item(), sample.std().item()
    assert mean == pytest.approx(alpha * CENTRE, abs=0.03 * sigma + 2e-3)
    assert deviation == pytest.approx(sigma, rel=0.03, abs=2e-3)


def test_every_known_scheduler_is_tested() -> None:
    assert {name for name, _, _ in CASES} == set(KNOWN_SCHEDULERS)


def test_endpoints_in_float64() -> None:
    """UniPC's flow sigmas begin at float32(1 - 1e-6), where 1 - sigma in float32 has one digit that
    the table itself does not have; the end is 0 exactly."""
    scheduler = _build("UniPCMultistepScheduler", {"use_flow_sigmas": True}, "flow", 4)
    first = read_level(scheduler, scheduler.timesteps[0])
    assert first.alpha == 1.0 - float(scheduler.sigmas[0]) > 0
    assert first.alpha + first.sigma == 1.0
    scheduler = _build("FlowMatchEulerDiscreteScheduler", {}, "flow", 4)
    first = read_level(scheduler, scheduler.timesteps[0])
    assert (first.alpha, first.sigma) == (0.0, 1.0)
    scheduler._step_index = 3
    last = read_level(scheduler, scheduler.timesteps[3])
    assert (last.next_alpha, last.next_sigma) == (1.0, 0.0)


def test_dynamic_shift_is_not_t_over_1000() -> None:
    """sigma = e^mu / (e^mu + 1 / t - 1), at t = 1/2 with mu = 0.8: e^0.8 / (e^0.8 + 1) = 0.69."""
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True)
    scheduler.set_timesteps(sigmas=[1.0, 0.5], mu=0.8)
    scheduler._step_index = 1
    level = read_level(scheduler, scheduler.timesteps[1])
    assert level.sigma == pytest.approx(2.2255409 / 3.2255409, abs=1e-6)


def test_a_run_that_begins_in_the_middle() -> None:
    scheduler = _build("EulerDiscreteScheduler", {}, "epsilon")
    scheduler.set_begin_index(4)
    level = read_level(scheduler, scheduler.timesteps[4])
    assert level.index == 4 and level.sigma == float(scheduler.sigmas[4])


def test_a_subclass_is_read_as_its_base() -> None:
    class Own(diffusers.EulerDiscreteScheduler):
        pass

    scheduler = Own()
    scheduler.set_timesteps(4)
    assert read_level(scheduler, scheduler.timesteps[0]).alpha == 1.0


@pytest.mark.parametrize(
    ("scheduler", "message"),
    [
        (diffusers.PNDMScheduler(), "DPMSolverMultistepScheduler"),
        (diffusers.EDMEulerScheduler(), "can't read the noise levels"),
        (diffusers.FlowMatchEulerDiscreteScheduler(invert_sigmas=True), "invert_sigmas"),
        (diffusers.UniPCMultistepScheduler(prediction_type="flow_prediction"), "contradict"),
        (
            diffusers.DPMSolverMultistepScheduler(
                use_flow_sigmas=True, prediction_type="v_prediction"
            ),
            "contradict",
        ),
        (
            diffusers.DDIMScheduler(rescale_betas_zero_snr=True, timestep_spacing="trailing"),
            "pure noise",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_with_advice(scheduler: Any, message: str) -> None:
    scheduler.set_timesteps(4)
    with pytest.raises(T2XError, match=message):
        read_level(scheduler, scheduler.timesteps[0])


def test_foreign_prediction_types_and_timesteps_are_refused() -> None:
    scheduler = diffusers.DDIMScheduler()
    scheduler.set_timesteps(4)
    with pytest.raises(T2XError, match="none of DDIMScheduler's own"):
        read_level(scheduler, 3)
    scheduler.register_to_config(prediction_type="score")
    with pytest.raises(T2XError, match="prediction_type 'score'"):
        read_level(scheduler, scheduler.timesteps[0])


@pytest.mark.parametrize(
    ("prediction", "alpha", "sigma", "gain"),
    [
        ("epsilon", 0.6, 0.8, 4 / 3),  # variance preserving
        ("epsilon", 1.0, 5.0, 5.0),  # x / alpha
        ("v_prediction", 0.6, 0.8, 0.8),
        ("v_prediction", 1.0, 0.75, 0.6),
        ("flow", 0.3, 0.7, 0.7),
        ("sample", 0.6, 0.8, 1.0),
    ],
)
def test_the_gain_is_what_x0_hat_moves_by(
    prediction: Any, alpha: float, sigma: float, gain: float
) -> None:
    level = Level(alpha, sigma, 1.0, 0.0, prediction, 0, 1)
    sample, output = torch.randn(2, 1, 4, 8, 8, dtype=torch.float64)
    moved = level.clean(sample, output + 1) - level.clean(sample, output)
    assert torch.allclose(moved.abs(), torch.full_like(moved, gain))
    assert level.gain == pytest.approx(gain)
