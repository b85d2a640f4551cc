"""RewardFlow's multi-reward Langevin guidance as a control of the step hook (arXiv 2604.08536).

Per guided step: decode x0_hat, score it, carry the weighed gradient back through the decoder (mode
E) or through the denoiser as well (J), move x0_hat by a step that is tied, sample by sample, to the
size of the CFG correction, and, if asked, add noise that the drift pays for.

Differs from the paper: x0_hat is moved inside the model output rather than the latents, so that any
solver stays consistent; the step size is no step in time, so that the number of evaluations does
not depend on rewards; the constants, which the paper does not give, are ours.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.editing import tethered
from t2x.functional.langevin import (
    ancestral_split,
    clean_shift,
    corrector_step,
    damped_strength,
    langevin_update,
    logistic_step,
    posterior_variance,
    trade_noise,
)
from t2x.generators.diffusion import own_noise
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.objective import Objective, Valued
from t2x.guidance.solvers import check_noise
from t2x.guidance.sources import beside
from t2x.guidance.step import Call, Step
from t2x.guidance.streams import hash_seed, normal_rows
from t2x.guidance.support import check_pipeline
from t2x.guidance.trace import GuidanceTrace

if TYPE_CHECKING:
    from t2x.types import Context

__all__ = ["RewardGuidance", "Tether"]

_LEAST_SIGNAL = 1e-2

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tether:
    """What an edit holds to: ``source`` latents (N, ...) in the pipeline's layout, and ``keep``, in
    [0, 1] and broadcastable to them: where it holds; everywhere without."""

    source: Tensor
    keep: Tensor | None = None


class RewardGuidance:
    """Control that steers by an objective.

    Args:
        objective: what is raised.
        config: how.
        context: for rewards that need more than prompt and media.
        seeds: one for each sample, of guidance's noise; 0 ... N - 1 without.
        tether: what ``config.tether`` pulls to.
        trace: what is done is written there.

    Raises T2XError for a ``config.tether`` without a tether.
    """

    def __init__(
        self,
        objective: Objective,
        config: GuidanceConfig,
        *,
        context: Context | None = None,
        seeds: Sequence[int] | None = None,
        tether: Tether | None = None,
        trace: GuidanceTrace | None = None,
    ) -> None:
        self.objective, self.config, self.context = objective, config, context
        self.seeds, self.tether = seeds, tether
        self.trace = trace or GuidanceTrace(objective.names)
        self._noise: list[torch.Generator] = []

        if config.tether and tether is None:
            raise T2XError(
                f"guidance: tether is {config.tether:g}, but nothing says to what; give "
                "tether=Tether(latents), leave it 0, or edit pictures (EditConfig.tether)"
            )

    # ---- the protocol -----------------------------------------------------------------------

    @property
    def trades_noise(self) -> bool:
        """Whether it puts noise into samples."""
        return self.config.noise > 0

    def start(self, call: Call, latents: Tensor) -> Tensor:
        """Look once more whether gradients can pass: the call may be in a place where none do."""
        check_pipeline(call.pipe, self.config.mode)
        return latents

    def begin(self, call: Call, scheduler: Any) -> None:
        """Forget the last call. Raises T2XError unless there is one seed for each picture."""
        if self.config.noise:
            check_noise(scheduler)
        if self.config.size and call.steps and not self.config.guides_any(call.steps):
            log.warning(
                "no step of %d is guided: the last %d are free; take more steps, or give less "
                "free_last (start and stop count too)",
                call.steps,
                self.config.free_last,
            )
        self.objective.reset()
        self.trace.begin(call.prompts, regions=self.objective.regions(call.prompts))
        seeds = list(range(len(call.prompts)) if self.seeds is None else self.seeds)
        if len(seeds) != len(call.prompts):
            raise T2XError(
                f"{len(seeds)} seeds of guidance for {len(call.prompts)} pictures; give one each"
            )
        self._noise = own_noise([hash_seed(self.config.seed, seed) for seed in seeds])

    def gradient(self, index: int, total: int) -> bool:
        """J needs the graph through the denoiser in the steps that are guided."""
        return self.config.mode == "J" and (total == 0 or self.config.guides(index, total))

    def visits(self, index: int, total: int) -> int:
        """A corrector is one more evaluation."""
        return 1 + self.config.correctors * self.config.guides(index, total)

    def edit(self, step: Step) -> None:
        """Move x0_hat; on a corrector's visits, move x_t by a Langevin step."""
        if self.config.guides(step.index, step.call.steps):
            self._steer(step)
        else:
            self._look(step)
        if self.tether is not None and self.config.tether and step.level.sigma > 0:
            step.clean = self._tethered(step, self.tether)
        if step.visit + 1 < self.visits(step.index, step.call.steps):  # others may ask for more
            step.move(self._corrected(step))

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """Trade predicted noise for new noise, up to the last but ``free_last`` steps."""
        level = step.level
        free = step.index >= step.call.steps - self.config.free_last
        if self.config.noise == 0 or level.next_sigma == 0 or free:
            return sample
        before = level.sigma / level.alpha if level.alpha else math.inf
        split = ancestral_split(before, level.next_sigma / level.next_alpha, self.config.noise)
        predicted = (step.sample - level.alpha * step.clean) / level.sigma
        noise = normal_rows(self._noise, sample)
        return trade_noise(sample, predicted, noise, split, level.next_alpha)

    def end(self, call: Call) -> None:
        """Nothing is left to do."""

    def reorder(self, rows: Tensor) -> None:
        """Take rows (N,) of what is kept for each sample. Random streams stay with their places,
        so that copies of one sample part."""
        self.objective.reorder(rows)

    # ---- one step ---------------------------------------------------------------------------

    def _steer(self, step: Step) -> None:
        config, trace, rows = self.config, self.trace, len(step.sample)
        with torch.enable_grad(), trace.timed("decoder", rows=rows):
            clean = step.clean.detach().requires_grad_()
            media = step.call.space.decode(clean, frames=config.frames, scale=config.decode_scale)
        valued = self.objective.evaluate(
            step.call.prompts,
            media.detach(),
            context=beside(
                self.context, media, space=step.call.space, latents=clean, frames=config.frames
            ),
            index=step.index,
            total=step.call.steps,
            trace=trace,
        )
        with trace.timed("decoder", rows=rows, backward=True):
            (gradient,) = torch.autograd.grad(media, clean, valued.gradient.to(media.dtype))
        gradient = gradient.detach()
        if self._through_denoiser(step):
            with trace.timed("denoiser", rows=step.evaluations, backward=True):
                gradient = step.pull_back(gradient)
        eta = self._eta(valued)
        eta = eta * self.objective.factors(step.call.prompts, step.index, step.call.steps).to(eta)
        shift = self._shift(step, gradient, eta)
        if bool(shift.any()):  # else the model's own bytes go on
            step.clean = step.clean + shift
        self._note_unmeasured(step, valued)
        trace.add(
            step.index,
            step.level.sigma,
            visit=step.visit,
            values=valued.values,
            weights=valued.weights,
            eta=eta,
            gradient_norm=_rms(gradient),
            media=media.detach(),
            extra={"shift": _rms(shift)},
        )

    def _note_unmeasured(self, step: Step, valued: Valued) -> None:
        """Say once of each reward that it could not measure any picture."""
        known = valued.values.isfinite().any(0).tolist()
        noted: dict[str, int] = self.trace.notes.get("unmeasured", {})
        for name, measured in zip(self.objective.names, known, strict=True):
            if not measured and name not in noted:
                self.trace.notes["unmeasured"] = noted = {**noted, name: step.index}
                log.warning(
                    "%s could not measure any picture at step %d, and moves nothing there",
                    name,
                    step.index,
                )

    def _look(self, step: Step) -> None:
        """Write down a step that is not guided; with its picture if those are kept."""
        media = None
        if self.trace.thumbnails is not None:
            with torch.no_grad():
                media = step.call.space.decode(step.clean, scale=self.config.decode_scale)
        self.trace.add(step.index, step.level.sigma, visit=step.visit, media=media)

    def _through_denoiser(self, step: Step) -> bool:
        """Whether J holds here. At next to no signal x_t says nothing of x0, and sigma^2 / alpha
        would magnify the rounding of a Jacobian that is 0: x0_hat moves as in E."""
        seen = step.level.alpha > _LEAST_SIGNAL * step.level.sigma
        return self.config.mode == "J" and (seen or self.config.rule == "relative")

    def _eta(self, valued: Valued) -> Tensor:
        """RewardFlow's logistic step size (its eq. for eta_k), as a factor: (N,)."""
        config = self.config
        total = self.objective.satisfaction(valued.values)
        if config.rule == "tilt":
            return torch.ones_like(total)
        return logistic_step(
            total,
            low=config.eta_min,
            high=config.eta_max,
            steepness=config.steepness,
            target=config.target,
        )

    def _shift(self, step: Step, gradient: Tensor, eta: Tensor) -> Tensor:
        """What x0_hat is moved by."""
        config, level = self.config, step.level
        variance = posterior_variance(level.alpha, level.sigma, config.variance)
        size = damped_strength(config.size, variance) if config.damping else config.size
        if config.rule == "tilt":
            scaled = _like(size * eta, gradient) * gradient
            if self._through_denoiser(step):
                return clean_shift(scaled, level.alpha, level.sigma)
            return variance * scaled
        length = _rms(gradient)
        unit = gradient / _like(length.clamp_min(torch.finfo(length.dtype).tiny), gradient)
        return _like(size * eta * self._reference(step), gradient) * unit

    def _reference(self, step: Step) -> Tensor:
        """Size (N,), as root mean square at x0_hat, of the CFG correction of this step; of the
        output itself where there is none, as for a prompt that is the negative one, too."""
        correction, plain = step.cfg_correction(), _rms(step.output)
        if correction is None or correction.shape != step.output.shape:
            return plain * step.level.gain
        size = _rms(correction)
        least = torch.finfo(size.dtype).eps * plain  # below, it is rounding
        found = torch.where(size > least, size * step.cfg_scale().abs(), plain)
        return found * step.level.gain

    def _tethered(self, step: Step, tether: Tether) -> Tensor:
        """x0_hat under the tether's Gaussian prior at the source, where ``keep`` is 1."""
        variance = posterior_variance(step.level.alpha, step.level.sigma, self.config.variance)
        source = tether.source.to(step.clean)
        pulled = tethered(step.clean, source, self.config.tether, variance)
        if tether.keep is None:
            return pulled
        return torch.lerp(step.clean, pulled, tether.keep.to(step.clean).expand_as(pulled))

    def _corrected(self, step: Step) -> Tensor:
        """Langevin step at this level (Song et al. 2021, arXiv 2011.13456, algorithm 5, per
        sample): x + e s + sqrt(2 e) z, e = 2 (r |z| / |s|)^2, s the guided score."""
        score = step.level.score(step.sample, step.clean)
        plain = step.level.score(step.sample, step.level.clean(step.sample, step.output))
        noise = normal_rows(self._noise, step.sample)
        size = corrector_step(plain, noise, ratio=self.config.corrector_ratio)
        return langevin_update(step.sample, score, noise, size)


def _rms(value: Tensor) -> Tensor:
    """Root mean square of each sample, (N,)."""
    return value.flatten(1).pow(2).mean(1).sqrt()


def _like(factor: Tensor, value: Tensor) -> Tensor:
    """(N,) shaped to multiply (N, ...)."""
    return factor.to(value).view(-1, *[1] * (value.ndim - 1))
