"""Train emoji-hps: emoji-clip fine-tuned on preferences between two pictures of one prompt.

    t2x world train emoji-clip --out runs/emoji-clip
    t2x world train emoji-hps --out runs/emoji-hps

Loss of HPSv2 (Wu et al. 2023, arXiv 2306.09341): cross-entropy of the softmax of exp(logit_scale)
cos over the two pictures. The preferences are made from scene truth (``t2x.world.preferences``):
right scene before near miss, clean before spoilt, one fault before several. Differs from the paper:
preferences are certain, and there are two pictures, not a ranked set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.functional.scores import hps_preference_loss
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.clip_sources import save_open_clip
from t2x.world.corruption import to_pictures
from t2x.world.flow import load_drawer
from t2x.world.preferences import preference_pair
from t2x.world.reward_auc import near_miss_metrics
from t2x.world.tokenizer import tokenize
from t2x.world.training import (
    Budget,
    Ema,
    autocast,
    build_optimizer,
    descend,
    learning_rate,
    run_training,
)
from t2x.world.weights import require_model

from .emoji_clip import (
    MAX_LOGIT_SCALE,
    build_clip,
    spoil,
    text_features,
)

PAIRS = 48
PEAK_LR = 2e-4
DEFAULT_MINUTES = 6.0


def draw_pairs(
    first: int, tokenizer: Any, *, drawer: Any = None, count: int = PAIRS
) -> tuple[Tensor, Tensor]:
    """Preferences number ``first`` and on: pixels (2 * count, 3, 64, 64) in [-1, 1], the preferred
    ones first, and ids (count, T).
    """
    pairs = [preference_pair(first + i) for i in range(count)]
    shown = [*(p.chosen for p in pairs), *(p.rejected for p in pairs)]
    degrade = [*(p.degrade[0] for p in pairs), *(p.degrade[1] for p in pairs)]
    pixels = to_pictures([s.picture for s in shown])
    rows = torch.tensor(degrade).nonzero().flatten()
    pixels[rows] = spoil([shown[i] for i in rows], first, drawer, clean=0)
    return pixels * 2 - 1, tokenize(tokenizer, [p.prompt for p in pairs])


def preference_scores(model: Any, pixels: Tensor, ids: Tensor) -> Tensor:
    """exp(logit_scale) cos of each prompt with its two pictures: (count, 2)."""
    with autocast(), sdpa_kernel(SDPBackend.MATH):
        image, text = model.encode_image(pixels), text_features(model, ids)
    image = F.normalize(image.float(), dim=-1).view(2, len(ids), -1)
    cos = torch.einsum("knd,nd->nk", image, F.normalize(text.float(), dim=-1))
    return cos * model.logit_scale.exp()


@torch.no_grad()
def preference_accuracy(
    model: Any, tokenizer: Any, *, first: int = 10**9, count: int = 512
) -> float:
    """Share of fresh training-kind preferences that the model agrees with."""
    scores = preference_scores(model, *draw_pairs(first, tokenizer, count=count))
    return float((scores[:, 0] > scores[:, 1]).float().mean())


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
    start: Path | None = None,
    drawer: Path | None = None,
) -> dict[str, float]:
    """Fine-tune from ``start`` (emoji-clip) and save to ``out/model``; return accuracies on
    renders.
    """
    from transformers import AutoTokenizer

    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(minutes=DEFAULT_MINUTES))
    torch.manual_seed(seed)
    start = start or require_model("emoji-clip")
    config = json.loads((start / "open_clip_config.json").read_text())
    tokenizer, pipeline = AutoTokenizer.from_pretrained(start), load_drawer(drawer)
    model, averaged = build_clip(config), build_clip(config)
    model.load_state_dict(load_clip(start, device="cpu").model.state_dict())
    ema = Ema(model, 0.998)
    optimizer = build_optimizer(model.parameters(), PEAK_LR)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        batch = draw_pairs((seed << 40) + step * PAIRS, tokenizer, drawer=pipeline)
        scores = preference_scores(model, *batch)
        wanted = torch.tensor([1.0, 0.0]).expand_as(scores)
        loss = hps_preference_loss(scores, wanted).mean()
        descend(loss, optimizer, learning_rate(fraction, PEAK_LR, warmup=0.05))
        with torch.no_grad():
            model.logit_scale.clamp_(0, MAX_LOGIT_SCALE)
        ema.update(model)
        agreed = (scores[:, 0] > scores[:, 1]).float().mean()
        return {"loss": loss.detach(), "accuracy": agreed}

    def save(_: int) -> None:
        ema.copy_to(averaged)
        save_open_clip(averaged, tokenizer, config, out / "model")

    state = {"model": model, "ema": ema, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-hps",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed, "start": start, "drawer": drawer},
        resume=resume,
        on_checkpoint=save,
    )
    metrics = {"preference": preference_accuracy(averaged, tokenizer)}
    metrics |= near_miss_metrics(str(out / "model")) | {"steps": done, "seconds": seconds}
    return write_metrics(out, metrics)
