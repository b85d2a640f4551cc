"""Sharpen the decoder of emoji-flow's autoencoder, the encoder and so the latent space left as they
are.

    t2x world train emoji-vae --out runs/emoji-vae
    t2x world train emoji-decoder --out runs/emoji-decoder

The latents are lightly noised: what a generator makes lies a little beside what the encoder makes,
and the decoder must bear it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.world.checkpoint import Stateful
from t2x.world.flow import load_vae
from t2x.world.training import (
    Budget,
    Ema,
    autocast,
    descend,
    learning_rate,
    run_training,
)

from .emoji_vae import measure, picture_batch, reconstruction_loss

BATCH = 8
PEAK_LR = 1e-3
MAX_NOISE = 0.2  # standard deviation, in units of a latent channel's
DEFAULT_MINUTES = 12.0


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
) -> dict[str, float]:
    """Train and save the whole autoencoder to ``out/vae``; return PSNR in dB and latent
    statistics."""
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(minutes=DEFAULT_MINUTES))
    torch.manual_seed(seed)
    vae = load_vae(out, stages=("emoji-vae",))
    decoder = nn.ModuleDict({"decoder": vae.decoder, "post_quant_conv": vae.post_quant_conv})
    decoder.requires_grad_(True).to(memory_format=torch.channels_last)
    ema = Ema(decoder, 0.998)
    optimizer = torch.optim.AdamW(decoder.parameters(), lr=PEAK_LR, weight_decay=1e-3)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        generator = torch.Generator().manual_seed((seed << 32) + step)
        x = picture_batch((seed << 32) + 3 * 10**8 + step * BATCH, BATCH)
        with autocast():
            with torch.no_grad():
                z = vae.encode(x).latent_dist.mode()
            level = MAX_NOISE * torch.rand(BATCH, 1, 1, 1, generator=generator)
            y = vae.decode(z + level * torch.randn(z.shape, generator=generator)).sample
        loss = reconstruction_loss(x, y.float()).mean()
        descend(loss, optimizer, learning_rate(fraction, PEAK_LR))
        ema.update(decoder)
        return {"loss": loss.detach()}

    def save(_: int) -> None:
        live = {k: v.clone() for k, v in decoder.state_dict().items()}
        ema.copy_to(decoder)
        vae.save_pretrained(out / "vae")
        decoder.load_state_dict(live)

    state: dict[str, Stateful] = {"decoder": decoder, "ema": ema, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-decoder",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed},
        resume=resume,
        on_checkpoint=save,
    )
    ema.copy_to(decoder)
    metrics = {**measure(vae), "steps": done, "seconds": seconds}
    return write_metrics(out, metrics)
