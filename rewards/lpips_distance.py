"""LPIPS: how close a picture stays to its source, as minus the perceptual distance (Zhang et al.
2018, arXiv 1801.03924); 0 for equal pictures, lower is further. The prompt plays no part.

    load_reward("lpips")                 AlexNet, the paper's choice for measuring
    load_reward("lpips", net="vgg")      VGG-16, smoother to optimise

Two files are needed: the trunk, torchvision's own (fetched by it unless given), and the learnt
weights of the layers, which the extra ``lpips`` brings (package lpips, version 0.1 of the weights).
Pictures are compared at their own size. Equal to the package (``tests/parity``), but for the
gradient where all channels of a place are 0: there it is 0, not NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.devices import Device, present_device
from t2x.errors import T2XError
from t2x.functional.perceptual import lpips_distance
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.source import SourceEncoder
from t2x.scoring.state_files import read_state

if TYPE_CHECKING:
    from t2x.types import Media

__all__ = ["NETS", "load"]

# Where the features of a layer end in torchvision's trunk, and the smallest side that gives them.
NETS: dict[str, tuple[str, str, tuple[int, ...], int]] = {
    "alex": ("alexnet", "AlexNet_Weights", (2, 5, 8, 10, 12), 31),
    "vgg": ("vgg16", "VGG16_Weights", (4, 9, 16, 23, 30), 16),
}
# Mean and deviation of ImageNet, for pictures in [-1, 1].
_SHIFT = (-0.030, -0.088, -0.188)
_SCALE = (0.458, 0.448, 0.450)


def load(
    net: str = "alex",
    *,
    weights: str | Path | None = None,
    trunk: str | Path | None = None,
    name: str = "lpips",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``net`` is a key of ``NETS``, ``weights`` and ``trunk`` are local files.

    A sample whose context has no source, or that is smaller than the network can read, scores NaN.
    Another size than its source's is a ``ValueError``. Raises ``T2XError`` for an unknown net or
    files that don't fit.
    """
    if net not in NETS:
        raise T2XError(f"unknown net {net!r}; allowed: {', '.join(NETS)}")
    path = Path(weights) if weights else _packaged(net)
    place, number = present_device(device), dtype or torch.float32
    layers = [w.to(place, number) for w in _weights(path, net)]
    features = _trunk(net, trunk).to(place, number)
    smallest = NETS[net][3]

    def compare(media: Media, source: Media) -> Tensor:
        if isinstance(media, list) or isinstance(source, list):
            pairs = zip(media, source, strict=True)
            return torch.cat([compare(_single(m), _single(s)) for m, s in pairs])
        if media.shape != source.shape:
            raise ValueError(
                f"{name}: media of shape {tuple(media.shape)} and sources of shape "
                f"{tuple(source.shape)}; resize one by t2x.scoring.resize.resize"
            )
        if min(media.shape[-2:]) < smallest:
            return torch.full((len(media),), math.nan, device=place)
        first, second = (
            _features(features, NETS[net][2], m.to(place, number)) for m in (media, source)
        )
        return lpips_distance(first, second, layers)

    def head(values: Mapping[str, Features]) -> Tensor:
        return -values["source"]["value"]

    return EncoderReward(
        name=name,
        encoders={
            "source": SourceEncoder(compare, key=f"lpips {net} {path} {trunk} {place} {number}")
        },
        head=head,
        scale=f"minus LPIPS ({net}, v0.1)",
        range=(-math.inf, 0.0),
        parts=frozenset({"value"}),
    )


def _single(picture: Tensor) -> Tensor:
    return picture.reshape(1, *picture.shape[-3:])


def _features(trunk: Any, ends: tuple[int, ...], pictures: Tensor) -> list[Tensor]:
    """Activations (N, C, h, w) of every layer, of pictures in [0, 1]."""
    shift, scale = (pictures.new_tensor(v).view(-1, 1, 1) for v in (_SHIFT, _SCALE))
    x = (2 * pictures - 1 - shift) / scale
    found = []
    for begin, end in zip((0, *ends), ends, strict=False):
        x = trunk[begin:end](x)
        found.append(x)
    return found


def _packaged(net: str) -> Path:
    """The learnt weights inside the package lpips, which is not imported."""
    spec = find_spec("lpips")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("lpips", name="lpips")
    return Path(spec.submodule_search_locations[0]) / "weights" / "v0.1" / f"{net}.pth"


def _weights(path: Path, net: str) -> list[Tensor]:
    """Weights (C,) per layer of a file that names them lin0.model.1.weight, lin1..."""
    state = read_state(path)
    names = [f"lin{i}.model.1.weight" for i in range(len(NETS[net][2]))]
    if set(names) != set(state):
        raise T2XError(
            f"{str(path)!r} holds {', '.join(sorted(state)[:6])}; LPIPS weights of {net} are: "
            f"{', '.join(names)}"
        )
    return [state[n].flatten() for n in names]


def _trunk(net: str, path: str | Path | None) -> Any:
    """The frozen convolutional part of torchvision's network."""
    from torchvision import models

    builder, enum = NETS[net][:2]
    if path is not None:
        state = read_state(path)
    else:
        try:
            state = getattr(models, enum).IMAGENET1K_V1.get_state_dict(progress=False)
        except OSError as error:
            raise T2XError(
                f"can't fetch torchvision's weights of {builder}: {error}; give trunk=, a file "
                "with its state dict"
            ) from error
    with torch.device("meta"):
        features = getattr(models, builder)(weights=None).features
    inside = {n.removeprefix("features."): t for n, t in state.items() if n.startswith("features.")}
    try:
        features.load_state_dict(inside, strict=True, assign=True)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise T2XError(f"{str(path)!r} is no {builder} of torchvision: {reason[:400]}") from error
    return features.eval().requires_grad_(False)
