"""VQAScore: the probability that a vision-language model answers "yes" when asked whether the
picture shows the prompt (Lin et al. 2024, arXiv 2404.01291).

    reward = t2x.load_reward("vqa")                      # the embedded emoji-vlm
    reward = t2x.load_reward("vqa", source="owner/model")

Two numbers go by this name, so the scale is named: ``first-token``, P("Yes") as the first token of
the answer (what later toolkits give for chat models), and ``clip-flant5``, exp(-mean cross-entropy
of "Yes" and the end token), the paper's own for encoder-decoders: about the square root.

Differs from the paper: any model of transformers in place of CLIP-FlanT5, whose checkpoints are of
no class there; pictures are prepared by the model's own processor, not padded with the mean colour.
Not run on real weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.answers import answer_likelihood, answer_probability
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.vlm import Vlm, load_vlm
from t2x.scoring.vlm_encoder import AnswerEncoder, VlmEncoder

__all__ = ["QUESTION", "SCALES", "load"]

QUESTION = 'Does this figure show "{prompt}"? Please answer yes or no.'
SCALES = ("first-token", "clip-flant5")


def load(
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    *,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
    question: str = QUESTION,
    scale: str = "first-token",
    yes: Sequence[str] = ("Yes",),
    no: Sequence[str] = (),
    max_prompt_tokens: int = 256,
    batch_size: int = 32,
) -> EncoderReward:
    """Load the reward over an embedded name, a local folder, a hub id or a ``(model, processor)``.

    ``yes``: spellings of the answer, each a single token, whose probabilities are added; with
    ``no`` the score is P(yes) / (P(yes) + P(no)) in place of a share of the whole vocabulary. With
    ``scale="clip-flant5"`` the answer is the one spelling in ``yes``, of any length.

    Scores are in [0, 1], the same in every batch within 1e-5 in float32. NaN for blank prompts
    and for pixels that are not finite. Raises ``T2XError`` for a source that can't be loaded, an
    unknown scale, a question without ``{prompt}``, an answer of several tokens, and, when a
    gradient is asked of a model whose image processor passes none, before it runs.
    """
    if scale not in SCALES:
        raise T2XError(f"unknown scale {scale!r}; allowed: {', '.join(SCALES)}")
    vlm = load_vlm(source, device=device, dtype=dtype)
    if scale == "clip-flant5":
        return _whole_answer(vlm, question, yes, no, max_prompt_tokens, batch_size)
    encoder = VlmEncoder(vlm, question, max_prompt_tokens=max_prompt_tokens, batch_size=batch_size)
    answer, against = [vlm.token(w) for w in yes], [vlm.token(w) for w in no]

    def head(features: Mapping[str, Features]) -> Tensor:
        return answer_probability(features["vlm"]["logits"], answer, against)

    return EncoderReward(
        name="vqa",
        encoders={"vlm": encoder},
        head=head,
        scale=f"P({yes[0]!r}) as the first token of the answer, 0 to 1",
        range=(0.0, 1.0),
        parts=frozenset({"text", "logits"}),
        differentiable=vlm.differentiable,
    )


def _whole_answer(
    vlm: Vlm, question: str, yes: Sequence[str], no: Sequence[str], limit: int, batch_size: int
) -> EncoderReward:
    if len(yes) != 1 or no:
        raise T2XError(
            f"the scale clip-flant5 is of one answer, got yes={tuple(yes)}, no={tuple(no)}; give "
            "one spelling in yes and none in no"
        )
    encoder = AnswerEncoder(
        vlm, question, yes[0], end=True, max_prompt_tokens=limit, batch_size=batch_size
    )

    def head(features: Mapping[str, Features]) -> Tensor:
        vlm = features["vlm"]
        return answer_likelihood(vlm["log_probs"], vlm["counted"])

    return EncoderReward(
        name="vqa",
        encoders={"vlm": encoder},
        head=head,
        scale=f"clip-flant5: geometric mean of P({yes[0]!r}) and P(end), 0 to 1",
        range=(0.0, 1.0),
        parts=frozenset({"text", "log_probs"}),
        differentiable=vlm.differentiable,
    )
