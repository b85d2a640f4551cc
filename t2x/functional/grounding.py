"""Where in a picture a phrase is: from patches to maps and boxes, and what leaks outside."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["leakage", "map_box", "mask_box", "phrase_map", "phrase_similarity"]


def phrase_similarity(patches: Tensor, phrases: Tensor) -> Tensor:
    """Cosine of each patch with its picture's phrase: (N, P, D), (N, D) -> (N, P)."""
    patches = torch.nn.functional.normalize(patches, dim=-1)
    phrases = torch.nn.functional.normalize(phrases, dim=-1)
    return torch.einsum("npd,nd->np", patches, phrases)


def phrase_map(similarity: Tensor, *, temperature: float = 0.5) -> Tensor:
    """Softmax over the patches of a picture, of similarities in units of their own deviation:
    (N, h, w) -> (N, h, w), non-negative, sum 1. Even where all patches are alike.
    """
    flat = similarity.flatten(1)
    centred = flat - flat.mean(1, keepdim=True)
    deviation = centred.pow(2).mean(1, keepdim=True).sqrt()
    units = centred / deviation.clamp_min(torch.finfo(flat.dtype).eps)
    return (units / temperature).softmax(1).view_as(similarity)


def map_box(weights: Tensor) -> Tensor:
    """Box of a map (N, h, w) of sum 1: (N, 4) as x0, y0, x1, y1 in [0, 1].

    Mean plus and minus sqrt(3) deviations along each axis, cells being as wide as they are: the box
    itself where the map is even inside a box, since an interval of width a has variance a^2 / 12.
    """
    sides = []
    for axis, other in ((2, 1), (1, 2)):
        marginal = weights.sum(other)  # (N, w) or (N, h)
        cells = weights.shape[axis]
        places = (torch.arange(cells, device=weights.device, dtype=weights.dtype) + 0.5) / cells
        mean = marginal @ places
        spread = marginal @ places.pow(2) - mean.pow(2) + 1 / (12 * cells**2)
        half = math.sqrt(3) * spread.clamp_min(0).sqrt()
        sides.append((mean - half, mean + half))
    (x0, x1), (y0, y1) = sides
    return torch.stack([x0, y0, x1, y1], 1).clamp(0, 1)


def mask_box(mask: Tensor) -> Tensor:
    """Box around a mask (H, W) where it is over 1/2: (4,) as x0, y0, x1, y1 in [0, 1], on the CPU;
    NaN if it is so nowhere."""
    rows, columns = (torch.nonzero((mask > 0.5).any(axis)).flatten() for axis in (1, 0))
    if not len(rows):
        return torch.full((4,), math.nan)
    height, width = mask.shape
    low = torch.stack([columns[0] / width, rows[0] / height])
    high = torch.stack([(columns[-1] + 1) / width, (rows[-1] + 1) / height])
    return torch.cat([low, high]).cpu()


def leakage(change: Tensor, inside: Tensor) -> Tensor:
    """Root mean square of ``change`` (N, C, H, W) outside of ``inside`` (N, 1, H, W): (N,).

    ``inside`` is in [0, 1]. 0 where nothing is outside.
    """
    outside = (1 - inside).expand_as(change)
    total = (outside * change.pow(2)).flatten(1).sum(1)
    area = outside.flatten(1).sum(1)
    mean = total / area.clamp_min(torch.finfo(change.dtype).tiny)
    positive = mean > 0
    return torch.where(positive, torch.where(positive, mean, 1.0).sqrt(), 0.0)
