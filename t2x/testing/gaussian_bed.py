"""The Gaussian bed: a real pipeline whose law is known in closed form, guided and not.

    pipe = bed_pipeline(scheduler, GaussianLaw(0.2, 0.25), "epsilon")
    objective = Objective([QuadraticReward([1.0])], normalise=False)
    config = GuidanceConfig(rule="tilt", size=2.0, variance=0.25, mode="J", free_last=0)
    samples = draw_samples(pipe, [RewardGuidance(objective, config)], steps=100)  # (100002, 1)
    tilted_gaussian(torch.tensor(0.2), torch.tensor(0.25), strength=2.0, target=1.0)

Each number of a picture is a sample of its own (mixtures: each pixel, over its channels), so that
a hundred thousand cost milliseconds. The denoiser is exact and knows its timestep only, as
networks do: it has no part in how guidance reads noise levels.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
from diffusers import DiffusionPipeline
from torch import Tensor

from t2x.functional.parameterisation import Prediction
from t2x.functional.tilting import Mixture
from t2x.guidance.hook import watch_steps
from t2x.guidance.step import Control

if TYPE_CHECKING:
    from t2x.types import Context

__all__ = [
    "BedPipeline",
    "ExactDenoiser",
    "GaussianLaw",
    "GuidedLaw",
    "MixtureLaw",
    "QuadraticReward",
    "bed_betas",
    "bed_pipeline",
    "draw_samples",
]

_REACH = 16.0  # latents of -16 to 16 are media of 0 to 1


class Law(Protocol):
    """What the clean latents are drawn from: ``channels`` of them, whose numbers are samples of
    ``dimension`` each."""

    channels: int
    dimension: int

    def clean(self, sample: Tensor, alpha: float, sigma: float) -> Tensor:
        """E[x0 | x] of samples (N, C, h, w)."""


class GaussianLaw:
    """N(mean, variance), each number by itself, in three channels as pictures have."""

    channels, dimension = 3, 1

    def __init__(self, mean: float, variance: float) -> None:
        self.mean, self.variance = mean, variance

    def clean(self, sample: Tensor, alpha: float, sigma: float) -> Tensor:
        """mean + alpha v / (alpha^2 v + sigma^2) (x - alpha mean)."""
        gain = alpha * self.variance / (alpha**2 * self.variance + sigma**2)
        return self.mean + gain * (sample - alpha * self.mean)


class MixtureLaw:
    """A mixture of Gaussians over the channels of each pixel."""

    def __init__(self, mixture: Mixture) -> None:
        self.mixture = Mixture(*(part.float() for part in mixture))
        self.channels = self.dimension = mixture.means.shape[1]

    def clean(self, sample: Tensor, alpha: float, sigma: float) -> Tensor:
        """Mean of each part's posterior, weighed by how likely the part is."""
        weights, means, covariances = self.mixture
        eye = torch.eye(self.channels)
        marginal = alpha**2 * covariances + sigma**2 * eye  # (M, C, C)
        gap = sample.movedim(1, -1)[..., None, :] - alpha * means  # (N, h, w, M, C)
        solved = torch.einsum("mij,...mj->...mi", torch.linalg.inv(marginal), gap)
        odds = weights.log() - torch.linalg.slogdet(marginal).logabsdet / 2
        share = (odds - (gap * solved).sum(-1) / 2).softmax(-1)
        parts = means + alpha * torch.einsum("mij,...mj->...mi", covariances, solved)
        found: Tensor = (share[..., None] * parts).sum(-2)
        return found.movedim(-1, 1)


class GuidedLaw:
    """What classifier-free guidance tells apart: ``clean`` of a batch whose first half is asked
    without the prompt, the second with it. For calls with a ``guidance_scale``."""

    def __init__(self, conditional: Law, unconditional: Law) -> None:
        self.conditional, self.unconditional = conditional, unconditional
        self.channels, self.dimension = conditional.channels, conditional.dimension

    def clean(self, sample: Tensor, alpha: float, sigma: float) -> Tensor:
        """E[x0 | x] of each half, (2 N, C, h, w)."""
        plain, asked = sample.chunk(2)
        told = self.conditional.clean(asked, alpha, sigma)
        return torch.cat([self.unconditional.clean(plain, alpha, sigma), told])


