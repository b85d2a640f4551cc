"""A file in the layout in which HPSv2's authors publish theirs, of a narrow architecture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import torch

from t2x.testing import fixed_weights

ARCHITECTURE = "ViT-H-14-narrow"
_CONFIG = {
    "embed_dim": 16,
    "vision_cfg": {
        "image_size": 224,
        "layers": 1,
        "width": 32,
        "patch_size": 56,
        "head_width": 16,
    },
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 1},
}


def narrow_hps(folder: Path) -> tuple[dict[str, Any], Any]:
    """Options of the loader for a file of random weights, and the model that they belong to."""
    (folder / f"{ARCHITECTURE}.json").write_text(json.dumps(_CONFIG))
    open_clip.add_model_config(folder / f"{ARCHITECTURE}.json")
    with fixed_weights(3):
        model = open_clip.create_model(ARCHITECTURE)
    torch.save({"epoch": 1, "state_dict": model.state_dict()}, folder / "file.pt")
    return {"source": folder / "file.pt", "architecture": ARCHITECTURE}, model.eval()
