"""BLIPs with the weights of the goldens and what a reward makes of pictures. Shared by the parity
tests of reduced and of full size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from t2x.scoring.blip_encoder import BlipEncoder
from t2x.scoring.reward import EncoderReward

from . import blip_cases as cases

BOUND = 1e-3
# What the goldens say of a picture and a prompt, by our scales.
KINDS: dict[str, Callable[[dict[str, Any]], float]] = {
    "imagereward": lambda golden: golden["score"],
    "logit": lambda golden: golden["logits"][1] - golden["logits"][0],
    "itc": lambda golden: golden["itc"],
}


def write_checkpoint(golden: dict[str, Any], path: Path) -> None:
    """Write the official model's tensors in its authors' layout, which differs by suffix."""
    weights = cases.tensors(cases.unfold(golden["tensors"]))
    assert cases.checksum(weights) == pytest.approx(golden["checksum"], rel=1e-9)
    state = {n: torch.from_numpy(w) for n, w in weights.items()}
    torch.save(state if path.suffix == ".pt" else {"model": state}, path)


def head_scores(reward: EncoderReward, prompt: str, media: Sequence[torch.Tensor]) -> torch.Tensor:
    """What the head gives; the reward itself says NaN of the empty prompt."""
    encoder = reward.encoders["blip"]
    found = encoder.encode([cases.PROMPTS[prompt]] * len(media), list(media), parts=reward.parts)
    return reward.head({"blip": found})


def with_encoder(reward: EncoderReward, change: Callable[[BlipEncoder], None]) -> EncoderReward:
    """The reward with a changed copy of its encoder."""
    encoder: Any = copy(reward.encoders["blip"])
    change(encoder)
    return replace(reward, encoders={"blip": encoder})


def preparing(**changes: Any) -> Callable[[BlipEncoder], None]:
    """A change: other settings of the preprocessing."""

    def change(encoder: BlipEncoder) -> None:
        encoder.preprocess = replace(encoder.preprocess, **changes)

    return change


def tokens(number: int) -> Callable[[BlipEncoder], None]:
    """A change: another limit of the prompt's length."""

    def change(encoder: BlipEncoder) -> None:
        encoder.max_tokens = number

    return change
