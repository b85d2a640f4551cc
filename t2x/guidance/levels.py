"""The noise level of a sampling step, read from a diffusers scheduler.

``read_level`` asks the scheduler's own tables at its own step index, so that shifted, stretched and
discrete schedules are read as they are run. Schedulers are known by name (subclasses count): what
another one means by its tables would be a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.parameterisation import (
    Prediction,
    clean_from_output,
    output_from_clean,
    score_from_clean,
)

__all__ = [
    "KNOWN_SCHEDULERS",
    "Level",
    "check_scheduler",
    "data_scale",
    "level_count",
    "read_level",
]

# What a scheduler's tables say: alpha_bar by integer timestep; sigma / alpha of a sample that is
# held as x / alpha; the same of a variance preserving sample (or sigma, with flow sigmas); sigma;
# the angle.
_CUMPROD = (
    "DDIMScheduler",
    "DDIMParallelScheduler",
    "DDPMScheduler",
    "DDPMParallelScheduler",
    "LCMScheduler",
    "TCDScheduler",
    "PNDMScheduler",
    "CogVideoXDDIMScheduler",
    "CogVideoXDPMScheduler",
)
_SCALED = (
    "EulerDiscreteScheduler",
    "EulerAncestralDiscreteScheduler",
    "HeunDiscreteScheduler",
    "LMSDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    "KDPM2AncestralDiscreteScheduler",
)
_PRESERVING = (
    "DPMSolverMultistepScheduler",
    "DPMSolverSinglestepScheduler",
    "DEISMultistepScheduler",
    "UniPCMultistepScheduler",
    "SASolverScheduler",
)
_FLOW = (
    "FlowMatchEulerDiscreteScheduler",
    "FlowMatchHeunDiscreteScheduler",
    "FlowMatchLCMScheduler",
    "LTXEulerAncestralRFScheduler",
)
_TRIG = ("SCMScheduler",)  # whose timesteps are angles, the last one the end
KNOWN_SCHEDULERS = (*_CUMPROD, *_SCALED, *_PRESERVING, *_FLOW, *_TRIG)


@dataclass(frozen=True)
class Level:
    """One step from x = alpha * x0 + sigma * eps to next_alpha and next_sigma, in the space of the
    sample that the scheduler gets.

    Schedulers of Karras' kind (Euler, Heun, LMS) hold x / alpha: alpha is 1 there. ``index`` of
    ``total`` steps counts from 0. The next level is that of the sample after the step, with the
    noise that the scheduler adds.
    """

    alpha: float
    sigma: float
    next_alpha: float
    next_sigma: float
    prediction: Prediction
    index: int
    total: int

    def clean(self, sample: Tensor, output: Tensor) -> Tensor:
        """x0_hat of a model output."""
        return clean_from_output(sample, output, self.alpha, self.sigma, self.prediction)

    def output(self, sample: Tensor, clean: Tensor) -> Tensor:
        """The model output that says ``clean``."""
        return output_from_clean(sample, clean, self.alpha, self.sigma, self.prediction)

    @property
    def gain(self) -> float:
        """How far x0_hat moves when the model output moves by 1."""
        if self.prediction == "epsilon":
            return self.sigma / self.alpha
        if self.prediction == "v_prediction":
            return float(self.sigma / (self.alpha**2 + self.sigma**2) ** 0.5)
        if self.prediction == "trigflow":
            return float((1 - self.alpha**2) ** 0.5)
        return 1.0 if self.prediction == "sample" else self.sigma

    def score(self, sample: Tensor, clean: Tensor) -> Tensor:
        """grad log p_t(x)."""
        return score_from_clean(sample, clean, self.alpha, self.sigma)


def read_level(scheduler: Any, timestep: Any) -> Level:
    """Give the level of the step that ``scheduler.step(..., timestep, ...)`` is about to take.

    Call it before the step, which moves the scheduler's index on. A scheduler that clips or
    thresholds x0_hat does so afterwards. Raises T2XError for a scheduler, a prediction type or a
    schedule that can't be read.
    """
    kind = _kind(scheduler)
    prediction = _prediction(scheduler, kind)
    if kind is _CUMPROD:
        index = _position(scheduler, timestep)
        now, after = _alpha_bars(scheduler, int(timestep), index)
        levels = (now**0.5, (1 - now) ** 0.5, after**0.5, (1 - after) ** 0.5)
    elif kind is _TRIG:
        index = _angle_index(scheduler, timestep)
        levels = (*_angle(scheduler, index), *_angle(scheduler, index + 1))
    else:
        index = _index(scheduler, timestep)
        now, after = _sigmas(scheduler, index)
        levels = (*_split(scheduler, kind, now), *_split(scheduler, kind, after))
    if levels[0] == 0 and prediction == "epsilon":
        raise T2XError(
            f"{type(scheduler).__name__} starts at pure noise (alpha = 0), where a prediction of "
            "the noise says nothing of the picture; use v_prediction, or no rescale_betas_zero_snr"
        )
    return Level(*levels, prediction, index, level_count(scheduler))


def check_scheduler(scheduler: Any) -> None:
    """Raise T2XError for a scheduler whose levels or predictions can't be read, wherever it is."""
    _prediction(scheduler, _kind(scheduler))


