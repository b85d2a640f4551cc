"""Yes/no reward: a vision-language model's odds of "yes" against "no" to a question of one's own
(ZYN, Gallego 2023, arXiv 2308.06385).

    reward = t2x.load_reward("yes-no", questions=["Is {prompt} easy to make out?", "Is it sharp?"])
    reward.score(prompts, pictures, context=Context(questions=[["Is the cat red?"], ...]))

Questions of ``Context.questions`` take the place of the template's for samples that have some.
Several questions are averaged, several spellings added. Differs from the paper: about pictures, not
texts, with a vision-language model. Not run on real weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.vlm import load_vlm
from t2x.scoring.vlm_encoder import NO, YES, Question, QuestionEncoder

__all__ = ["QUESTION", "SCALES", "load"]

QUESTION = 'Does this figure show "{prompt}"? Please answer yes or no.'
SCALES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[float, float]]] = {
    "probability": (lambda odds: odds.sigmoid(), (0.0, 1.0)),
    "zyn": (lambda odds: (odds.sigmoid() - 0.5) * 10, (-5.0, 5.0)),  # what the paper gives to PPO
    "logit": (lambda odds: odds, (-math.inf, math.inf)),
}


def load(
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    *,
    questions: Sequence[str] = (QUESTION,),
    yes: Sequence[str] = YES,
    no: Sequence[str] = NO,
    scale: str = "probability",
    max_prompt_tokens: int = 256,
    batch_size: int = 32,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> EncoderReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.vlm.load_vlm`, ``questions`` may hold
    ``{prompt}``, ``scale`` a key of ``SCALES``.

    Spellings of several tokens are left out. Scores are NaN for blank prompts and for pixels that
    are not finite. Raises ``T2XError`` for an unknown scale, no questions, a spelling that counts
    for both answers, and, when a gradient is asked of a model whose image processor passes none,
    before it runs.
    """
    if scale not in SCALES:
        raise T2XError(f"unknown scale {scale!r}; allowed: {', '.join(SCALES)}")
    if isinstance(questions, str) or not questions:
        raise T2XError(f"give a list of at least one question, got {questions!r}")
    vlm = load_vlm(source, device=device, dtype=dtype)
    if both := set(vlm.spellings(yes)) & set(vlm.spellings(no)):
        raise T2XError(f"{vlm.key} writes a yes and a no with the same token {both}")
    to_scale, limits = SCALES[scale]

    def ask(prompt: str, own: Sequence[str]) -> list[Question]:
        texts = own or [q.replace("{prompt}", prompt) for q in questions]
        return [Question(t, tuple(yes), tuple(no)) for t in texts]

    def head(features: Mapping[str, Features]) -> Tensor:
        return to_scale(features["vlm"]["log_odds"]).nanmean(-1)

    encoder = QuestionEncoder(
        vlm,
        ask,
        key=(tuple(questions), tuple(yes), tuple(no)),
        max_prompt_tokens=max_prompt_tokens,
        batch_size=batch_size,
    )
    return EncoderReward(
        name="yes-no",
        encoders={"vlm": encoder},
        head=head,
        scale=f"{scale} of yes against no",
        range=limits,
        parts=frozenset({"text", "log_odds"}),
        differentiable=vlm.differentiable,
    )
