"""VLM-RM: a picture's way from a baseline to the prompt, by goal-baseline projection in the space
of a CLIP (Rocamonde et al. 2023, arXiv 2310.12921).

    load_reward("vlm-rm")                                    the embedded emoji-clip
    load_reward("vlm-rm", source="ViT-L-14:openai", baseline="a photo", alpha=0.5)

The baseline describes any picture of the kind at hand; what differs from it in directions that the
prompt does not speak of counts less, the more so the larger ``alpha``. With ``alpha`` 0 the reward
is the cosine. Shares its picture pass with CLIPScore on the same weights.

Differs from the paper's code: preprocessing is the weights' own, not always a squashed square, and
gradients reach the picture. A prompt whose embedding is the baseline's scores NaN. Not run on real
weights.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.scores import goal_baseline_score
from t2x.scoring.clip_encoder import load_clip
from t2x.scoring.reward import EncoderReward, Features

__all__ = ["load"]

log = logging.getLogger(__name__)


def load(
    source: str | Path | tuple[Any, Any] = "emoji-clip",
    *,
    baseline: str | Sequence[str] = "a picture",
    alpha: float = 0.5,
    name: str = "vlm-rm",
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.clip_encoder.load_clip`.

    ``baseline``: a text, or several of which the mean counts; ``alpha`` in [0, 1]. Raises
    ``T2XError`` for an alpha outside, a blank baseline or a source that can't be loaded.
    """
    texts = [baseline] if isinstance(baseline, str) else list(baseline)
    if not 0 <= alpha <= 1:
        raise T2XError(f"alpha must be in [0, 1], got {alpha}")
    if not texts or not all(t.strip() for t in texts):
        raise T2XError(f"the baseline must be one or more texts that are not blank, got {texts}")
    clip = load_clip(source, device=device, dtype=dtype)

    def head(features: Mapping[str, Features]) -> Tensor:
        image, goal = features["clip"]["image"], features["clip"]["text"]
        wide = torch.promote_types(goal.dtype, torch.float32)
        goal = F.normalize(goal.to(wide), dim=-1)
        base = F.normalize(clip.encode_text(texts).to(goal), dim=-1).mean(0)
        if alpha and (same := int((goal == base).all(-1).sum())):
            log.warning("%s: %d prompts equal the baseline %r", name, same, texts)
        return goal_baseline_score(image, goal, base, alpha=alpha)

    return EncoderReward(
        name=name,
        encoders={"clip": clip},
        head=head,
        scale=f"1 - half the squared distance to the goal, alpha {alpha:g}",
        range=(-1.0, 1.0),
    )
