"""Networks without a text tower, tiny or with random weights, in their real classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from t2x.testing import fixed_weights

LPIPS_CHANNELS = (64, 192, 384, 256, 256)


def tiny_dino(kind: str = "dinov2", seed: int = 0) -> tuple[Any, Any]:
    """(model, image processor) of ``kind``, dino or dinov2: two layers of width 32."""
    import transformers as t

    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "initializer_range": 0.2,
    }
    with fixed_weights(seed):
        if kind == "dino":
            model = t.ViTModel(t.ViTConfig(**sizes, intermediate_size=64), add_pooling_layer=False)
            return model.eval(), t.ViTImageProcessor(size={"height": 32, "width": 32}, resample=3)
        model = t.Dinov2Model(t.Dinov2Config(**sizes)).eval()
    processor = t.BitImageProcessor(
        size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}, resample=3
    )
    return model, processor


def lpips_layers() -> dict[str, torch.Tensor]:
    """Weights of the layers by the names of the package's file for AlexNet."""
    generator = torch.Generator().manual_seed(0)
    return {
        f"lin{i}.model.1.weight": torch.rand(1, c, 1, 1, generator=generator)
        for i, c in enumerate(LPIPS_CHANNELS)
    }


def lpips_files(folder: Path) -> dict[str, Path]:
    """Files of a random AlexNet trunk and of :func:`lpips_layers`: the options of the loader."""
    from torchvision import models

    with torch.device("meta"):
        empty = models.alexnet(weights=None).features
    with fixed_weights(0):
        trunk = {
            f"features.{n}": torch.randn(t.shape) / max(t[0].numel(), 1) ** 0.5
            for n, t in empty.state_dict().items()
        }
    torch.save(trunk, folder / "trunk.pth")
    torch.save(lpips_layers(), folder / "weights.pth")
    return {"trunk": folder / "trunk.pth", "weights": folder / "weights.pth"}
