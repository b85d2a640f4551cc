"""What solvers of diffusers do with an x_t that somebody else has changed.

A step's x0_hat may be edited under any solver. A changed x_t (noise, a Langevin step, a particle
that took another's place) is a different matter: some go on from an x_t that they kept.
"""

from __future__ import annotations

from typing import Any

from t2x.errors import T2XError

__all__ = ["check_moves", "check_noise", "forget_sample", "forget_slopes"]

# They take a step from an x_t of before, or along slopes that can't be forgotten.
_BOUND = (
    "LMSDiscreteScheduler",
    "HeunDiscreteScheduler",
    "KDPM2DiscreteScheduler",
    "KDPM2AncestralDiscreteScheduler",
    "FlowMatchHeunDiscreteScheduler",
    "PNDMScheduler",
)
_STOCHASTIC = (
    "DDPMScheduler",
    "DDPMParallelScheduler",
    "LCMScheduler",
    "TCDScheduler",
    "CogVideoXDPMScheduler",
    "SCMScheduler",
    "EulerAncestralDiscreteScheduler",
    "FlowMatchLCMScheduler",
    "LTXEulerAncestralRFScheduler",
    "SASolverScheduler",
)


def check_moves(scheduler: Any) -> None:
    """Raise T2XError for a solver that would go on from an x_t of its own."""
    singlestep = "DPMSolverSinglestepScheduler" in _names(scheduler)
    if _is(scheduler, _BOUND) or (singlestep and scheduler.config.solver_order > 1):
        raise T2XError(
            f"{type(scheduler).__name__} takes its steps from an x_t or along slopes of before, "
            "so noise and Langevin steps in between are lost; use noise 0 and correctors 0, or "
            "another scheduler, for instance DPMSolverMultistepScheduler"
        )


def check_noise(scheduler: Any) -> None:
    """Raise T2XError for a solver that noise would be lost on, or that adds noise of its own: the
    predicted noise can be traded only once."""
    check_moves(scheduler)
    own = str(scheduler.config.get("algorithm_type", "")).startswith("sde-")
    if own or _is(scheduler, _STOCHASTIC) or scheduler.config.get("stochastic_sampling"):
        raise T2XError(
            f"{type(scheduler).__name__}, as it is set, adds noise itself; use noise 0, or a "
            "deterministic scheduler, for instance DPMSolverMultistepScheduler"
        )


def forget_sample(scheduler: Any) -> None:
    """Before a step from an x_t that was changed: make UniPC and SA-Solver skip their correctors,
    which would rebuild x_t from the sample that they kept of the step before."""
    if getattr(scheduler, "last_sample", None) is not None:
        scheduler.last_sample = None


def forget_slopes(scheduler: Any) -> None:
    """Before a step from an x_t that jumped within its level: make multistep solvers begin anew.

    Their slope, the difference of two x0_hat, would hold the jump. That widens the law by a share
    of the jump's variance times the run's length in log(sigma / alpha), however small the steps.
    """
    if hasattr(scheduler, "lower_order_nums"):
        scheduler.lower_order_nums = 0


def _names(scheduler: Any) -> set[str]:
    return {base.__name__ for base in type(scheduler).__mro__}


def _is(scheduler: Any, names: tuple[str, ...]) -> bool:
    return not _names(scheduler).isdisjoint(names)
