"""Train emoji-clip: a stock open_clip model (ViT on 8-pixel patches, causal text transformer) for
the world's pictures.

    t2x world train emoji-clip --out runs/emoji-clip

Contrastive loss (Radford et al. 2021, arXiv 2103.00020) with hard negatives: a batch holds families
of scenes that differ by one change (colours traded, count off by one, relation turned, another
class), each with its picture and two texts. A text-picture pair that fits by accident is left out.
Added to it, so that cosines compare across prompts: the sigmoid loss of SigLIP (Zhai et al. 2023,
arXiv 2303.15343) within families, whose scale and bias are not kept.

Texts are what users type (training kinds) and careful captions; pictures are renders, most of them
spoilt (``t2x.world.corruption``).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.functional.scores import sigmoid_pair_loss
from t2x.scoring.clip_sources import save_open_clip
from t2x.world.captions import caption, sample_pair, training_scene
from t2x.world.corruption import corrupt, partly_denoised, to_pictures
from t2x.world.flow import load_drawer
from t2x.world.preferences import Shown, near_miss, prompt_for, show
from t2x.world.prompts import training_prompts
from t2x.world.reward_auc import near_miss_metrics
from t2x.world.tokenizer import MAX_TOKENS, build_clip_tokenizer, tokenize
from t2x.world.training import (
    Budget,
    Ema,
    autocast,
    build_optimizer,
    descend,
    learning_rate,
    run_training,
)
from t2x.world.truth import satisfies

FAMILIES, VARIANTS, TEXTS = 32, 3, 2
PEAK_LR = 1e-3
SIGMOID_WEIGHT = 0.5
MAX_LOGIT_SCALE = math.log(100)
VAE_SHARE, REDRAWN_SHARE = 0.1, 0.05
DEFAULT_MINUTES = 12.0
# Small on purpose: all embedded weights together stay below 60 MB.
WIDTH = EMBED_DIM = 128
VISION = {"image_size": 64, "patch_size": 8, "width": WIDTH, "layers": 4, "head_width": 32}
PREPROCESS = {
    "mean": [0.5] * 3,
    "std": [0.5] * 3,
    "interpolation": "bicubic",
    "resize_mode": "squash",
}


def build_config(tokenizer: Any) -> dict[str, Any]:
    """The ``open_clip_config.json`` of the model.

    ``pool_type`` "eos" matters: by default open_clip pools at the highest token id, which in this
    vocabulary is some word, silently.
    """
    text = {
        "context_length": MAX_TOKENS,
        "vocab_size": len(tokenizer),
        "hf_tokenizer_name": "emoji-clip",
        "width": WIDTH,
        "heads": 4,
        "layers": 3,
        "pool_type": "eos",
        "eos_id": tokenizer.eos_token_id,
        "pad_id": tokenizer.pad_token_id,
    }
    model = {"embed_dim": EMBED_DIM, "vision_cfg": dict(VISION), "text_cfg": text}
    return {"model_cfg": model, "preprocess_cfg": dict(PREPROCESS)}


def build_tokenizer() -> Any:
    """CLIP's byte-level tokenizer with merges learnt from captions and user prompts of the training
    kinds.
    """
    texts = [sample_pair(i).text for i in range(3_000)]
    return build_clip_tokenizer([*texts, *(p.text for p in training_prompts(3_000))])


def build_clip(config: Mapping[str, Any]) -> Any:
    """An ``open_clip.CLIP`` with fresh weights."""
    from open_clip import CLIP

    return CLIP(**config["model_cfg"])


def spoil(shown: Sequence[Shown], number: int, drawer: Any, *, clean: float = 0.3) -> Tensor:
    """Pictures (P, 3, 64, 64) in [0, 1] as reward models meet them: corrupted, through the VAE, or
    partly redrawn by the generator.
    """
    generator = torch.Generator().manual_seed(number)
    vae = drawer.vae if drawer is not None else None
    pictures = to_pictures([s.picture for s in shown])
    pictures, _ = corrupt(pictures, generator, clean=clean, vae=vae, vae_share=VAE_SHARE)
    if drawer is not None:
        chosen = torch.rand(len(shown), generator=generator) < REDRAWN_SHARE
        rows = chosen.nonzero().flatten()
        if len(rows):
            pictures[rows] = redraw([shown[i] for i in rows], generator, drawer)
    return pictures


def redraw(shown: Sequence[Shown], generator: torch.Generator, drawer: Any) -> Tensor:
    """Let the generator draw the last part of each picture: noise of 0.3 to 0.7, its own scene as
    the prompt.
    """
    texts = [caption(s.scene, "sentence", 0) for s in shown]
    sigma = 0.3 + 0.4 * torch.rand(len(shown), generator=generator)
    pictures = to_pictures([s.picture for s in shown])
    with autocast():
        return partly_denoised(drawer, pictures, texts, generator, sigma=sigma).float()


@dataclass(frozen=True)
class Batch:
    """Pictures (P, 3, 64, 64) in [-1, 1], token ids (T, L), ``owner`` (T,): the picture of each
    text, and ``fits`` (T, P) bool: pairs other than a text's own that fit as well, or may.
    """

    pixels: Tensor
    ids: Tensor
    owner: Tensor
    fits: Tensor


def draw_family(rng: random.Random, *, easy: float = 0.0) -> list[Shown]:
    """A scene and near misses of it, each of the first or of another one."""
    family = [show(training_scene(rng, easy=easy), rng)]
    while len(family) < VARIANTS:
        family.append(near_miss(rng.choice(family), rng)[0])
    return family


def also_fits(owners: Sequence[int], shown: Sequence[Shown]) -> Tensor:
    """Which pictures, other than its own, each text may fit too: (T, P) bool."""
    keys = [tuple(sorted(p.cls for p in s.placed)) for s in shown]
    rows = torch.zeros(len(owners), len(shown), dtype=torch.bool)
    for t, i in enumerate(owners):
        for j, other in enumerate(shown):
            if i != j and keys[i] == keys[j]:
                rows[t, j] = satisfies(shown[i].scene, other.placed) is not False
    return rows


def draw_batch(number: int, tokenizer: Any, *, easy: float = 0.0, drawer: Any = None) -> Batch:
    """The training batch of one step; it depends on ``number`` (and the drawer) alone."""
    rng = random.Random(f"clip {number}")
    shown = [s for _ in range(FAMILIES) for s in draw_family(rng, easy=easy)]
    owners = [i for i in range(len(shown)) for _ in range(TEXTS)]
    texts = [prompt_for(shown[i], rng) for i in owners]
    pixels = spoil(shown, number, drawer) * 2 - 1
    return Batch(pixels, tokenize(tokenizer, texts), torch.tensor(owners), also_fits(owners, shown))


def text_features(model: Any, ids: Tensor) -> Tensor:
    """``model.encode_text`` without the work on padding: texts are cut to the longest of their
    half, sorted by length.
    """
    ends = (ids == model.text_eos_id).int().argmax(1)
    order = ends.argsort()
    out = []
    for rows in order.chunk(2):
        length = int(ends[rows].max()) + 1
        x = model.token_embedding(ids[rows, :length]) + model.positional_embedding[:length]
        x = model.ln_final(model.transformer(x, attn_mask=model.attn_mask[:length, :length]))
        out.append(x[torch.arange(len(rows)), ends[rows]] @ model.text_projection)
    return torch.cat(out)[order.argsort()]


def cosines(model: Any, batch: Batch) -> Tensor:
    """Cosine of every text with every picture: (T, P). Plain attention: the fused kernel's backward
    is slower on CPUs.
    """
    with autocast(), sdpa_kernel(SDPBackend.MATH):
        image, text = model.encode_image(batch.pixels), text_features(model, batch.ids)
    return F.normalize(text.float(), dim=-1) @ F.normalize(image.float(), dim=-1).T


def contrastive_loss(cos: Tensor, scale: Tensor, batch: Batch) -> Tensor:
    """Symmetric cross-entropy over texts x pictures, (T, P) cosines; accidental matches are left
    out.
    """
    logits = (cos * scale).masked_fill(batch.fits, -torch.inf)
    by_text = F.cross_entropy(logits, batch.owner)
    own = F.one_hot(batch.owner, cos.shape[1]).T.float()
    log_p = logits.T.log_softmax(1).masked_fill(own == 0, 0)
    by_picture = -(own * log_p).sum(1) / own.sum(1)
    return (by_text + by_picture.mean()) / 2


def family_loss(cos: Tensor, aux: nn.ParameterDict, batch: Batch) -> Tensor:
    """Sigmoid loss over the pairs inside families."""
    picture_family = torch.arange(cos.shape[1]) // VARIANTS
    inside = picture_family[batch.owner].unsqueeze(1) == picture_family
    match = batch.owner.unsqueeze(1) == torch.arange(cos.shape[1])
    losses = sigmoid_pair_loss(aux["scale"].exp() * (cos - aux["bias"]), match)
    return losses[inside & ~batch.fits].mean()


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
    drawer: Path | None = None,
) -> dict[str, float]:
    """Train and save to ``out/model``; return accuracies over near misses on renders.

    ``drawer``: folder of an emoji-flow pipeline that redraws some of the pictures; the embedded one
    by default, none if there is none.
    """
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(minutes=DEFAULT_MINUTES))
    torch.manual_seed(seed)
    tokenizer, pipeline = build_tokenizer(), load_drawer(drawer)
    config = build_config(tokenizer)
    model, averaged = build_clip(config), build_clip(config)
    aux = nn.ParameterDict({"scale": torch.tensor(2.3), "bias": torch.tensor(0.3)})
    ema = Ema(model, 0.998)
    optimizer = build_optimizer([*model.parameters(), *aux.parameters()], PEAK_LR)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        easy = 0.5 if fraction < 0.15 else 0.0
        batch = draw_batch((seed << 32) + step, tokenizer, easy=easy, drawer=pipeline)
        cos = cosines(model, batch)
        loss = contrastive_loss(cos, model.logit_scale.exp(), batch)
        within = family_loss(cos, aux, batch)
        descend(loss + SIGMOID_WEIGHT * within, optimizer, learning_rate(fraction, PEAK_LR))
        with torch.no_grad():
            model.logit_scale.clamp_(0, MAX_LOGIT_SCALE)
        ema.update(model)
        return {"loss": loss.detach(), "family": within.detach(), "accuracy": _accuracy(cos, batch)}

    def save(_: int) -> None:
        ema.copy_to(averaged)
        save_open_clip(averaged, tokenizer, config, out / "model")

    state = {"model": model, "aux": aux, "ema": ema, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-clip",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed, "drawer": drawer},
        resume=resume,
        on_checkpoint=save,
    )
    metrics = near_miss_metrics(str(out / "model")) | {"steps": done, "seconds": seconds}
    return write_metrics(out, metrics)


def _accuracy(cos: Tensor, batch: Batch) -> Tensor:
    """Share of texts whose own picture leads the batch."""
    return (cos.detach().masked_fill(batch.fits, -2).argmax(1) == batch.owner).float().mean()
