"""How near two pictures are where nothing should have changed."""

from __future__ import annotations

from torch import Tensor

__all__ = ["MAX_PSNR", "masked_psnr"]

_ROUNDING = 1 / 255**2 / 12  # mean squared error of rounding to 8 bits
MAX_PSNR = 58.92  # decibels, of pictures that differ by no more


def masked_psnr(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """Peak signal to noise ratio -10 log10(MSE), in decibels, of the pixels in a mask:
    (N, C, H, W) in [0, 1] twice, (N, 1, H, W) with 1 where pixels count -> (N,).

    A difference of d everywhere gives -20 log10(d); equal pictures give ``MAX_PSNR``, since below
    the error of rounding to 8 bits nothing is known. NaN for an empty mask.
    """
    square = (first - second).square().mean(1, keepdim=True) * mask
    mean = square.flatten(1).sum(1) / mask.flatten(1).sum(1)
    return -10 * mean.clamp_min(_ROUNDING).log10()
