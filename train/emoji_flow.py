"""Train emoji-flow, the world's text-to-image model: a stock StableDiffusionPipeline that predicts
flow.

    t2x world train emoji-vae --out runs/emoji-vae
    t2x world train emoji-decoder --out runs/emoji-decoder
    t2x world train emoji-text --out runs/emoji-text
    t2x world train emoji-flow --out runs/emoji-flow --minutes 120

Rectified flow (Liu et al. 2022, arXiv 2209.03003; Esser et al. 2024, arXiv 2403.03206): x_t = (1 -
sigma) x0 + sigma noise, the network predicts noise - x0, sigma is logit-normal. The text encoder,
pre-trained on captions alone, is trained on jointly. What DPMSolverMultistepScheduler asks for: the
network sees floor(1000 sigma), x0 is the scaled latent, and a dropped caption is the empty string,
padded like any other.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    DPMSolverMultistepScheduler,
    StableDiffusionPipeline,
    UNet2DConditionModel,
)
from diffusers.models.attention_processor import AttnProcessor
from torch import Tensor, nn
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

from t2x.devices import set_threads
from t2x.errors import T2XError
from t2x.files import write_metrics
from t2x.world.captions import sample_pair
from t2x.world.checkpoint import Stateful
from t2x.world.corruption import to_pictures
from t2x.world.flow import flow_scheduler, load_vae
from t2x.world.tokenizer import MAX_TOKENS, tokenize
from t2x.world.training import (
    Budget,
    Ema,
    autocast,
    descend,
    learning_rate,
    run_training,
)
from t2x.world.weights import model_dir

BATCH = 64
SMALL_BATCH, SMALL_UNTIL = 32, 0.4  # early on, more steps are worth more than smoother ones
PEAK_LR = 1e-3
DROP_CAPTION = 0.1
# Which object stands where is decided above sigma 0.8: below, the noisy latents show it already and
# the text teaches nothing. A logit-normal(0, 1.1) puts a tenth of the samples there, this one half.
SIGMA_MEAN, SIGMA_STD = 1.3, 1.1
WIDTH = 192
DEFAULT_MINUTES = 120.0
POOL = 60_000  # distinct pictures; their latents are kept once made
MADE_TOGETHER = 32
# Two cats beside a pizza: one caption in a hundred without these, and then the cats win all places.
CROWDED = 0.25
EASY_UNTIL, EASY = 12_000, 0.5  # curriculum: the first pictures are one-object scenes more often
SETTINGS = {"num_inference_steps": 8, "guidance_scale": 3.0, "height": 64, "width": 64}


def build_unet() -> UNet2DConditionModel:
    """UNet on 16x16x4 latents with cross-attention at 8x8: 8 M parameters."""
    return UNet2DConditionModel(
        sample_size=16,
        in_channels=4,
        out_channels=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(64, WIDTH),
        layers_per_block=1,
        cross_attention_dim=WIDTH,
        attention_head_dim=3,
        norm_num_groups=16,
    )


def build_text_encoder(vocab_size: int) -> CLIPTextModel:
    """CLIP text transformer of four layers: 2 M parameters."""
    config = CLIPTextConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        hidden_act="gelu",
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return CLIPTextModel(config)


class LatentPool:
    """Training samples in order: scaled latents and token ids, made at first use and kept in half
    precision.

    The first ``easy`` samples are one-object scenes more often and are met once; after them
    ``size`` others come round and round. A checkpoint holds how many have been drawn.
    """

    def __init__(
        self,
        vae: AutoencoderKL,
        tokenizer: CLIPTokenizer,
        *,
        seed: int,
        size: int,
        easy: int,
    ) -> None:
        self.vae, self.tokenizer, self.size, self.easy = vae, tokenizer, size, easy
        self.offset, self.drawn = seed << 32, 0
        self.latents = torch.zeros(easy + size, 4, 16, 16, dtype=torch.float16)
        self.ids = torch.zeros(easy + size, MAX_TOKENS, dtype=torch.int16)
        self.known = torch.zeros(easy + size, dtype=torch.bool)

    def state_dict(self) -> dict[str, int]:
        return {"drawn": self.drawn}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        self.drawn = state_dict["drawn"]

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """The next samples: latents (count, 4, 16, 16) float32, ids (count, T) int64."""
        number = torch.arange(self.drawn, self.drawn + count)
        self.drawn += count
        index = torch.where(
            number < self.easy, number, self.easy + (number - self.easy) % self.size
        )
        for group in (index[~self.known[index]] // MADE_TOGETHER).unique().tolist():
            self._make(slice(group * MADE_TOGETHER, (group + 1) * MADE_TOGETHER))
        return self.latents[index].float(), self.ids[index].long()

    @torch.no_grad()
    def _make(self, index: slice) -> None:
        """Always in the same groups: the last bit of a latent depends on the batch it is in."""
        pairs = [
            sample_pair(self.offset + i, easy=EASY if i < self.easy else 0.0, crowded=CROWDED)
            for i in range(*index.indices(len(self.known)))
        ]
        with autocast():
            pictures = to_pictures([p.picture for p in pairs]) * 2 - 1
            z = self.vae.encode(pictures).latent_dist.mode()
        self.latents[index] = (z.float() * self.vae.config.scaling_factor).half()
        self.ids[index] = tokenize(self.tokenizer, [p.text for p in pairs]).short()
        self.known[index] = True


def flow_batch(x0: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Noise latents: x_t (N, 4, h, w), timesteps (N,) int64 and the target noise - x0.

    sigma is logit-normal(1.3, 1.1), one sample from each of N equal slices of the distribution, so
    that every batch sees all noise levels.
    """
    noise = torch.randn(x0.shape, generator=generator)
    slices = torch.arange(len(x0)) + torch.rand(len(x0), generator=generator)
    normal = torch.special.ndtri((slices / len(x0)).clamp(1e-6, 1 - 1e-6))
    shuffled = normal[torch.randperm(len(x0), generator=generator)]
    sigma = torch.sigmoid(SIGMA_MEAN + SIGMA_STD * shuffled)
    s = sigma.view(-1, 1, 1, 1)
    return (1 - s) * x0 + s * noise, (sigma * 1000).long().clamp(0, 999), noise - x0


