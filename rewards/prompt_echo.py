"""PromptEcho: how likely a frozen vision-language model finds the prompt as the answer to a fixed
request about the picture (arXiv 2604.12652).

    reward = t2x.load_reward("promptecho")
    reward = t2x.load_reward("promptecho", source="owner/model", minus_prior=True)

One forward pass, no sampling, and no word of the prompt left out. A likelihood also pays for common
words: ``minus_prior`` subtracts the same prompt's log-probability beside a picture that shows
nothing. That picture has the mean colour of the model's image processor, so that all its pixels
are 0 after normalisation, and the size of the picture scored: every token keeps its place, and the
model sees the kind of input that it was trained on, which a request without any picture is not.

Differs from the paper: there is a prior; the request is one's own to choose. Not run on real
weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.answers import prompt_echo
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.vlm import load_vlm
from t2x.scoring.vlm_encoder import AnswerEncoder

__all__ = ["EMOJI_REQUEST", "REQUEST", "load"]

REQUEST = "Describe this image in detail."
EMOJI_REQUEST = "What is this a picture of?"  # which emoji-vlm answers as people say it
_REDUCTIONS = ("mean", "sum")


def load(
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    *,
    request: str | None = None,
    minus_prior: bool = False,
    reduction: str = "mean",
    end_token: bool = False,
    max_prompt_tokens: int = 256,
    batch_size: int = 8,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.vlm.load_vlm`.

    ``reduction``: "mean" over the prompt's tokens, which compares prompts of any length, or "sum".
    ``end_token`` counts the end of the answer as well, once, so that a prompt which leaves out half
    of the picture pays for it. Padding changes nothing: a batch equals its singles within 1e-5.
    NaN for blank prompts and for pixels that are not finite. Raises ``T2XError`` for an unknown
    reduction, and, when a gradient is asked of a model whose image processor passes none, before
    it runs.
    """
    if reduction not in _REDUCTIONS:
        raise T2XError(f"unknown reduction {reduction!r}; allowed: {', '.join(_REDUCTIONS)}")
    vlm = load_vlm(source, device=device, dtype=dtype)
    encoder = AnswerEncoder(
        vlm,
        request or (EMOJI_REQUEST if source == "emoji-vlm" else REQUEST),
        "{prompt}",
        end=end_token,
        prior=minus_prior,
        max_prompt_tokens=max_prompt_tokens,
        batch_size=batch_size,
    )

    def head(features: Mapping[str, Features]) -> Tensor:
        vlm = features["vlm"]
        return prompt_echo(vlm["log_probs"], vlm["counted"], vlm.get("prior"), reduction=reduction)

    over = "minus the same for an empty picture, " if minus_prior else ""
    return EncoderReward(
        name="promptecho",
        encoders={"vlm": encoder},
        head=head,
        scale=f"log P(prompt | picture), {over}{reduction} over tokens",
        range=(-math.inf, math.inf if minus_prior else 0.0),
        parts=frozenset({"text", "log_probs"}),
        differentiable=vlm.differentiable,
    )