def level_count(scheduler: Any) -> int:
    """How many steps the timesteps of a scheduler are: one less where they list the end."""
    return len(scheduler.timesteps) - bool(_bases(scheduler) & {*_TRIG})


def data_scale(scheduler: Any) -> float:
    """What a scheduler multiplies latents by: TrigFlow's deviation of the data, else 1."""
    return float(scheduler.config.sigma_data) if _bases(scheduler) & {*_TRIG} else 1.0


def _bases(scheduler: Any) -> set[str]:
    return {base.__name__ for base in type(scheduler).__mro__}


def _kind(scheduler: Any) -> tuple[str, ...]:
    """The table above that names the scheduler's class or one that it inherits from."""
    name = type(scheduler).__name__
    names = _bases(scheduler)
    for kind in (_CUMPROD, _SCALED, _PRESERVING, _FLOW, _TRIG):
        if not names.isdisjoint(kind):
            break
    else:
        raise T2XError(
            f"guidance can't read the noise levels of {name}; allowed: "
            f"{', '.join(KNOWN_SCHEDULERS)}; use for instance DPMSolverMultistepScheduler"
        )
    if not scheduler.config.get("skip_prk_steps", True):
        raise T2XError(
            f"guidance can't work with the Runge-Kutta steps of {name}, which have no x0_hat; "
            "set skip_prk_steps, or pipe.scheduler = DPMSolverMultistepScheduler.from_config("
            "pipe.scheduler.config), which draws the same pictures in fewer steps"
        )
    if scheduler.config.get("invert_sigmas"):
        raise T2XError(
            f"guidance can't read {name} with invert_sigmas, where models predict x0 - noise; "
            "use another pipeline"
        )
    return kind


def _prediction(scheduler: Any, kind: tuple[str, ...]) -> Prediction:
    if kind is _FLOW:
        return "flow"
    if kind is _TRIG:  # the only one that the class knows
        return "trigflow"
    name = str(scheduler.config.get("prediction_type", "epsilon"))
    known: dict[str, Prediction] = {
        "epsilon": "epsilon",
        "sample": "sample",
        "original_sample": "sample",
        "v_prediction": "v_prediction",
        "flow_prediction": "flow",
    }
    if name not in known:
        raise T2XError(
            f"guidance does not know prediction_type {name!r} of {type(scheduler).__name__}; "
            f"allowed: {', '.join(known)}"
        )
    found = known[name]
    flow = bool(scheduler.config.get("use_flow_sigmas"))
    # v = alpha eps - sigma x0 needs alpha^2 + sigma^2 = 1; v = eps - x0 needs alpha = 1 - sigma.
    if (found == "flow" and not flow) or (found == "v_prediction" and flow):
        raise T2XError(
            f"{type(scheduler).__name__} has prediction_type {name!r} and use_flow_sigmas {flow}, "
            "which contradict each other; flow_prediction goes with flow sigmas, v_prediction "
            "without"
        )
    return found