class ExactDenoiser(torch.nn.Module):
    """What a perfectly trained network says of a noisy sample and a timestep.

    ``alpha_bars``: the table of its training, (T,), for variance preserving samples; without,
    rectified flow with sigma = t / 1000.
    """

    def __init__(self, law: Law, prediction: Prediction, alpha_bars: Tensor | None) -> None:
        super().__init__()
        self.law, self.prediction = law, prediction
        self.alpha_bars = None if alpha_bars is None else alpha_bars.double().cpu()

    def forward(self, sample: Tensor, timestep: Tensor) -> Tensor:
        """Output (N, C, h, w) for a sample of unit scale (N, C, h, w)."""
        alpha, sigma = self.level(float(timestep))
        clean = self.law.clean(sample, alpha, sigma)
        noise = (sample - alpha * clean) / sigma
        if self.prediction == "sample":
            return clean
        if self.prediction == "epsilon":
            return noise
        if self.prediction == "flow":
            return noise - clean
        return alpha * noise - sigma * clean

    def level(self, timestep: float) -> tuple[float, float]:
        """(alpha, sigma) of a timestep; between two of the table sigma / alpha is geometric."""
        if self.alpha_bars is None:
            sigma = max(timestep, 1e-3) / 1000
            return 1 - sigma, sigma
        low = int(timestep)
        part = timestep - low
        bar = float(self.alpha_bars[low])
        if part > 0:
            ratios = ((1 - self.alpha_bars[low : low + 2]) / self.alpha_bars[low : low + 2]).log()
            bar = 1 / (1 + float(torch.lerp(ratios[0], ratios[-1], part).exp()))
        return bar**0.5, (1 - bar) ** 0.5


class _Space:
    """Latents as media; affine, so that gradients pass as they are."""

    def decode(self, latents: Tensor, *, frames: int | None = None, scale: float = 1.0) -> Tensor:
        missing = 3 - latents.shape[1]
        padded = torch.nn.functional.pad(latents, (0, 0, 0, 0, 0, missing)) if missing else latents
        return padded / (2 * _REACH) + 0.5

    def encode(self, media: Tensor) -> Tensor:
        return (media - 0.5) * (2 * _REACH)


class QuadraticReward:
    """-|x - target|^2, summed over the samples of a picture; ``target``: one number for all, or one
    for each of the first channels."""

    name, modality, differentiable = "quadratic", "image", True
    scale, range = "-|x - target|^2", (float("-inf"), 0.0)

    def __init__(self, target: Sequence[float]) -> None:
        self.target = torch.tensor(target, dtype=torch.float32)

    def score(
        self, prompts: Sequence[str], media: Tensor, context: Context | None = None
    ) -> Tensor:
        """(N,) of media (N, 3, h, w) of the bed."""
        found = _Space().encode(media)
        if len(self.target) > 1:
            found = found[:, : len(self.target)]
        gap = found - self.target.view(-1, 1, 1)
        return -gap.square().sum((1, 2, 3))


