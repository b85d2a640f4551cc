"""Motion of a video, or dynamic degree, without a learned flow: how much neighbouring frames differ
once the move of the whole picture is taken out; the prompt plays no part.

Definition: frames become brightness; for each pair of neighbours the whole-pixel shift (at most
``reach`` of the shorter side) that fits the outer quarter of the picture best is taken as camera
motion; the mean absolute difference over what both frames then share, averaged over pairs, is the
score, 0 for a frozen video and at most 1.

It is per pair of frames, so it falls with the frame rate. It counts flicker, noise, cuts and new
objects as motion, and contrast as speed: a black dot on white moves more than a grey one. It takes
zoom, rotation, parts of pixels and pans beyond ``reach`` for motion of objects. Blind to motion of
one colour, to a pan over a plain border and to what moves the border with it. Dynamic degree as in
VBench (arXiv 2311.17982) is the optical flow of a trained network and counts camera motion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.motion import aligned_difference
from t2x.functional.sharpness import luma
from t2x.scoring.reward import EncoderReward, Features
from t2x.types import Context, Media

__all__ = ["load"]


class _MotionEncoder:
    """Feature ``motion`` (N,): the mean difference of neighbouring frames after alignment."""

    def __init__(self, reach: float) -> None:
        self.reach = reach
        self.key = f"motion {reach}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str],
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        return {"motion": torch.stack([self._video(v.reshape(v.shape[-4:])) for v in media])}

    def _video(self, video: Tensor) -> Tensor:
        if len(video) < 2:
            return video.new_full((), torch.nan)
        grey = luma(video)
        reach = max(1, int(self.reach * min(grey.shape[-2:])))
        return aligned_difference(grey[:-1], grey[1:], reach=reach).mean()


def load(
    *, reach: float = 0.1, device: Device | None = None, dtype: torch.dtype | None = None
) -> EncoderReward:
    """Load the reward. ``reach``: the largest shift between two frames that counts as camera
    motion, as a share of the shorter side, 0 to 0.5.

    It has no weights, so ``device`` and ``dtype`` say nothing: it computes where and as the media
    are. NaN for a single frame. Differentiable while the shift does not change. Raises
    ``T2XError`` for a reach outside.
    """
    if not 0 <= reach <= 0.5:
        raise T2XError(f"reach must be from 0 to 0.5 of the shorter side, got {reach}")

    def head(features: Mapping[str, Features]) -> Tensor:
        return features["frames"]["motion"]

    return EncoderReward(
        name="motion",
        encoders={"frames": _MotionEncoder(reach)},
        head=head,
        scale="mean absolute difference of neighbouring frames after alignment",
        range=(0.0, 1.0),
        parts=frozenset({"motion"}),
        modality="video",
    )
