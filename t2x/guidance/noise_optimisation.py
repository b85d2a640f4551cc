"""Optimisation of the initial noise through the whole chain of a few-step model (ReNO, Eyring et
al. 2024, arXiv 2406.04312), with any unmodified pipeline.

    objective = Objective([reward], normalise=False)
    found = optimise_noise(generator, prompts, seeds=seeds, objective=objective)
    found.media, found.values
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.functional.noise import clipped_gradient, nesterov_step, noise_penalty
from t2x.generators.calls import of_rows
from t2x.generators.diffusion import DiffusionGenerator, own_noise
from t2x.guidance.config import GuidanceConfig
from t2x.guidance.hook import watch_steps
from t2x.guidance.objective import Objective
from t2x.guidance.preflight import MemoryCheck
from t2x.guidance.step import Call, CallSettings, Control, Step
from t2x.guidance.support import check_noise_start
from t2x.media import quantize
from t2x.scoring.pairs import context_rows

if TYPE_CHECKING:
    from t2x.types import Context

__all__ = ["NoiseConfig", "OptimisedNoise", "noise_scale", "optimise_noise"]


@dataclass(frozen=True)
class NoiseConfig:
    """ReNO's constants. ``iterations``: evaluations of the whole chain; ``rate`` and ``momentum``
    of the ascent (SGD with Nesterov's momentum); ``clip``: largest norm of a sample's gradient,
    penalty included; ``penalty``: strength of what holds the noise at the norm of noise.

    Raises T2XError for a value out of range.
    """

    iterations: int = 50
    rate: float = 5.0
    momentum: float = 0.9
    clip: float = 0.1
    penalty: float = 0.01

    def __post_init__(self) -> None:
        bounds = {
            "iterations": (1, 1_000_000),
            "rate": (0.0, math.inf),
            "momentum": (0.0, 0.999999),
            "clip": (1e-12, math.inf),
            "penalty": (0.0, math.inf),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not (low <= value <= high and not math.isnan(value)):
                raise T2XError(f"noise optimisation: {name} is {value}; give {low:g} to {high:g}")


@dataclass(frozen=True)
class OptimisedNoise:
    """What came of N noises in I iterations: ``media`` (N, ..., 3, H, W) of each sample's best
    iterate, in steps of 1/255, ``values`` (N,) its weighed reward, ``noise`` (N, ...) float32 in
    the pipeline's layout, of unit scale; ``curve`` (N, I) the reward of each iterate, NaN where it
    can't be measured, ``penalties`` (N, I), and ``evaluations`` of denoising steps per sample
    (classifier-free guidance counts once), each followed by a backward pass but in the last
    iteration."""

    media: Tensor
    values: Tensor
    noise: Tensor
    curve: Tensor
    penalties: Tensor
    evaluations: int


def noise_scale(pipe: Any) -> float:
    """What the pipeline multiplies unit noise by to make the first x_t."""
    return float(getattr(pipe.scheduler, "init_noise_sigma", 1.0))


class _Chain:
    """Control that keeps the graph from the first noise to the last sample."""

    chain = True

    def __init__(self) -> None:
        self.noise: Tensor | None = None  # of unit scale; the pipeline's own in the first call
        self.leaf: Tensor | None = None
        self.last: Tensor | None = None
        self.call: Call | None = None
        self.steps = 0

    def start(self, call: Call, latents: Tensor) -> Tensor:
        scale = noise_scale(call.pipe)
        if self.noise is None:
            self.noise = latents.detach().float() / scale
        torch.set_grad_enabled(True)
        self.leaf = self.noise.clone().requires_grad_()
        return (self.leaf * scale).to(latents.dtype)

    def begin(self, call: Call, scheduler: Any) -> None:
        self.steps, self.last, self.call = 0, None, call

    def gradient(self, index: int, total: int) -> bool:
        return True

    def visits(self, index: int, total: int) -> int:
        return 1

    def edit(self, step: Step) -> None:
        self.steps += 1

    def after(self, step: Step, sample: Tensor) -> Tensor:
        self.last = sample
        return sample

    def end(self, call: Call) -> None:
        pass


def optimise_noise(
    generator: Any,
    prompts: Sequence[str],
    *,
    seeds: Sequence[int],
    objective: Objective,
    config: NoiseConfig | None = None,
    originals: Sequence[str] | None = None,
    context: Context | None = None,
    size: tuple[int, int] | None = None,
    num_frames: int | None = None,
    beside: Mapping[str, Any] | None = None,
) -> OptimisedNoise:
    """Maximise sum_i w_i r_i - penalty over the initial noise of N pictures, each by itself.

    Args:
        generator: a ``DiffusionGenerator`` or a pipeline; of 1 to 4 steps, since gradients through
            more explode or vanish.
        prompts: N, what is drawn; ``seeds`` N, of the first noise, which is the first iterate.
        objective: differentiable rewards with fixed weights; ``normalise=False`` for ReNO's sum.
        originals: N texts to score against; the prompts without.
        context: for rewards that need more.
        size, num_frames: as in ``Generator.generate``.
        beside: further arguments of the call that go with the prompts, N in a list or one for all:
            ``negative_prompt``, and ``image`` (``t2x.generators.sources``).

    Differs from the paper: the gradient is clipped, and the best iterate kept, sample by sample, so
    that a picture does not depend on its batch; several steps are allowed. Raises T2XError for an
    objective that moves its weights, for a chain that passes no gradient, and, before the first
    evaluation, for one whose graph would not fit the memory.
    """
    if objective.policy is not None:
        raise T2XError("noise is optimised for fixed weights; give an objective without policy")
    source = generator if hasattr(generator, "pipeline") else DiffusionGenerator(generator)
    config = config or NoiseConfig()
    words = list(prompts if originals is None else originals)
    if not len(prompts) == len(seeds) == len(words) or not prompts:
        raise T2XError(
            f"{len(prompts)} prompts, {len(seeds)} seeds, {len(words)} originals; give one of each "
            "for each picture"
        )
    check_noise_start(source.pipeline)
    call = source.settings(size=size, num_frames=num_frames)
    parts = []
    for start in range(0, len(prompts), source.batch_size):
        rows = range(start, min(start + source.batch_size, len(prompts)))
        own = of_rows({"prompt": list(prompts), **(beside or {})}, rows)
        arguments = {**call, **own, "output_type": "latent"}
        parts.append(
            _Ascent(
                source.pipeline,
                arguments,
                [int(seeds[i]) for i in rows],
                [words[i] for i in rows],
                objective,
                config,
                context_rows(context, rows),
            ).run()
        )
    return OptimisedNoise(
        torch.cat([part.media for part in parts]),
        torch.cat([part.values for part in parts]),
        torch.cat([part.noise for part in parts]),
        torch.cat([part.curve for part in parts]),
        torch.cat([part.penalties for part in parts]),
        parts[0].evaluations,
    )


class _Ascent:
    """One batch."""

    def __init__(
        self,
        pipe: Any,
        arguments: dict[str, Any],
        seeds: list[int],
        prompts: list[str],
        objective: Objective,
        config: NoiseConfig,
        context: Context | None,
    ) -> None:
        self.pipe, self.arguments, self.seeds = pipe, arguments, seeds
        self.prompts, self.objective = prompts, objective
        self.config, self.context = config, context
        self.chain = _Chain()
        n = len(prompts)
        self.best = torch.full((n,), -torch.inf)
        self.media: Tensor | None = None
        self.noise: Tensor | None = None
        self.curve: list[Tensor] = []
        self.penalties: list[Tensor] = []

    def run(self) -> OptimisedNoise:
        config, chain = self.config, self.chain
        self.objective.reset()
        velocity: Tensor | None = None
        evaluations = 0
        for iteration in range(config.iterations):
            self._draw()
            evaluations += chain.steps
            gradient = self._evaluate(iteration)
            if gradient is None:
                break
            assert chain.noise is not None
            velocity = torch.zeros_like(gradient) if velocity is None else velocity
            chain.noise, velocity = nesterov_step(
                chain.noise, gradient, velocity, rate=config.rate, momentum=config.momentum
            )
        assert self.media is not None and self.noise is not None
        values = torch.where(self.best.isfinite(), self.best, torch.nan)
        curve, penalties = torch.stack(self.curve, 1), torch.stack(self.penalties, 1)
        media = quantize(self.media)
        assert isinstance(media, Tensor)
        return OptimisedNoise(media, values, self.noise, curve, penalties, evaluations)

    def _draw(self) -> None:
        """The pipeline's own loop; solvers that add noise add the same in each iteration."""
        # A list of its own: Z-Image writes its chat template into the one that it gets.
        arguments = {**self.arguments, "prompt": list(self.arguments["prompt"])}
        controls: list[Control] = [CallSettings(arguments), self.chain]
        with ExitStack() as stack:
            if self.media is None:  # the first time
                memory = MemoryCheck(
                    self.objective, GuidanceConfig(mode="J"), context=self.context, chain=True
                )
                stack.enter_context(memory.watching(self.pipe))
                controls.append(memory)
            stack.enter_context(watch_steps(self.pipe, controls, prompts=self.prompts))
            self.pipe(**arguments, generator=own_noise(self.seeds))

    def _evaluate(self, iteration: int) -> Tensor | None:
        """Value the iterate, keep what is best so far; the gradient of penalty - reward, which the
        last one needs not."""
        chain, config = self.chain, self.config
        leaf, last, call = chain.leaf, chain.last, chain.call
        assert leaf is not None and last is not None and call is not None
        with torch.enable_grad():
            clean = last.detach().requires_grad_()
            media = call.space.decode(clean)
        valued = self.objective.evaluate(
            self.prompts,
            media.detach(),
            context=self.context,
            index=iteration,
            total=config.iterations,
        )
        if not last.requires_grad:
            raise T2XError(
                f"no gradient passes {type(self.pipe).__name__} from the last sample to the first "
                "noise (compiled or quantised denoisers have none); use search"
            )
        chain.leaf = chain.last = None
        with torch.enable_grad():
            noise = leaf.detach().requires_grad_()
            penalty = noise_penalty(noise, config.penalty)
        self._keep(self.objective.ensemble.combine(valued.values).cpu(), media, leaf.detach())
        self.penalties.append(penalty.detach().cpu())
        if iteration == config.iterations - 1:
            return None
        (at_last,) = torch.autograd.grad(media, clean, valued.gradient.to(media.dtype))
        (gradient,) = torch.autograd.grad(last, leaf, at_last.to(last.dtype))
        (pull,) = torch.autograd.grad(penalty.sum(), noise)
        return clipped_gradient(pull - gradient, config.clip)

    def _keep(self, values: Tensor, media: Tensor, noise: Tensor) -> None:
        media = media.detach().float().clamp(0, 1).cpu()
        self.curve.append(values)
        if self.media is None or self.noise is None:
            self.media, self.noise = media.clone(), noise.clone()
        better = values.nan_to_num(-torch.inf) > self.best
        self.best = torch.where(better, values, self.best)
        self.media[better] = media[better]
        self.noise[better.to(noise.device)] = noise[better.to(noise.device)]
