"""Train the autoencoder of emoji-flow: a stock AutoencoderKL, 64x64 pixels to 16x16 latents of four
channels.

    t2x world train emoji-vae --out runs/emoji-vae

Loss: squared error (colours are learnt first from it), absolute error of pixels and of their
differences to the right and downwards (sharp outlines), and a light KL. Most of the training sees
32x32 crops: the network is convolutional, and small crops buy steps. StableDiffusionPipeline
divides latents by ``scaling_factor`` and knows no shift, so at the end the mean and standard
deviation of every channel are folded into the 1x1 convolutions on both sides of the latents, and
the factor is 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.world.captions import sample_pair
from t2x.world.corruption import to_pictures
from t2x.world.training import (
    Budget,
    Ema,
    autocast,
    descend,
    learning_rate,
    run_training,
)

BATCH = 16
PEAK_LR = 1.5e-3
CROP, CROP_UNTIL = 32, 0.75
KL_WEIGHT = 1e-4
DEFAULT_STEPS = 8_000
STANDARDISED, MEASURED = 1_024, 256  # pictures


def build_vae() -> AutoencoderKL:
    """The stock class with small widths: 0.8 M parameters."""
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(24, 48, 64),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=64,
        mid_block_add_attention=False,
    )


def picture_batch(first: int, count: int) -> Tensor:
    """Training pictures number ``first`` and on: (count, 3, 64, 64) in [-1, 1]."""
    return to_pictures([sample_pair(first + i).picture for i in range(count)]) * 2 - 1


def reconstruction_loss(x: Tensor, y: Tensor) -> Tensor:
    """Four times the squared error, plus absolute errors of values and of horizontal and vertical
    differences: (N,)."""

    def error(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).abs().mean(dim=(1, 2, 3))

    squared = (x - y).pow(2).mean(dim=(1, 2, 3))
    edges = error(x.diff(dim=-1), y.diff(dim=-1)) + error(x.diff(dim=-2), y.diff(dim=-2))
    return 4 * squared + error(x, y) + edges


def random_crop(x: Tensor, generator: torch.Generator) -> Tensor:
    """Cut one window of ``CROP`` pixels for the whole batch: (N, 3, CROP, CROP)."""
    top, left = torch.randint(0, x.shape[-1] - CROP + 1, (2,), generator=generator).tolist()
    return x[..., top : top + CROP, left : left + CROP]


@torch.no_grad()
def standardise_latents(
    vae: AutoencoderKL, *, first: int = 2 * 10**9, count: int | None = None
) -> None:
    """Give every latent channel mean 0 and standard deviation 1 over training pictures; the round
    trip stays as it was."""
    count = STANDARDISED if count is None else count
    parts = [
        vae.encode(picture_batch(first + i, min(128, count - i))).latent_dist.mode()
        for i in range(0, count, 128)
    ]
    z = torch.cat(parts)
    mean, std = z.mean(dim=(0, 2, 3)), z.std(dim=(0, 2, 3))
    encode, decode = vae.quant_conv, vae.post_quant_conv
    channels = len(mean)
    encode.weight[:channels] /= std.view(-1, 1, 1, 1)
    encode.bias[:channels] = (encode.bias[:channels] - mean) / std
    encode.bias[channels:] -= 2 * std.log()  # log-variance of the scaled latent
    decode.bias += decode.weight[:, :, 0, 0] @ mean
    decode.weight *= std.view(1, -1, 1, 1)
    vae.register_to_config(scaling_factor=1.0)


@torch.no_grad()
def measure(vae: AutoencoderKL, *, first: int = 10**9) -> dict[str, float]:
    """Latent std and mean over fresh pictures, and PSNR in dB of the 8-bit round trip."""
    x = picture_batch(first, MEASURED)
    z = vae.encode(x).latent_dist.mode()
    y = vae.decode(z).sample.clamp(-1, 1)
    psnr = -10 * ((x - y) / 2).pow(2).mean(dim=(1, 2, 3)).log10().mean()
    return {"std": float(z.std()), "mean": float(z.mean()), "psnr": float(psnr)}


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
) -> dict[str, float]:
    """Train and save to ``out``; return PSNR and latent statistics."""
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(steps=DEFAULT_STEPS))
    torch.manual_seed(seed)
    vae = build_vae().to(memory_format=torch.channels_last)
    ema = Ema(vae, 0.998)
    optimizer = torch.optim.AdamW(vae.parameters(), lr=PEAK_LR, weight_decay=1e-3)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        x = picture_batch((seed << 32) + step * BATCH, BATCH)
        generator = torch.Generator().manual_seed(step)
        if fraction < CROP_UNTIL:
            x = random_crop(x, generator)
        x = x.contiguous(memory_format=torch.channels_last)
        with autocast():
            posterior = vae.encode(x).latent_dist
            noise = torch.randn(posterior.mean.shape, generator=generator)
            z = posterior.mean + posterior.std * noise
            y = vae.decode(z).sample
        loss = reconstruction_loss(x, y.float()).mean()
        kl = posterior.kl().mean() / posterior.mean[0].numel()
        descend(loss + KL_WEIGHT * kl, optimizer, learning_rate(fraction, PEAK_LR))
        ema.update(vae)
        return {"loss": loss.detach(), "kl": kl.detach()}

    state = {"vae": vae, "ema": ema, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-vae",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed},
        resume=resume,
    )
    ema.copy_to(vae)
    vae.eval()
    standardise_latents(vae)
    metrics = {**measure(vae), "steps": done, "seconds": seconds}
    vae.save_pretrained(out / "vae")
    return write_metrics(out, metrics)