class BedPipeline(DiffusionPipeline):
    """Text-to-latents pipeline of the usual methods: the hook sees nothing special about it but
    ``t2x_latent_space``, in place of a VAE."""

    def __init__(self, unet: ExactDenoiser, scheduler: Any) -> None:
        super().__init__()
        self.register_modules(unet=unet, scheduler=scheduler)
        self.t2x_latent_space = _Space()
        self.set_progress_bar_config(disable=True)

    def check_inputs(self, prompt: Sequence[str], height: int, width: int) -> None:
        """Sizes are samples."""
        if height < 1 or width < 1 or not prompt:
            raise ValueError(f"no samples: {len(prompt)} prompts, height {height}, width {width}")

    def prepare_latents(
        self, batch_size: int, height: int, width: int, generator: Any, latents: Tensor | None
    ) -> Tensor:
        """x_T (N, C, height, width), of the scheduler's first scale."""
        shape = (batch_size, self.unet.law.channels, height, width)
        if latents is None:
            latents = torch.randn(shape, generator=generator)
        return latents * float(getattr(self.scheduler, "init_noise_sigma", 1.0))

    @torch.no_grad()
    def __call__(
        self,
        prompt: Sequence[str],
        *,
        height: int = 1,
        width: int = 1,
        num_inference_steps: int = 50,
        generator: torch.Generator | None = None,
        latents: Tensor | None = None,
        guidance_scale: float | None = None,
        **step: Any,
    ) -> Tensor:
        """Sample (N, C, height, width); ``step``: more arguments of the scheduler's step. With a
        ``guidance_scale`` s (of a :class:`GuidedLaw`) the output is u + s (c - u)."""
        self.check_inputs(prompt, height, width)
        self.scheduler.set_timesteps(num_inference_steps)
        timesteps = self.scheduler.timesteps
        sample = self.prepare_latents(len(prompt), height, width, generator, latents)
        if "generator" in inspect.signature(type(self.scheduler).step).parameters:
            step["generator"] = generator
        memory = None
        for i, t in enumerate(timesteps):
            scaled = sample
            if hasattr(self.scheduler, "scale_model_input"):
                scaled = self.scheduler.scale_model_input(sample, t)
            if guidance_scale is None:
                output = self.unet(scaled, t)
            else:
                plain, told = self.unet(torch.cat([scaled] * 2), t).chunk(2)
                output = plain + guidance_scale * (told - plain)
            if "CogVideoXDPM" in type(self.scheduler).__name__:
                before = timesteps[i - 1] if i > 0 else None
                sample, memory = self.scheduler.step(
                    output, memory, t, before, sample, return_dict=False, **step
                )
            else:
                sample = self.scheduler.step(output, t, sample, return_dict=False, **step)[0]
        return sample.detach()


def bed_betas(variance: float, count: int = 1000) -> list[float]:
    """``trained_betas`` of a noise schedule that suits data of ``variance``: equal steps in t are
    equal steps of the angle atan(sigma / (alpha sqrt(variance))), from sigma / alpha = 0.01 to 160.

    Euler's relative error of a step d in the angle is d^2 / 2, of n equal steps 1.23 / n in all,
    the least that n steps can have.
    """
    ends = torch.tensor([0.01, 160.0], dtype=torch.float64) / variance**0.5
    low, high = ends.atan().tolist()
    ratios = variance * torch.linspace(low, high, count, dtype=torch.float64).tan().square()
    bars = 1 / (1 + ratios)
    return (1 - bars / torch.cat([bars.new_ones(1), bars[:-1]])).tolist()


def bed_pipeline(scheduler: Any, law: Law, prediction: Prediction) -> BedPipeline:
    """A pipeline that draws from ``law`` with any scheduler of diffusers.

    ``prediction`` is that of the network; the scheduler's ``prediction_type`` has to agree.
    """
    bars = None if prediction == "flow" else scheduler.alphas_cumprod
    return BedPipeline(ExactDenoiser(law, prediction, bars), scheduler)


def draw_samples(
    pipe: BedPipeline,
    controls: Sequence[Control] = (),
    *,
    samples: int = 100_000,
    rows: int = 2,
    steps: int = 50,
    seed: int = 0,
    **call: Any,
) -> Tensor:
    """Run ``pipe`` under ``controls``: (samples or a few more, dimension of the law).

    ``rows`` pictures hold ``samples`` between them: few for gradients; for what chooses among
    pictures as many as can be, one pixel each. ``call``: more arguments of the pipeline. The first
    noise has mean 0 and variance 1 exactly, so that a deterministic run has no Monte Carlo error in
    its mean and variance.
    """
    generator = torch.Generator().manual_seed(seed)
    law = pipe.unet.law
    width = -(-samples * law.dimension // (rows * law.channels))
    shape = (rows, law.channels, 1, width)
    noise = torch.randn(shape, generator=generator, dtype=torch.float64)
    noise = (noise - noise.mean((0, 2, 3), True)) / noise.std((0, 2, 3), keepdim=True)
    more = {"height": 1, "width": width, "num_inference_steps": steps, **call}
    prompts = [""] * rows
    with watch_steps(pipe, controls, prompts=prompts) if controls else nullcontext():
        found = pipe(prompts, generator=generator, latents=noise.float(), **more)
    return found.movedim(1, -1).reshape(-1, law.dimension)
