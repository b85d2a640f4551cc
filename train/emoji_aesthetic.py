"""Train emoji-aesthetic: a head on emoji-clip's L2-normalised image embedding that rates how clean
a picture is, from 1 to 10.

    t2x world train emoji-aesthetic --out runs/emoji-aesthetic

Form of LAION's aesthetic predictors (linear v1, layers without activation in v2, and their relu
variant, which this is). No person rated these pictures: the target is what went into them. A clean
studio picture rates 10, a snapshot (dull light, clutter, pushed objects) 5.5, and what noise, blur,
lost parts and the like take away is taken off.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from t2x.devices import set_threads
from t2x.files import write_metrics
from t2x.functional.scores import aesthetic_score
from t2x.scoring.clip_encoder import ClipEncoder, load_clip
from t2x.world.captions import sample_pair
from t2x.world.corruption import corrupt, to_pictures
from t2x.world.flow import load_drawer
from t2x.world.reward_auc import auc
from t2x.world.training import (
    Budget,
    build_optimizer,
    descend,
    learning_rate,
    run_training,
)
from t2x.world.weights import require_model

from .emoji_clip import VAE_SHARE

HIDDEN = 64
PICTURES, HELD_OUT = 6_000, 600
CHUNK = 60
BATCH = 256
PEAK_LR = 3e-3
DEFAULT_STEPS = 1_500
SNAPSHOT = 0.5


@torch.no_grad()
def embed(
    encoder: ClipEncoder, first: int, count: int, *, vae: Any = None
) -> tuple[Tensor, Tensor]:
    """Image embeddings (count, D) of spoilt pictures number ``first`` and on, and their ratings
    (count,) in [1, 10].
    """
    rows, ratings = [], []
    for start in range(first, first + count, CHUNK):
        pairs = [
            sample_pair((1 << 36) + i) for i in range(start, min(start + CHUNK, first + count))
        ]
        generator = torch.Generator().manual_seed(start)
        pictures = to_pictures([p.picture for p in pairs])
        pictures, lost = corrupt(pictures, generator, vae=vae, vae_share=VAE_SHARE)
        base = torch.tensor([1.0 if p.studio else SNAPSHOT for p in pairs])
        rows.append(encoder.encode_image(pictures))
        ratings.append(1 + 9 * base * (1 - lost))
    return torch.cat(rows), torch.cat(ratings)


def build_head(width: int) -> nn.Sequential:
    """D - 64 - 1 with ReLU; starts at the middle of the scale."""
    last = nn.Linear(HIDDEN, 1)
    nn.init.constant_(last.bias, 5.5)
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), last)


def predict(head: nn.Sequential, embedding: Tensor) -> Tensor:
    """Ratings (N,) of embeddings (N, D), by the same equation that scores use."""
    layers = [(m.weight, m.bias) for m in head if isinstance(m, nn.Linear)]
    return aesthetic_score(embedding, layers, relu=True)


@torch.no_grad()
def measure(head: nn.Sequential, embedding: Tensor, ratings: Tensor) -> dict[str, float]:
    """Mean absolute error, correlation, and how often a picture rated above 8 leads one below 5."""
    guess = predict(head, embedding)
    clear = (ratings > 8) | (ratings < 5)
    return {
        "mae": float((guess - ratings).abs().mean()),
        "correlation": float(torch.corrcoef(torch.stack([guess, ratings]))[0, 1]),
        "clean_auc": auc(guess[clear], ratings[clear] > 8),
    }


def save_head(head: nn.Sequential, folder: Path) -> None:
    """Write ``head.safetensors`` in LAION's naming, and what it belongs to."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"layers.{k}": v.detach().half().contiguous() for k, v in head.state_dict().items()}
    save_file(weights, folder / "head.safetensors", metadata={"format": "pt"})
    config = {"encoder": "emoji-clip", "activation": "relu", "scale": "1 to 10"}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def main(
    *,
    out: Path,
    minutes: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = True,
    threads: int | None = None,
    encoder: Path | None = None,
    drawer: Path | None = None,
    pictures: int = PICTURES,
) -> dict[str, float]:
    """Train on ``pictures`` embeddings of ``encoder`` (emoji-clip) and save to ``out/model``;
    return errors on fresh pictures.
    """
    set_threads(threads)
    budget = Budget.given(steps, minutes, Budget(steps=DEFAULT_STEPS))
    encoder = encoder or require_model("emoji-clip")
    clip = load_clip(encoder, device="cpu")
    pipeline = load_drawer(drawer)
    autoencoder = pipeline.vae if pipeline is not None else None
    data, ratings = embed(clip, (seed << 24) + HELD_OUT, pictures, vae=autoencoder)
    torch.manual_seed(seed)
    head = build_head(data.shape[1])
    optimizer = build_optimizer(head.parameters(), PEAK_LR)

    def step_fn(step: int, fraction: float) -> Mapping[str, float | Tensor]:
        generator = torch.Generator().manual_seed((seed << 32) + step)
        rows = torch.randint(len(data), (min(BATCH, len(data)),), generator=generator)
        loss = (predict(head, data[rows]) - ratings[rows]).square().mean()
        descend(loss, optimizer, learning_rate(fraction, PEAK_LR))
        return {"rmse": math.sqrt(float(loss.detach()))}

    state: dict[str, Any] = {"head": head, "optimizer": optimizer}
    done, seconds = run_training(
        "emoji-aesthetic",
        step_fn,
        state,
        folder=out,
        budget=budget,
        settings={"seed": seed, "encoder": encoder, "drawer": drawer, "pictures": pictures},
        resume=resume,
    )
    save_head(head, out / "model")
    metrics = measure(head, *embed(clip, seed << 24, HELD_OUT, vae=autoencoder))
    metrics |= {"steps": done, "seconds": seconds}
    return write_metrics(out, metrics)
