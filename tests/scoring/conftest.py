"""A tiny open_clip model saved in open_clip's own folder format, and pictures to score."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from t2x.testing import fixed_weights, tiny_clip_tokenizer

LENGTH = 24
PREPROCESS = {
    "mean": [0.4, 0.5, 0.6],
    "std": [0.2, 0.3, 0.25],
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}


def save_tiny_clip(folder: Path, *, seed: int = 0, **preprocess: Any) -> Path:
    """Write a two-layer open_clip model for 32-pixel pictures, pooled at the end token."""
    from open_clip import CLIP

    tokenizer = tiny_clip_tokenizer(LENGTH)
    vision = {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16}
    text = {
        "context_length": LENGTH,
        "vocab_size": len(tokenizer),
        "hf_tokenizer_name": "tiny",
        "width": 32,
        "heads": 2,
        "layers": 2,
        "pool_type": "eos",
        "eos_id": tokenizer.eos_token_id,
    }
    config = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}
    with fixed_weights(seed):
        model = CLIP(**config)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(folder)
    save_file(
        {k: v.contiguous() for k, v in model.state_dict().items()},
        folder / "open_clip_model.safetensors",
    )
    settings = {"model_cfg": config, "preprocess_cfg": {**PREPROCESS, **preprocess}}
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="session")
def tiny_clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_clip(tmp_path_factory.mktemp("tiny-clip"))


@pytest.fixture
def pictures() -> torch.Tensor:
    """Six 8-bit pictures of 40 x 56."""
    generator = torch.Generator().manual_seed(5)
    smooth = torch.rand(6, 3, 5, 7, generator=generator)
    large = torch.nn.functional.interpolate(smooth, size=(40, 56), mode="bilinear")
    return (large * 255).round() / 255


PROMPTS = ["a cat", "two red dogs", "a bus above a car", "a cat", "blue kite", "a tie and a cup"]
