"""VQAScore: the probability that a vision-language model answers "yes" when asked whether the
picture shows the prompt (Lin et al. 2024, arXiv 2404.01291).

    reward = t2x.load_reward("vqa")                      # the embedded emoji-vlm
    reward = t2x.load_reward("vqa", source="owner/model")

Differs from the paper: a chat model in place of CLIP-FlanT5, and the first token of the answer
alone counts (``t2x.functional.answers``). Not run on real weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from t2x.functional.answers import answer_probability
from t2x.scoring.reward import EncoderReward, Features
from t2x.scoring.vlm_encoder import VlmEncoder, load_vlm

__all__ = ["QUESTION", "load"]

QUESTION = 'Does this figure show "{prompt}"? Please answer yes or no.'


def load(
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    *,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    question: str = QUESTION,
    yes: Sequence[str] = ("Yes",),
    no: Sequence[str] = (),
    max_prompt_tokens: int = 256,
    batch_size: int = 32,
) -> EncoderReward:
    """Load the reward over an embedded name, a local folder, a hub id or a ``(model, processor)``.

    ``yes``: spellings of the answer, each a single token, whose probabilities are added; with
    ``no`` the score is P(yes) / (P(yes) + P(no)) in place of a share of the whole vocabulary.

    Scores are in [0, 1], the same in every batch within 1e-5 in float32. NaN for blank prompts
    and for pixels that are not finite. Raises ``T2XError`` for a source that can't be loaded, a
    question without ``{prompt}``, or an answer of several tokens.
    """
    vlm = load_vlm(source, device=device, dtype=dtype)
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
    )
