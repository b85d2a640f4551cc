"""What generated pictures have and clean renders lack: noise, blur, grain, warped shapes, ghosts,
lost parts, VAE round trips and partly denoised pictures.

Reward models meet generated pictures, so all of them are trained on renders that went through here.
Every function takes pictures (N, 3, H, W) in [0, 1] and an explicit ``torch.Generator``, and gives
pictures of the same shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.world.tokenizer import tokenize

__all__ = ["CORRUPTIONS", "blur", "corrupt", "partly_denoised", "to_pictures", "vae_round_trip"]


def to_pictures(arrays: Sequence[Any]) -> Tensor:
    """Stack (H, W, 3) uint8 arrays of the renderer into (N, 3, H, W) float32 in [0, 1]."""
    stacked = torch.stack([torch.from_numpy(a) for a in arrays])
    return stacked.permute(0, 3, 1, 2).float().div(255)


def _uniform(n: int, low: float, high: float, generator: torch.Generator) -> Tensor:
    """(n, 1, 1, 1) numbers between ``low`` and ``high``."""
    return low + (high - low) * torch.rand(n, 1, 1, 1, generator=generator)


def _noise(x: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    return x + 0.25 * strength * torch.randn(x.shape, generator=generator)


def _blur_kernel(sigma: Tensor) -> Tensor:
    offsets = torch.arange(-4, 5).float()
    kernel = torch.exp(-offsets.square() / (2 * sigma.view(-1, 1).square()))
    return kernel / kernel.sum(1, keepdim=True)  # (N, 9)


def blur(x: Tensor, sigma: float | Tensor) -> Tensor:
    """Gaussian blur of pictures (N, C, H, W); ``sigma`` in pixels, one for all or (N,), at most
    about 2.
    """
    n, c, h, w = x.shape
    kernel = _blur_kernel(torch.as_tensor(sigma, dtype=x.dtype).expand(n))
    rows = kernel.repeat_interleave(c, 0)
    flat = F.pad(x.reshape(1, n * c, h, w), (4, 4, 4, 4), mode="replicate")
    flat = F.conv2d(flat, rows.view(n * c, 1, 1, 9), groups=n * c)
    return F.conv2d(flat, rows.view(n * c, 1, 9, 1), groups=n * c).view(n, c, h, w)


def _blur(x: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    return blur(x, 0.4 + 1.8 * strength.flatten())


def _pixelate(x: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Mix with a copy that went through a third of the resolution."""
    small = F.interpolate(x, scale_factor=1 / 3, mode="area", recompute_scale_factor=True)
    coarse = F.interpolate(small, size=x.shape[-2:], mode="bilinear", align_corners=False)
    return torch.lerp(x, coarse, (0.3 + 0.7 * strength).expand_as(x))


