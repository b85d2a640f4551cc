"""Videos through rewards of pictures: every frame is scored, and the frames' scores are averaged.

The frames of all videos go through the picture encoders as one batch, once for all rewards that
share an encoder, as pictures do.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.media import spaced
from t2x.scoring.pairs import check_pairs, device_of
from t2x.scoring.reward import Encoder, EncoderReward, Features
from t2x.types import Context

if TYPE_CHECKING:
    from t2x.types import Media, Modality, RewardModel

__all__ = ["FrameAverage", "FrameEncoder", "frames", "per_video"]

log = logging.getLogger(__name__)


def frames(reward: RewardModel, *, max_frames: int | None = None) -> RewardModel:
    """The same reward for videos (N, F, 3, H, W): the mean over frames, named ``NAME-frames``.

    ``max_frames``: so many, evenly spaced with the first and the last among them; all if None. The
    mean is blind to the order of frames and to a few bad ones among many. A frame that can't be
    measured leaves the mean; a video without any other is NaN. Raises ``T2XError`` for a reward
    that scores videos already.
    """
    if reward.modality != "image":
        raise T2XError(f"{reward.name} scores videos already; give a reward of pictures")
    if max_frames is not None and max_frames < 1:
        raise T2XError(f"max_frames must be 1 or more, got {max_frames}")
    if not isinstance(reward, EncoderReward):
        return FrameAverage(reward, max_frames)
    encoders: dict[str, Encoder] = {
        role: FrameEncoder(encoder, max_frames) for role, encoder in reward.encoders.items()
    }

    def head(features: Mapping[str, Features]) -> Tensor:
        return per_video(features, _measured_mean, reward.head(features))

    return replace(
        reward,
        name=f"{reward.name}-frames",
        encoders=encoders,
        head=head,
        scale=f"mean over frames of: {reward.scale}",
        modality="video",
    )


def per_video(
    features: Mapping[str, Features], reduce: Callable[[Tensor], Tensor], values: Tensor
) -> Tensor:
    """Cut ``values`` of all frames into videos and reduce each: (sum of F, ...) -> (N,)."""
    counts = next(iter(features.values()))["frames"].tolist()
    return torch.stack([reduce(part) for part in values.split(counts)])


class FrameEncoder:
    """An encoder of pictures that sees every frame. Features have one row per frame, those of a
    video behind one another; ``frames`` (N,) says how many each has.
    """

    def __init__(self, encoder: Encoder, max_frames: int | None = None) -> None:
        self.encoder = encoder
        self.max_frames = max_frames
        self.key = f"frames {max_frames or 'all'} {encoder.key}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str],
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Encode N videos; every frame gets its video's prompt and context."""
        pictures, counts = _pictures(media, self.max_frames)
        texts = [p for p, count in zip(prompts, counts, strict=True) for _ in range(count)]
        features = self.encoder.encode(
            texts, pictures, parts=parts, context=_repeated(context, counts, self.max_frames)
        )
        return {**features, "frames": torch.tensor(counts)}


class FrameAverage:
    """:func:`frames` of a reward that is no ``EncoderReward``."""

    def __init__(self, reward: RewardModel, max_frames: int | None = None) -> None:
        self.reward = reward
        self.max_frames = max_frames
        self.name = f"{reward.name}-frames"
        self.modality: Modality = "video"
        self.scale = f"mean over frames of: {reward.scale}"
        self.range = reward.range
        self.differentiable = reward.differentiable

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N videos: (N,) float32, where the media are."""
        if check_pairs(prompts, media, modality="video", name=self.name) == 0:
            return torch.zeros(0, device=device_of(media))
        pictures, counts = _pictures(media, self.max_frames)
        texts = [p for p, count in zip(prompts, counts, strict=True) for _ in range(count)]
        values = self.reward.score(
            texts, pictures, context=_repeated(context, counts, self.max_frames)
        )
        return torch.stack([_measured_mean(part) for part in values.split(counts)])


def _measured_mean(values: Tensor) -> Tensor:
    """Mean of what is not NaN, differentiable; NaN if nothing is left."""
    good = ~values.isnan()
    if bool(good.all()) and len(values):
        return values.mean()
    log.warning("%d of %d frames can't be scored", int((~good).sum()), len(values))
    return values[good].mean() if bool(good.any()) else values.new_tensor(math.nan)


def _pictures(media: Media, max_frames: int | None) -> tuple[Media, list[int]]:
    """All frames as pictures, and how many each video gave."""
    videos = [item.reshape(item.shape[-4:]) for item in media]
    kept = [video[spaced(len(video), max_frames)] for video in videos]
    counts = [len(video) for video in kept]
    if len({video.shape[1:] for video in kept}) == 1:
        return torch.cat(kept), counts
    return [frame.unsqueeze(0) for video in kept for frame in video], counts


def _repeated(
    context: Context | None, counts: Sequence[int], max_frames: int | None = None
) -> Context | None:
    """The context with each sample's entry once per frame; what holds for all samples stays. Of a
    source that is a video each frame gets its own."""
    if context is None:
        return None
    changes: dict[str, Any] = {}
    for field in fields(context):
        value = getattr(context, field.name)
        if field.name == "source" and _is_video(value):
            changes["source"] = _own_frames(value, counts, max_frames)
        elif isinstance(value, Tensor):
            changes[field.name] = value.repeat_interleave(
                torch.tensor(counts, device=value.device), 0
            )
        elif value is not None and not isinstance(value, float | int):
            changes[field.name] = [
                entry for entry, count in zip(value, counts, strict=True) for _ in range(count)
            ]
    return replace(context, **changes)


def _is_video(source: Media | None) -> bool:
    items = [source] if source is None or isinstance(source, Tensor) else source
    return any(item is not None and item.ndim == 5 for item in items)


def _own_frames(source: Media, counts: Sequence[int], max_frames: int | None) -> Media:
    """Frames of sources that are videos, those that are scored of the samples. Raises ValueError
    for a source of another length than its sample's."""
    pictures, own = _pictures(source, max_frames)
    if own != list(counts):
        raise ValueError(
            f"videos of {list(counts)} frames can't be compared with sources of {own}; give "
            "sources of the same lengths"
        )
    return pictures
