"""The resize on tensors against PIL's, bit by bit, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from t2x.media import from_pil, to_pil
from t2x.scoring.pil_resize import pil_resize
from t2x.scoring.resize import Preprocess, resize

FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def ramp(height: int, width: int) -> torch.Tensor:
    """Whole steps of 1 to 3 levels: between two of them lies many an exact half."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([(x + y) % 256, (2 * x + 3 * y) % 256, (255 - x) % 256])[None] / 255


def noise(height: int, width: int) -> torch.Tensor:
    levels = torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(1))
    return (levels * 255).round() / 255


def pil(picture: torch.Tensor, size: tuple[int, int], filter: str) -> torch.Tensor:
    """Rows first, whatever Pillow's version does."""
    (image,) = to_pil(picture)
    image = image.resize((size[1], image.height), FILTERS[filter])
    return from_pil([image.resize(size[::-1], FILTERS[filter])])


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("make", [ramp, noise])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((96, 96), (144, 144)),
        ((128, 128), (112, 112)),
        ((128, 64), (64, 32)),
        ((50, 200), (32, 128)),
        ((300, 40), (60, 60)),
        ((7, 9), (64, 64)),
        ((1, 1), (8, 8)),
        ((64, 64), (64, 30)),
    ],
)
def test_equal_to_pil_to_the_last_bit(make, before, after, filter) -> None:
    picture = make(*before)
    assert torch.equal(pil_resize(picture, after, filter=filter), pil(picture, after, filter))


def test_plain_rounding_would_not_be_equal() -> None:
    """The halves of a ramp: rounding the floating-point sums misses many of them."""
    picture = ramp(96, 96)
    rounded = resize(picture, (144, 144)).mul(255).round().div(255)
    assert (rounded != pil(picture, (144, 144), "bicubic")).float().mean() > 0.05


def test_same_size_is_left_alone() -> None:
    picture = torch.rand(1, 3, 8, 8)
    assert pil_resize(picture, (8, 8)) is picture


def test_the_gradient_is_that_of_the_filter() -> None:
    """Away from black and white, where nothing overshoots."""
    picture = (noise(40, 56) * 0.4 + 0.3).requires_grad_()
    weights = torch.rand(1, 3, 24, 24, generator=torch.Generator().manual_seed(2))
    found = torch.autograd.grad((pil_resize(picture, (24, 24)) * weights).sum(), picture)[0]
    smooth = F.interpolate(picture, (24, 24), mode="bicubic", antialias=True, align_corners=False)
    expected = torch.autograd.grad((smooth * weights).sum(), picture)[0]
    assert torch.allclose(found, expected, atol=1e-6)
    assert found.norm() > 1


def test_a_batch_is_its_pictures_one_by_one() -> None:
    batch = torch.cat([ramp(60, 80), noise(60, 80)])
    assert torch.equal(
        pil_resize(batch, (32, 32)), torch.cat([pil_resize(p[None], (32, 32)) for p in batch])
    )


def test_preprocessing_that_rounds_equals_pil_and_torchvision() -> None:
    from torchvision import transforms

    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    stock = transforms.Compose(
        [
            transforms.Resize(32, transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(32),
            transforms.ToTensor(),
            transforms.Normalize(mean, std),
        ]
    )
    picture = noise(96, 60)
    (image,) = to_pil(picture)
    ours = Preprocess((32, 32), mean, std, rounded=True)(picture)
    assert np.allclose(ours[0].numpy(), stock(image).numpy(), atol=1e-6)
