"""Particles: several trajectories of each prompt, of which those that reward goes on with take the
places of the others (FK steering, SVDD, DAS), in one call of any pipeline.

    particles = Particles(reward, ParticleConfig(count=4))
    with watch_steps(pipe, [particles]):
        pictures = pipe(prompts, num_images_per_prompt=4).images
    chosen = [pictures[row] for row in particles.best]

Rows of one prompt are a group: ``count`` rows, one after the other. Noise of guidance's own parts
clones; random streams stay with their places. Beside a gradient (``RewardGuidance``, before it in
the list of controls and with no noise of its own) fk and svdd select among steered trajectories,
twisted takes the gradient for a proposal and stays exact.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.langevin import ancestral_split, trade_noise
from t2x.functional.smc import (
    categorical,
    difference_potential,
    effective_sample_size,
    final_potential,
    max_potential,
    proposal_log_ratio,
    ssp_resampling,
    sum_potential,
    systematic_resampling,
    tempering,
    twisted_log_weight,
)
from t2x.generators.diffusion import own_noise
from t2x.guidance.particle_config import ParticleConfig
from t2x.guidance.solvers import check_noise
from t2x.guidance.sources import beside
from t2x.guidance.step import Call, Step
from t2x.guidance.streams import hash_seed

if TYPE_CHECKING:
    from t2x.types import Context, RewardModel

__all__ = ["Check", "ParticleConfig", "Particles"]

_DAS_STEPS = 100  # of the runs that DAS' tempering was made for


@dataclass(frozen=True)
class Check:
    """One comparison, B groups of k: ``values`` (B, k) of x0_hat (of the finished samples in the
    last), ``sizes`` (B,) effective sample size before, ``parents`` (B k,) the rows that rows of
    the batch went on from."""

    index: int
    values: Tensor
    sizes: Tensor
    parents: Tensor


@dataclass
class _State:
    """All that belongs to a particle, (N,) or (N, ...): each field moves with its row."""

    log_weight: Tensor  # since the last resampling
    log_product: Tensor  # of all potentials of its ancestors
    before: Tensor  # value, or tempered twist, at the last check
    best: Tensor
    total: Tensor
    log_ratio: Tensor  # of base and proposal since the last check
    shift: Tensor | None = None  # of x0_hat in this step, by the proposal

    def take(self, rows: Tensor) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                setattr(self, field.name, value[rows.to(value.device)])


def _new_state(n: int) -> _State:
    zeros = torch.zeros(n, dtype=torch.float64)
    return _State(zeros, zeros, zeros, torch.full_like(zeros, -torch.inf), zeros, zeros)


class Particles:
    """Control that lets particles compete.

    Args:
        reward: what they are compared by; an ensemble for several. It needs no gradient.
        config: how.
        context: for rewards that need more than prompt and media, with one entry for each row.
        seeds: one for each prompt (group), of noise and choices; 0 ... B - 1 without.

    After a call: ``values`` (B k,) of the finished samples, NaN where they can't be measured,
    ``log_weights`` (B, k), ``best`` (B,) the row of each prompt's best, ``checks``.
    """

    def __init__(
        self,
        reward: RewardModel,
        config: ParticleConfig | None = None,
        *,
        context: Context | None = None,
        seeds: Sequence[int] | None = None,
    ) -> None:
        self.reward, self.config, self.context = reward, config or ParticleConfig(), context
        self.seeds = seeds
        self.checks: list[Check] = []
        self.values = torch.zeros(0)
        self.log_weights = torch.zeros(0, self.config.count)
        self._state = _new_state(0)
        self._choices: list[torch.Generator] = []  # one stream for each group
        self._noises: list[torch.Generator] = []

    # ---- the protocol -----------------------------------------------------------------------

    @property
    def trades_noise(self) -> bool:
        """Whether it puts noise into samples."""
        return self.config.noise > 0

    def begin(self, call: Call, scheduler: Any) -> None:
        """Forget the last call. Raises T2XError for rows that are no groups of one prompt each."""
        k, prompts = self.config.count, call.prompts
        groups = [prompts[i : i + k] for i in range(0, len(prompts), k)]
        if len(prompts) % k or any(len(set(group)) > 1 for group in groups):
            raise T2XError(
                f"{len(prompts)} rows are no groups of {k} particles of one prompt; repeat each "
                f"prompt {k} times (num_images_per_prompt={k})"
            )
        if self.config.noise > 0:
            check_noise(scheduler)
        if self.seeds is not None and len(self.seeds) != len(groups):
            raise T2XError(f"{len(self.seeds)} seeds for {len(groups)} prompts; give one for each")
        seeds = list(self.seeds) if self.seeds is not None else list(range(len(groups)))
        own = self.config.seed
        self._choices = own_noise([hash_seed(own, seed, "choice") for seed in seeds])
        self._noises = own_noise([hash_seed(own, seed, "noise") for seed in seeds])
        self._state, self.checks = _new_state(len(prompts)), []

    def gradient(self, index: int, total: int) -> bool:
        """Never: proposals ask for their own."""
        return False

    def visits(self, index: int, total: int) -> int:
        """One evaluation of each level."""
        return 1

    def edit(self, step: Step) -> None:
        """Compare the particles, and let rows go on from others."""
        if not step.last_visit:
            return
        if self.config.method == "twisted":
            self._state.shift = step.clean - step.predicted
            step.restore()
        if not self.config.checks(step.index, step.call.steps):
            return
        values = self._value(step, step.clean, full=False)
        if self.config.method == "svdd":
            self._check(step, values, *self._choose(values))
            return
        self._weigh(values, self._share(step))
        self._check(step, values, *self._resample())

    def after(self, step: Step, sample: Tensor) -> Tensor:
        """Add the proposal's shift and the noise; compare the finished samples."""
        if step.index == step.call.steps - 1:
            return self._finish(step, sample)
        return self._moved(step, sample)

    def end(self, call: Call) -> None:
        """Nothing is left to do."""

    def reorder(self, rows: Tensor) -> None:
        """Take rows (N,) of all that is kept for each particle."""
        self._state.take(rows)

    @property
    def best(self) -> Tensor:
        """(B,): the row of each prompt's particle of the highest value; its first if none can be
        measured."""
        values = self.values.nan_to_num(-torch.inf).view(-1, self.config.count)
        return values.argmax(1) + torch.arange(len(values)) * self.config.count

    # ---- weights ----------------------------------------------------------------------------

    def _value(self, step: Step, latents: Tensor, *, full: bool) -> Tensor:
        """(N,) float64 on the CPU."""
        config = self.config
        scale, frames = (1.0, None) if full else (config.decode_scale, config.frames)
        with torch.no_grad():
            space = step.call.space
            media = space.decode(latents, frames=frames, scale=scale).clamp(0, 1)
            context = beside(self.context, media, space=space, latents=latents, frames=frames)
            scores = self.reward.score(step.call.prompts, media, context=context)
        return scores.detach().double().cpu()

    def _share(self, step: Step) -> float:
        if not self.config.tempered:
            return 1.0
        return tempering(step.index * _DAS_STEPS / step.call.steps)

    def _weigh(self, values: Tensor, share: float) -> None:
        """Multiply each weight by its potential; a particle that can't be measured keeps its
        weight."""
        state, strength = self._state, self.config.strength
        known = values.isfinite()
        values = share * values
        if self.config.potential == "max":
            log = max_potential(values, state.best, strength)
        elif self.config.potential == "sum":
            log = sum_potential(values, state.total, strength)
        else:
            log = difference_potential(values, state.before, strength)
        product = state.log_product + torch.where(known, log, 0.0)
        state.log_weight = state.log_weight + twisted_log_weight(
            state.log_ratio, product, state.log_product
        )
        state.log_ratio = torch.zeros_like(log)
        state.log_product = product
        state.before = torch.where(known, values, state.before)
        state.best = torch.where(known, torch.maximum(state.best, values), state.best)
        state.total = torch.where(known, state.total + values, state.total)

    def _resample(self) -> tuple[Tensor, Tensor]:
        """Effective sizes (B,) and parents (N,); groups that are not resampled keep rows and
        weights."""
        k = self.config.count
        weights = self._state.log_weight.view(-1, k)
        sizes = effective_sample_size(weights)
        chosen = sizes < self.config.threshold * k
        if self.config.threshold == 1.0:
            chosen = torch.ones_like(chosen)
        parents = torch.where(chosen[:, None], self._drawn(weights), torch.arange(k))
        self._state.log_weight = torch.where(chosen[:, None], 0.0, weights).reshape(-1)
        return sizes, _as_rows(parents)

    def _drawn(self, weights: Tensor) -> Tensor:
        """Parents (B, k) within the groups. Each group's stream moves on, resampled or not."""
        k = weights.shape[1]
        uniforms = torch.stack([torch.rand(k, generator=stream) for stream in self._choices])
        if self.config.resampling == "ssp":
            return ssp_resampling(weights, uniforms)
        return systematic_resampling(weights, uniforms[:, :1])

    def _choose(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """SVDD: of each ``candidates`` rows one by softmax(strength r), for all of them."""
        k = self.config.count
        m = self.config.candidates or k
        weights = (self.config.strength * values).nan_to_num(-torch.inf)
        uniforms = torch.cat([torch.rand(k // m, generator=stream) for stream in self._choices])
        chosen = categorical(weights.view(-1, m), uniforms)
        first = torch.arange(0, k, m).repeat(len(values) // k)  # of the candidates, in its group
        parents = (chosen + first)[:, None].expand(-1, m)
        sizes = effective_sample_size(weights.view(-1, k))
        return sizes, _as_rows(parents.reshape(-1, k))

    def _check(self, step: Step, values: Tensor, sizes: Tensor, parents: Tensor) -> None:
        self.checks.append(Check(step.index, values.view(-1, self.config.count), sizes, parents))
        if not torch.equal(parents, torch.arange(len(parents))):
            step.reorder(parents.to(step.sample.device))

    # ---- from one level to the next ---------------------------------------------------------

    def _moved(self, step: Step, sample: Tensor) -> Tensor:
        """Trade predicted noise for new noise, so that the marginal stays (DDIM's eta), and
        add what the proposal's edit of x0_hat would have done to the mean: kept out
        of the solver's memory, it is a shift of one Gaussian step, whose weight is known."""
        level, state = step.level, self._state
        if level.next_sigma == 0 or level.next_alpha == 0 or self.config.noise == 0:
            return sample
        before = level.sigma / level.alpha if level.alpha else math.inf
        split = ancestral_split(before, level.next_sigma / level.next_alpha, self.config.noise)
        shape = (self.config.count, *sample.shape[1:])
        noise = torch.cat([torch.randn(shape, generator=stream) for stream in self._noises])
        noise = noise.to(sample)
        predicted = (step.sample - level.alpha * step.clean) / level.sigma
        moved = trade_noise(sample, predicted, noise, split, level.next_alpha)
        if state.shift is None:
            return moved
        shift = level.next_alpha * (1 - split.kept / before) * state.shift
        ratio = proposal_log_ratio(noise, shift, level.next_alpha * split.new)
        state.log_ratio = state.log_ratio + ratio.cpu()
        return moved + shift

    def _finish(self, step: Step, sample: Tensor) -> Tensor:
        """Value the finished samples; the weights become those of p(x) exp(lambda r(x))."""
        state, k = self._state, self.config.count
        values = self._value(step, sample, full=True)
        last = final_potential(values, state.log_product, self.config.strength)
        state.log_weight = state.log_weight + state.log_ratio + last
        if self.config.method == "svdd":  # selection on the way has no weights
            state.log_weight = self.config.strength * values
        state.log_weight = state.log_weight.nan_to_num(-torch.inf)
        weights = state.log_weight.view(-1, k)
        rows = torch.arange(len(values))
        if self.config.final == "resample":
            rows = _as_rows(self._drawn(weights))
        self.checks.append(
            Check(step.index, values.view(-1, k), effective_sample_size(weights), rows)
        )
        self.values, self.log_weights = values[rows], weights
        if self.config.final == "resample":
            step.reorder(rows.to(sample.device))
            self.log_weights = torch.zeros_like(weights)
            return sample[rows.to(sample.device)]
        return sample


def _as_rows(parents: Tensor) -> Tensor:
    """Rows (N,) of the batch of parents (B, k) within the groups."""
    k = parents.shape[1]
    return (parents + k * torch.arange(len(parents))[:, None]).reshape(-1)
