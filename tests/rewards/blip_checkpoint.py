"""Tiny checkpoints in the layout in which BLIP's and ImageReward's authors publish theirs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from t2x.testing import tiny_bert_tokenizer

WIDTH = 64
SIZE = 32


def blip_state(seed: int = 0) -> dict[str, torch.Tensor]:
    """Two towers of one layer and one head, projections and the matching head."""
    rows = len(tiny_bert_tokenizer()) + 2
    norm = {"weight": (WIDTH,), "bias": (WIDTH,)}

    def linear(out: int, width: int = WIDTH) -> dict[str, tuple[int, ...]]:
        return {"weight": (out, width), "bias": (out,)}

    layers: dict[str, Mapping[str, tuple[int, ...]]] = {
        "visual_encoder.patch_embed.proj": {"weight": (WIDTH, 3, 8, 8), "bias": (WIDTH,)},
        "visual_encoder.blocks.0.norm1": norm,
        "visual_encoder.blocks.0.attn.qkv": linear(3 * WIDTH),
        "visual_encoder.blocks.0.attn.proj": linear(WIDTH),
        "visual_encoder.blocks.0.norm2": norm,
        "visual_encoder.blocks.0.mlp.fc1": linear(96),
        "visual_encoder.blocks.0.mlp.fc2": linear(WIDTH, 96),
        "visual_encoder.norm": norm,
        "text_encoder.embeddings.word_embeddings": {"weight": (rows, WIDTH)},
        "text_encoder.embeddings.position_embeddings": {"weight": (64, WIDTH)},
        "text_encoder.embeddings.LayerNorm": norm,
        "text_encoder.encoder.layer.0.intermediate.dense": linear(96),
        "text_encoder.encoder.layer.0.output.dense": linear(WIDTH, 96),
        "text_encoder.encoder.layer.0.output.LayerNorm": norm,
        "vision_proj": linear(16),
        "text_proj": linear(16),
        "itm_head": linear(2),
    }
    for part in ("attention", "crossattention"):
        stem = f"text_encoder.encoder.layer.0.{part}"
        layers |= {f"{stem}.self.{n}": linear(WIDTH) for n in ("query", "key", "value")}
        layers |= {f"{stem}.output.dense": linear(WIDTH), f"{stem}.output.LayerNorm": norm}
    shapes = {f"{stem}.{n}": s for stem, leaves in layers.items() for n, s in leaves.items()}
    shapes["visual_encoder.cls_token"] = (1, 1, WIDTH)
    shapes["visual_encoder.pos_embed"] = (1, (SIZE // 8) ** 2 + 1, WIDTH)
    generator = torch.Generator().manual_seed(seed)
    state = {n: 0.2 * torch.randn(s, generator=generator) for n, s in shapes.items()}
    state["text_encoder.embeddings.position_ids"] = torch.arange(64)[None]
    return state


def image_reward_state(seed: int = 0) -> dict[str, torch.Tensor]:
    """The towers under ``blip.`` and a head of two layers; no matching head."""
    blip = {f"blip.{n}": t for n, t in blip_state(seed).items() if not n.startswith("itm_head")}
    generator = torch.Generator().manual_seed(seed + 1)
    head = {
        "mlp.layers.0.weight": torch.randn(8, WIDTH, generator=generator) / 8,
        "mlp.layers.0.bias": torch.randn(8, generator=generator),
        "mlp.layers.2.weight": torch.randn(1, 8, generator=generator),
        "mlp.layers.2.bias": torch.randn(1, generator=generator),
    }
    return {**blip, **head}


def save(state: Mapping[str, torch.Tensor], path: Path) -> Path:
    """Write the file, and the tokenizer beside it."""
    torch.save(dict(state), path)
    tiny_bert_tokenizer().save_pretrained(path.parent)
    return path
