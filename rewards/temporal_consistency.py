"""Temporal consistency of a video: mean cosine of the CLIP embeddings of neighbouring frames; the
prompt plays no part.

    load_reward("temporal-consistency")                                 the embedded emoji-clip
    load_reward("temporal-consistency", source="hf-hub:owner/model")    any open_clip checkpoint

1 means that CLIP sees the same picture in every frame, so a frozen video is perfect: read it beside
``motion``. Blind to what CLIP is blind to: flicker of fine texture, small shifts, counts. NaN for a
single frame. The paper's (VBench, arXiv 2311.17982) also compares each frame with the first, which
punishes slow change as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.functional.motion import neighbour_cosine
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.frames import FrameEncoder, per_video
from t2x.scoring.reward import EncoderReward, Features

__all__ = ["load"]


def load(
    source: str | Path | tuple[Any, Any] = "emoji-clip",
    *,
    max_frames: int | None = None,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.clip_encoder.load_clip`.

    ``max_frames``: so many evenly spaced frames are compared, all if None; fewer means larger steps
    and lower scores. Raises ``T2XError`` for a source that can't be loaded.
    """
    clip = load_clip(source, device=device, dtype=dtype)

    def head(features: Mapping[str, Features]) -> Tensor:
        return per_video(features, neighbour_cosine, features["clip"]["image"])

    return EncoderReward(
        name="temporal-consistency",
        encoders={"clip": FrameEncoder(clip, max_frames)},
        head=head,
        scale="mean cosine of neighbouring frames",
        range=(-1.0, 1.0),
        parts=frozenset({"image"}),
        modality="video",
    )