def _index(scheduler: Any, timestep: Any) -> int:
    """The index that the step will use; None before the first step."""
    if scheduler.step_index is not None:
        return int(scheduler.step_index)
    if getattr(scheduler, "begin_index", None) is not None:
        return int(scheduler.begin_index)
    return int(scheduler.index_for_timestep(timestep))


def _angle_index(scheduler: Any, timestep: Any) -> int:
    """Sana-Sprint hands over a timestep for each row."""
    known = scheduler.step_index is not None or scheduler.begin_index is not None
    return _index(scheduler, timestep if known else torch.as_tensor(timestep).flatten()[0])


def _angle(scheduler: Any, index: int) -> tuple[float, float]:
    """(alpha, sigma) of an entry of ``scheduler.timesteps``. The first one may lie a little beyond
    pi / 2, where alpha is -4e-6: no picture is left."""
    angle = float(scheduler.timesteps[index])
    return max(0.0, math.cos(angle)), math.sin(angle) * data_scale(scheduler)


def _position(scheduler: Any, timestep: Any) -> int:
    """The place of a timestep of a scheduler that keeps alpha_bar."""
    if hasattr(scheduler, "step_index"):  # LCM and TCD
        return _index(scheduler, timestep)
    if hasattr(scheduler, "counter"):  # PNDM, which lists a timestep twice
        return int(scheduler.counter)
    listed = [int(t) for t in scheduler.timesteps]
    if int(timestep) not in listed:
        raise T2XError(
            f"timestep {int(timestep)} is none of {type(scheduler).__name__}'s own ({listed[0]} to "
            f"{listed[-1]}); pass those of scheduler.timesteps"
        )
    return listed.index(int(timestep))


def _alpha_bars(scheduler: Any, timestep: int, index: int) -> tuple[float, float]:
    """alpha_bar now and after the step. Classes differ in what they take for the level after."""
    table, listed = scheduler.alphas_cumprod, scheduler.timesteps
    last = index + 1 == len(listed)
    names = _bases(scheduler)
    if "LCMScheduler" in names:
        after = 1.0 if last else float(table[int(listed[index + 1])])
    elif "TCDScheduler" in names:
        after = float(table[0 if last else int(listed[index + 1])])
    elif hasattr(scheduler, "previous_timestep"):  # DDPM
        before = int(scheduler.previous_timestep(timestep))
        after = float(table[before]) if before >= 0 else 1.0
    elif getattr(scheduler, "counter", 0) == 1:  # PNDM takes its first step once more
        after = float(table[timestep])
    else:  # DDIM, PNDM, CogVideoX: one stride down, which need not be the next of the list
        before = timestep - scheduler.config.num_train_timesteps // scheduler.num_inference_steps
        after = float(table[before] if before >= 0 else scheduler.final_alpha_cumprod)
    return float(table[timestep]), after


def _sigmas(scheduler: Any, index: int) -> tuple[float, float]:
    """Entry of ``scheduler.sigmas`` now and after the step."""
    sigmas = [float(s) for s in scheduler.sigmas[index : index + 2]]
    if hasattr(scheduler, "sigmas_interpol"):  # KDPM2: every second evaluation is between levels
        ancestral = hasattr(scheduler, "sigmas_up")
        between = scheduler.sigmas_interpol
        if scheduler.state_in_first_order:
            return sigmas[0], float(between[index if ancestral else index + 1])
        return float(between[index - 1 if ancestral else index]), sigmas[0]
    return sigmas[0], sigmas[-1]


def _split(scheduler: Any, kind: tuple[str, ...], sigma: float) -> tuple[float, float]:
    """(alpha, sigma) of the sample, of an entry of ``scheduler.sigmas``, in float64: the tables are
    float32, whose rounding 1 - sigma would magnify."""
    if kind is _FLOW or (kind is _PRESERVING and scheduler.config.get("use_flow_sigmas")):
        return 1.0 - sigma, sigma
    if kind is _SCALED:
        return 1.0, sigma
    alpha = 1.0 / (1.0 + sigma**2) ** 0.5
    return alpha, sigma * alpha
