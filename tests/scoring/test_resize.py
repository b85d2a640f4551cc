"""The tensor path against PIL and open_clip's own preprocessing, with controls that must fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from t2x.errors import T2XError
from t2x.media import to_pil
from t2x.scoring.resize import Preprocess, resize

GREY = 1 / 255
# PIL rounds to 8 bits after the horizontal and again after the vertical pass.
TOLERANCE = 1.6 * GREY


def picture(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Sharp-edged 8-bit picture, so that filters differ."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, height // 3 + 1, width // 3 + 1, generator=generator)
    sharp = F.interpolate(coarse, size=(height, width), mode="nearest")
    return (sharp * 255).round() / 255


def by_pil(x: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Rows first, then columns: which of them Pillow does first differs between its versions."""
    image = to_pil(x)[0].resize((size[1], x.shape[-2]), Image.Resampling.BICUBIC)
    image = image.resize((size[1], size[0]), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)[None].float() / 255


@pytest.mark.parametrize(
    ("source", "target"),
    [((64, 64), (32, 32)), ((97, 61), (40, 24)), ((30, 44), (64, 64)), ((51, 90), (64, 30))],
)
def test_resize_equals_pil(source: tuple[int, int], target: tuple[int, int]) -> None:
    x = picture(*source)
    assert (resize(x, target) - by_pil(x, target)).abs().max() < TOLERANCE


@pytest.mark.parametrize("options", [{"mode": "bilinear", "antialias": True}, {"mode": "bicubic"}])
def test_other_filters_do_not_equal_pil(options: dict[str, object]) -> None:
    x = picture(97, 61)
    wrong = F.interpolate(x, size=(40, 24), align_corners=False, **options).clamp(0, 1)
    assert (wrong - by_pil(x, (40, 24))).abs().max() > 10 * TOLERANCE


def test_same_size_is_the_same_tensor() -> None:
    x = picture(64, 64)
    assert resize(x, (64, 64)) is x


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        (mode, shape)
        for mode in ("shortest", "longest", "squash")
        for shape in ((64, 64), (50, 83), (83, 50), (20, 33), (32, 16))
        if (mode, shape) != ("squash", (83, 50))  # Pillow's versions differ there: columns first
    ],
)
@pytest.mark.parametrize("fill", [0, 128])
def test_preprocess_equals_open_clip(mode: str, shape: tuple[int, int], fill: int) -> None:
    from open_clip.transform import PreprocessCfg, image_transform_v2

    config = {
        "size": 32,
        "mean": (0.4, 0.5, 0.6),
        "std": (0.2, 0.3, 0.25),
        "interpolation": "bicubic",
        "resize_mode": mode,
        "fill_color": fill,
    }
    x = picture(*shape)
    theirs = image_transform_v2(PreprocessCfg(**config), is_train=False)(to_pil(x)[0])
    ours = Preprocess.from_open_clip(config)(x)
    assert ours.shape == (1, 3, 32, 32)
    assert (ours[0] - theirs).abs().max() < TOLERANCE / 0.2


def test_wrong_mean_or_mode_is_noticed() -> None:
    right = Preprocess((32, 32), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))
    x = picture(50, 83)
    for wrong in (replace(right, mean=(0.5, 0.5, 0.5)), replace(right, mode="squash")):
        assert (wrong(x) - right(x)).abs().max() > 10 * TOLERANCE


def test_list_of_sizes_becomes_one_batch() -> None:
    prepare = Preprocess((32, 32), (0.5,) * 3, (0.5,) * 3)
    items = [picture(40, 50), picture(64, 33, 1)]
    batch = prepare(items)
    assert batch.shape == (2, 3, 32, 32)
    assert torch.equal(batch[1:], prepare(items[1]))


def test_gradient_is_exact() -> None:
    prepare = Preprocess((6, 6), (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), mode="longest")
    generator = torch.Generator().manual_seed(0)
    # Far from 0 and 1, so that nothing is cut and the map is smooth.
    x = 0.4 + 0.2 * torch.rand(1, 3, 8, 11, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(prepare, (x.requires_grad_(),))


def test_unknown_mode_names_the_allowed_ones() -> None:
    with pytest.raises(T2XError, match="shortest, longest, squash"):
        Preprocess((8, 8), (0.5,) * 3, (0.5,) * 3, mode="crop")
