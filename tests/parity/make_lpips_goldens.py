"""Makes ``lpips_goldens.json`` with the package lpips 0.1.4: distances of pairs, weights of trunk
and layers from generators seeded by the tensors' names. Run where lpips is installed; no weights
are fetched.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import blip_cases as cases
import lpips
from torchvision.transforms.functional import to_tensor


def main() -> None:
    torch.set_grad_enabled(False)
    goldens: dict[str, Any] = {net: golden(net) for net in ("alex", "vgg")}
    packages = ("lpips", "torch", "torchvision", "Pillow", "numpy")
    goldens["made with"] = {p: version(p) for p in packages}
    path = Path(__file__).with_name("lpips_goldens.json")
    path.write_text(json.dumps(goldens, indent=1) + "\n")


def golden(net: str) -> dict[str, Any]:
    model = lpips.LPIPS(net=net, pretrained=False, pnet_rand=True, verbose=False)
    trunk, layers = {}, {}
    for name, value in model.state_dict().items():
        if name.startswith("net."):  # net.slice2.3.weight is features.3.weight in torchvision
            trunk[f"features.{name.split('.', 2)[2]}"] = name, list(value.shape)
        elif name.startswith("lin") and not name.startswith("lins."):
            layers[name] = name, list(value.shape)
    weights = {}
    for group in (trunk, layers):
        for name, value in cases.tensors({n: shape for n, (_, shape) in group.items()}).items():
            weights[group[name][0]] = torch.from_numpy(value)
    model.load_state_dict(weights, strict=False)
    shapes = {n: s for group in (trunk, layers) for n, (_, s) in group.items()}
    distances = {
        name: model(to_tensor(a)[None], to_tensor(b)[None], normalize=True).item()
        for name, (a, b) in cases.pairs().items()
    }
    return {
        "tensors": shapes,
        "checksum": cases.checksum(cases.tensors(shapes)),
        "distances": distances,
    }


if __name__ == "__main__":
    main()