def save_pipeline(
    folder: Path,
    *,
    unet: UNet2DConditionModel,
    text_encoder: CLIPTextModel,
    vae: AutoencoderKL,
    tokenizer: CLIPTokenizer,
    scheduler: DPMSolverMultistepScheduler,
    settings: Mapping[str, float],
) -> None:
    """Write a stock diffusers folder in half precision, with the default sampling settings beside
    it."""
    unet, text_encoder, vae = (copy.deepcopy(m).half() for m in (unet, text_encoder, vae))
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        image_encoder=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder, safe_serialization=True)
    (folder / "t2x.json").write_text(json.dumps(settings, indent=1) + "\n")


def load_text_encoder(out: Path, start: Path | None = None) -> tuple[CLIPTextModel, CLIPTokenizer]:
    """Take the text encoder of ``start``, the one pre-trained beside ``out``, or the embedded."""
    folders = (start,) if start else (out.parent / "emoji-text", model_dir("emoji-flow"))
    for folder in folders:
        if (folder / "text_encoder" / "config.json").exists():
            encoder = CLIPTextModel.from_pretrained(folder / "text_encoder", dtype=torch.float32)
            return encoder, CLIPTokenizer.from_pretrained(folder / "tokenizer")
    if start:
        raise T2XError(f"no text encoder in {start}; --start takes the folder of a whole pipeline")
    raise T2XError(
        "no text encoder: run `t2x world train emoji-text` with an --out beside this one"
    )


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
    start: Path | None = None,
    train_text: bool = True,
) -> dict[str, float]:
    """Train and save the pipeline to ``out/pipeline`` at every checkpoint; return steps and
    seconds.

    ``start`` is the folder of a pipeline to train further, such as the embedded emoji-flow. Without
    ``train_text`` its text encoder stays as it is, so that what was distilled from it stays valid.
    """
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(minutes=DEFAULT_MINUTES))
    torch.manual_seed(seed)
    vae = load_vae(out, start=start)
    text_encoder, tokenizer = load_text_encoder(out, start)
    unet = build_unet()
    if start:
        unet.load_state_dict(
            UNet2DConditionModel.from_pretrained(start / "unet", dtype=torch.float32).state_dict()
        )
    # Plain attention: at these sizes the fused kernel's backward pass takes a fifth of a step on a
    # CPU.
    unet.set_attn_processor(AttnProcessor())
    text_encoder.set_attn_implementation("eager")
    unet.to(memory_format=torch.channels_last)
    model = nn.ModuleDict({"unet": unet, "text_encoder": text_encoder})
    text_encoder.requires_grad_(train_text)
    ema = Ema(model, 0.9995)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=PEAK_LR, betas=(0.9, 0.99), weight_decay=0.01
    )
    easy = 0 if start else EASY_UNTIL
    pool = LatentPool(vae, tokenizer, seed=seed, size=POOL, easy=easy)
    empty = tokenize(tokenizer, [""])[0]

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        generator = torch.Generator().manual_seed((seed << 32) + step)
        size = min(BATCH, SMALL_BATCH) if fraction < SMALL_UNTIL else BATCH
        x0, ids = pool.draw(size)
        ids[torch.rand(size, generator=generator) < DROP_CAPTION] = empty
        x_t, timesteps, target = flow_batch(x0, generator)
        with autocast():
            hidden = text_encoder(ids)[0]
            v = unet(x_t.contiguous(memory_format=torch.channels_last), timesteps, hidden).sample
        loss = (v.float() - target).pow(2).mean()
        norm = descend(loss, optimizer, learning_rate(fraction, PEAK_LR))
        ema.update(model)
        return {"loss": loss.detach(), "grad_norm": norm}

    averaged = copy.deepcopy(model)

    def save(_: int) -> None:
        ema.copy_to(averaged)
        save_pipeline(
            out / "pipeline",
            unet=averaged["unet"],
            text_encoder=averaged["text_encoder"],
            vae=vae,
            tokenizer=tokenizer,
            scheduler=flow_scheduler(),
            settings=SETTINGS,
        )

    state: dict[str, Stateful] = {"model": model, "ema": ema, "optimizer": optimizer, "pool": pool}
    done, seconds = run_training(
        "emoji-flow",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed, "start": start},
        resume=resume,
        on_checkpoint=save,
    )
    return write_metrics(out, {"steps": done, "seconds": seconds})
