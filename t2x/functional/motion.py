"""Measures of a video from its frames: how alike neighbours are, and how much moves."""

from __future__ import annotations

import torch
from torch import Tensor

from t2x.functional.scores import cosine

__all__ = ["aligned_difference", "border_shift", "neighbour_cosine"]


def neighbour_cosine(embeddings: Tensor) -> Tensor:
    """Mean cosine of each frame's embedding with the next one's: (F, D) -> scalar in [-1, 1].

    NaN for a single frame. The neighbour term of VBench's background consistency (Huang et al.
    2023, arXiv 2311.17982), which also compares every frame with the first.
    """
    if len(embeddings) < 2:
        return embeddings.new_full((), torch.nan)
    return cosine(embeddings[:-1], embeddings[1:]).mean()


def border_shift(first: Tensor, second: Tensor, *, reach: int, border: float = 0.25) -> Tensor:
    """Whole-pixel move of the picture between two frames, judged by their border: (N, H, W) twice
    -> (N, 2) of (down, right), each at most ``reach``.

    The shift s that makes the mean of (first(x) - second(x + s))^2 least over the x of the border,
    a frame of ``border`` of each side, that both pictures hold. Of equally good ones the shortest,
    so a plain border gives none. All shifts are tried at once by Fourier transforms. No gradient.
    """
    a, b = first.detach().double(), second.detach().double()
    height, width = a.shape[-2:]
    ring = torch.ones(height, width, dtype=torch.float64, device=a.device)
    top, left = round(border * height), round(border * width)
    ring[top : height - top, left : width - left] = 0
    size = (height + reach, width + reach)

    def correlate(x: Tensor, y: Tensor) -> Tensor:
        """sum over u of x(u) y(u + s), s from -reach to reach: (N, 2 reach + 1, 2 reach + 1)."""
        product = torch.fft.rfft2(x, s=size).conj() * torch.fft.rfft2(y, s=size)
        full = torch.fft.irfft2(product, s=size)
        places = torch.arange(-reach, reach + 1, device=x.device)
        kept: Tensor = full[:, places % size[0]][:, :, places % size[1]]
        return kept

    inside = torch.ones_like(b)
    overlap = correlate(ring.expand_as(a), inside).clamp(min=1)
    error = correlate(ring * a.square(), inside) - 2 * correlate(ring * a, b)
    error = (error + correlate(ring.expand_as(a), b.square())) / overlap
    steps = torch.arange(-reach, reach + 1, dtype=torch.float64, device=a.device)
    length = steps[:, None].square() + steps.square()
    best = (error + 1e-9 * length).flatten(1).argmin(1)
    return torch.stack([best // len(steps), best % len(steps)], -1) - reach


def aligned_difference(
    first: Tensor, second: Tensor, *, reach: int, border: float = 0.25
) -> Tensor:
    """Mean |first(x) - second(x + s)| over the pixels that both hold, s by :func:`border_shift`:
    (N, H, W) twice -> (N,) in [0, 1]. Differentiable with s held fixed.
    """
    height, width = first.shape[-2:]
    rows = []
    shifts = border_shift(first, second, reach=reach, border=border).tolist()
    for a, b, (down, right) in zip(first, second, shifts, strict=True):
        top, left = max(0, -down), max(0, -right)
        bottom, end = height - max(0, down), width - max(0, right)
        moved = b[top + down : bottom + down, left + right : end + right]
        rows.append((a[top:bottom, left:end] - moved).abs().mean())
    return torch.stack(rows)
