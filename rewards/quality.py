"""Technical quality of a picture without a reference: sharp and free of noise; the prompt plays no
part.

    score = (1 - blur) exp(-noise / 0.1)

blur is the blur effect (Crete et al. 2007), noise the deviation of pixel noise by the median of the
finest details (Donoho & Johnstone 1994), both in ``t2x.functional.sharpness``. The product and its
0.1 (a noise of 10 % of the range costs a factor e) are this project's own. 0 is worst, 1 best;
clean renders of the emoji world lie about 0.8, a picture of pure noise about 0.1.

A classical measure, no model of taste: it knows nothing of composition, anatomy, artefacts of
generators, colour or exposure, and takes wanted softness (fog, bokeh) for a fault, dense fine
texture for noise, blocking and ringing for sharpness. It works on pixels as they are: enlarging a
picture lowers it, so compare pictures of one size only. NaN for a picture of one colour. The
learned measures of ``pyiqa`` are under a non-commercial licence, so none of them is used here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.functional.sharpness import blur_effect, luma, noise_level
from t2x.scoring.reward import EncoderReward, Features
from t2x.types import Context, Media

__all__ = ["NOISE", "load"]

NOISE = 0.1


class _SharpnessEncoder:
    """Features ``blur`` and ``noise``, (N,) each."""

    key = "sharpness"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str],
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        items = media if isinstance(media, list) else [media]
        greys = [luma(item) for item in items]
        return {
            "blur": torch.cat([blur_effect(grey) for grey in greys]),
            "noise": torch.cat([noise_level(grey) for grey in greys]),
        }


def load(*, device: Device | None = None, dtype: torch.dtype | None = None) -> EncoderReward:
    """Load the reward; it has no weights, so ``device`` and ``dtype`` say nothing: it computes
    where and as the media are.
    """

    def head(features: Mapping[str, Features]) -> Tensor:
        measured = features["pixels"]
        return (1 - measured["blur"]) * torch.exp(-measured["noise"] / NOISE)

    return EncoderReward(
        name="quality",
        encoders={"pixels": _SharpnessEncoder()},
        head=head,
        scale="(1 - blur) exp(-noise / 0.1)",
        range=(0.0, 1.0),
        parts=frozenset({"blur", "noise"}),
    )
