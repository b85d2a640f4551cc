"""The media before an edit, as rewards compare with them: of the size and the frames that are
decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from t2x.scoring.resize import resize

if TYPE_CHECKING:
    from t2x.guidance.latents import LatentSpace
    from t2x.types import Context, Media

__all__ = ["beside", "frames_shown"]


def frames_shown(chosen: Sequence[int], latents: int, decoded: int, count: int) -> list[int]:
    """Numbers of the frames, of a video of ``count``, that ``decoded`` frames show, which were made
    of the latent frames ``chosen`` of ``latents``.

    Video autoencoders make one frame of the first latent and as many of each other (1 and 4, say).
    Latents that are decoded as if they followed each other give one frame of the first of them, or
    as many of each: those of its own place; the last one where one is shown of several. Evenly
    spaced ones where the numbers are of no such decoder.
    """
    each = round((count - 1) / (latents - 1)) if latents > 1 else 1
    own = [_frames_of(index, each, count) for index in chosen]
    if decoded == 1 + each * (len(own) - 1):
        first, *others = own
        return [first[-1], *(number for group in others for number in group)]
    if decoded == each * len(own):
        return [group[min(at, len(group) - 1)] for group in own for at in range(each)]
    return _spread(count, decoded)


def _frames_of(index: int, each: int, count: int) -> list[int]:
    """Frames of one latent frame; all that are past the end are the last one."""
    found = [0] if index == 0 else range(1 + each * (index - 1), 1 + each * index)
    return [min(number, count - 1) for number in found]


def beside(
    context: Context | None,
    media: Tensor,
    *,
    space: LatentSpace | None = None,
    latents: Tensor | None = None,
    frames: int | None = None,
) -> Context | None:
    """The context with its source as large and as long as ``media`` (N, 3, H, W) or
    (N, F, 3, H, W): antialiased where they are smaller, since smaller latents are decoded, and of a
    video the frames that ``space`` decoded from ``latents``; evenly spaced where it can't tell.

    ``frames``: of the latents, as ``LatentSpace.decode`` was given them. A source of pictures
    stays one for all frames.
    """
    if context is None or context.source is None:
        return context

    def fitted(source: Tensor) -> Tensor:
        if source.ndim == 5 and source.shape[1] != media.shape[1]:
            decoded, count = media.shape[1], source.shape[1]
            tell = getattr(space, "frames_shown", None)
            if tell is None or latents is None:
                shown = _spread(count, decoded)
            else:
                shown = tell(latents, frames=frames, decoded=decoded, count=count)
            source = source[:, torch.tensor(shown, device=source.device)]
        size = (int(media.shape[-2]), int(media.shape[-1]))
        if tuple(source.shape[-2:]) == size:
            return source
        return resize(source.reshape(-1, *source.shape[-3:]), size).reshape(
            *source.shape[:-2], *size
        )

    source = context.source
    changed: Media = (
        fitted(source) if isinstance(source, Tensor) else [fitted(item) for item in source]
    )
    return replace(context, source=changed)


def _spread(count: int, wanted: int) -> list[int]:
    """Numbers of ``wanted`` of ``count`` frames, evenly spaced; some twice if more are wanted."""
    if wanted == 1:
        return [count // 2]
    return [round(at * (count - 1) / (wanted - 1)) for at in range(wanted)]