def _warp(x: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Bend shapes: a smooth random displacement of up to about four pixels."""
    n, _, h, w = x.shape
    coarse = torch.randn(n, 2, 7, 7, generator=generator)
    field = F.interpolate(coarse, size=(h, w), mode="bicubic", align_corners=True)
    field = field * (strength * torch.tensor([w, h]).reciprocal().view(1, 2, 1, 1) * 4.5)
    identity = torch.eye(2, 3).expand(n, 2, 3)
    grid = F.affine_grid(identity, list(x.shape), align_corners=False)
    return F.grid_sample(
        x, grid + field.permute(0, 2, 3, 1), padding_mode="border", align_corners=False
    )


def _erase(x: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Paint a soft round hole in the colour of the background: partial objects."""
    n, _, h, w = x.shape
    center = torch.rand(n, 2, 1, 1, generator=generator) * 0.7 + 0.15
    ys = torch.linspace(0, 1, h).view(1, h, 1) - center[:, 0]
    xs = torch.linspace(0, 1, w).view(1, 1, w) - center[:, 1]
    distance = (ys.square() + xs.square()).sqrt()
    hole = torch.sigmoid((0.05 + 0.15 * strength.view(n, 1, 1) - distance) * 40).unsqueeze(1)
    return torch.lerp(x, x[:, :, :1, :1].expand_as(x), hole.expand_as(x))


def _ghost(x: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Let a shifted copy shine through."""
    shifted = torch.roll(x, shifts=(3, -4), dims=(-2, -1))
    return torch.lerp(x, shifted, (0.5 * strength).expand_as(x))


def _tint(x: Tensor, strength: Tensor, generator: torch.Generator) -> Tensor:
    """Shift light and contrast, a little of it per channel."""
    gain = 1 + 0.25 * strength * (2 * torch.rand(len(x), 3, 1, 1, generator=generator) - 1)
    shift = 0.12 * strength * (2 * torch.rand(len(x), 1, 1, 1, generator=generator) - 1)
    return (x - 0.5) * gain + 0.5 + shift


Corruption = Callable[[Tensor, Tensor, torch.Generator], Tensor]
# name: (function, how much of the quality goes at full strength)
CORRUPTIONS: dict[str, tuple[Corruption, float]] = {
    "noise": (_noise, 0.8),
    "blur": (_blur, 0.8),
    "pixelate": (_pixelate, 0.7),
    "warp": (_warp, 0.8),
    "erase": (_erase, 0.7),
    "ghost": (_ghost, 0.7),
    "tint": (_tint, 0.3),
}
_VAE_LOSS = 0.1


@torch.no_grad()
def vae_round_trip(pictures: Tensor, vae: Any) -> Tensor:
    """Encode and decode by an ``AutoencoderKL``: (N, 3, H, W) in [0, 1]."""
    z = vae.encode(pictures * 2 - 1).latent_dist.mode()
    decoded: Tensor = vae.decode(z).sample
    return (decoded.float() / 2 + 0.5).clamp(0, 1)


def corrupt(
    pictures: Tensor,
    generator: torch.Generator,
    *,
    clean: float = 0.3,
    second: float = 0.35,
    vae: Any = None,
    vae_share: float = 0.5,
) -> tuple[Tensor, Tensor]:
    """Spoil pictures (N, 3, H, W); give them and the share of quality lost, (N,) in [0, 1].

    A share ``clean`` stays as it is, the rest goes through one corruption of random strength, and
    with odds ``second`` through another; a share ``vae_share`` of all goes through ``vae`` if there
    is one. The result is clipped to [0, 1].
    """
    lost = torch.zeros(len(pictures))
    out = pictures.clone()
    names = list(CORRUPTIONS)
    dirty = torch.rand(len(pictures), generator=generator) >= clean
    for odds in (1.0, second):
        chosen = torch.randint(len(names), (len(pictures),), generator=generator)
        active = dirty & (torch.rand(len(pictures), generator=generator) < odds)
        for index, (function, weight) in enumerate(CORRUPTIONS.values()):
            rows = (active & (chosen == index)).nonzero().flatten()
            if len(rows) == 0:
                continue
            strength = _uniform(len(rows), 0.05, 1, generator)
            out[rows] = function(out[rows], strength, generator).clamp(0, 1)
            lost[rows] = 1 - (1 - lost[rows]) * (1 - weight * strength.flatten())
    if vae is not None:
        chance = torch.rand(len(pictures), generator=generator)
        rows = (chance < vae_share).nonzero().flatten()
        if len(rows):
            out[rows] = vae_round_trip(out[rows], vae)
            lost[rows] = 1 - (1 - lost[rows]) * (1 - _VAE_LOSS)
    return out, lost


@torch.no_grad()
def partly_denoised(
    pipeline: Any,
    pictures: Tensor,
    prompts: Sequence[str],
    generator: torch.Generator,
    *,
    sigma: Tensor,
    steps: int = 2,
) -> Tensor:
    """Noise the latents of pictures to ``sigma`` (N,) in [0, 1] and let a flow pipeline draw them
    again in a few Euler steps.

    ``pipeline`` is a ``StableDiffusionPipeline`` that predicts noise - x0. The larger sigma, the
    more of the picture is the generator's own: at 1 nothing of the original is left.
    """
    vae = pipeline.vae
    states = pipeline.text_encoder(tokenize(pipeline.tokenizer, prompts))[0]
    latent = vae.encode(pictures * 2 - 1).latent_dist.mode().float()
    x0 = latent * vae.config.scaling_factor
    noise = torch.randn(x0.shape, generator=generator)
    level = sigma.view(-1, 1, 1, 1)
    x = torch.lerp(x0, noise, level.expand_as(x0))
    for step in range(steps):
        now, after = level * (1 - step / steps), level * (1 - (step + 1) / steps)
        times = (now.flatten() * 1000).long().clamp(0, 999)
        flow = pipeline.unet(x, times, encoder_hidden_states=states).sample
        x = x + (after - now) * flow.float()
    decoded: Tensor = vae.decode(x / vae.config.scaling_factor).sample
    return (decoded.float() / 2 + 0.5).clamp(0, 1)
