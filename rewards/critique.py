"""Critique before score: a vision-language model writes what is good and bad about a picture, one
dimension at a time, and then a score (RationalRewards, arXiv 2604.11626).

    reward = t2x.load_reward("critique", source="owner/model")
    reward.score(prompts, pictures)
    reward.details(prompts, pictures)[0]   # the critiques themselves
    reward.answers, reward.unread          # how many were asked for, how many could not be read

Greedy decoding: the same text at every call. A score from 1 to 4 becomes (score - 1) / 3, "N/A"
leaves its dimension out, and an answer without a readable score makes the pair NaN and is counted.
emoji-vlm writes its verdict first and then the fault it sees ("no, there is no tie"): its one
dimension is 1 for a yes and 0 for a no. Not run on real weights.

Differs from the paper: an unreadable answer is missing, not 0; one request per dimension; any model
in place of the one distilled for it.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.scoring.pairs import check_pairs, device_of, finite, measurable, wants_gradient
from t2x.scoring.vlm import Vlm, load_vlm

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality

__all__ = [
    "DIMENSIONS",
    "EMOJI_DIMENSIONS",
    "Critique",
    "CritiqueReward",
    "Dimension",
    "load",
    "read_score",
    "read_verdict",
]

log = logging.getLogger(__name__)
_LOWEST, _HIGHEST = 1, 4
_SCORE = re.compile(
    r"\bscore(?:\s*\([^)\n]*\))?[\s:*_=]*(?:is|of)?[\s:*_=]*(n/?a\b|[-+]?\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_REQUEST = (
    'This picture was made for the request "{prompt}". Judge one thing only: %s. Write one or two '
    'sentences about what is good and bad, then on a line of its own "Score: " and a number from 1 '
    '(bad) to 4 (very good), or "Score: N/A" if that does not apply to this request.'
)


def read_score(text: str) -> float | None:
    """The last score that is written, from 1 to 4, as 0 to 1; None for N/A, NaN if there is none or
    it is out of range.
    """
    found = _SCORE.findall(text)
    if not found:
        return math.nan
    if found[-1][0] in "nN":
        return None
    value = float(found[-1])
    if not _LOWEST <= value <= _HIGHEST:
        return math.nan
    return (value - _LOWEST) / (_HIGHEST - _LOWEST)


def read_verdict(text: str) -> float | None:
    """1 for an answer that begins with yes, 0 for one that begins with no, else NaN."""
    word = re.match(r"\W*(yes|no)\b", text, re.IGNORECASE)
    return math.nan if word is None else float(word.group(1).casefold() == "yes")


@dataclass(frozen=True)
class Dimension:
    """A request for a critique, which holds ``{prompt}``, and how the score is read from it: 0 to
    1, None where the dimension does not apply, NaN where it can't be read.
    """

    request: str
    read: Callable[[str], float | None] = read_score


@dataclass(frozen=True)
class Critique:
    """What was written about one dimension, and the score read from it."""

    dimension: str
    text: str
    score: float | None


DIMENSIONS: dict[str, Dimension] = {
    "faithfulness": Dimension(_REQUEST % "whether everything that was asked for is shown"),
    "quality": Dimension(_REQUEST % "whether it is sharp, well composed and of natural build"),
    "text": Dimension(_REQUEST % "whether the writing that was asked for is spelled right"),
}
EMOJI_DIMENSIONS: dict[str, Dimension] = {
    "faithfulness": Dimension(
        'Does this figure show "{prompt}"? Please answer yes or no.', read_verdict
    )
}


class CritiqueReward:
    """A ``RewardModel`` that writes; ``answers`` and ``unread`` count over its life."""

    name = "critique"
    modality: Modality = "image"
    scale = "mean score over the dimensions that apply, 0 to 1"
    range = (0.0, 1.0)
    differentiable = False

    def __init__(
        self,
        vlm: Vlm,
        dimensions: Mapping[str, Dimension],
        *,
        max_new_tokens: int = 160,
        max_prompt_tokens: int = 256,
        batch_size: int = 8,
    ) -> None:
        for name, dimension in dimensions.items():
            if dimension.request.count("{prompt}") != 1:
                raise T2XError(f"the request of {name!r} must hold {{prompt}} once")
        if not dimensions:
            raise T2XError("give at least one dimension")
        self.vlm = vlm
        self.dimensions = dict(dimensions)
        self.max_new_tokens = max_new_tokens
        self.max_prompt_tokens = max_prompt_tokens
        self.batch_size = batch_size
        self.answers = 0
        self.unread = 0

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,) float32 in [0, 1].

        NaN for blank prompts, for pixels that are not finite, where an answer can't be read and
        where no dimension applies. Raises ``T2XError`` if a gradient is asked for.
        """
        check_pairs(prompts, media, modality=self.modality, name=self.name)
        if wants_gradient(media):
            raise T2XError(
                f"{self.name} reads its score from a text and gives no gradient; score under "
                "torch.no_grad(), or guide by another reward, vqa for instance"
            )
        means = [_mean(row) for row in self.details(prompts, media)]
        return torch.tensor(means, device=device_of(media))

    def details(self, prompts: Sequence[str], media: Media) -> list[list[Critique]]:
        """The critiques of each pair, one per dimension; none for pairs that can't be scored."""
        check_pairs(prompts, media, modality=self.modality, name=self.name)
        good = measurable(prompts, media).tolist()
        plain = self.vlm.fitted(prompts, self.max_prompt_tokens)
        clean = finite(media)
        jobs = [(i, name) for i, ok in enumerate(good) if ok for name in self.dimensions]
        rows: list[list[Critique]] = [[] for _ in prompts]
        for start in range(0, len(jobs), self.batch_size):
            part = jobs[start : start + self.batch_size]
            texts = [
                self.vlm.chat(self.dimensions[name].request.replace("{prompt}", plain[i]))
                for i, name in part
            ]
            pictures = [clean[i].detach().reshape(clean[i].shape[-3:]) for i, _ in part]
            written = self.vlm.write(texts, pictures, max_new_tokens=self.max_new_tokens)
            for (i, name), text in zip(part, written, strict=True):
                rows[i].append(Critique(name, text, self.dimensions[name].read(text)))
        self._count([c for row in rows for c in row])
        return rows

    def _count(self, critiques: Sequence[Critique]) -> None:
        unread = sum(c.score is not None and math.isnan(c.score) for c in critiques)
        self.answers += len(critiques)
        self.unread += unread
        if unread:
            log.warning(
                "%s: no score could be read from %d of %d critiques",
                self.name,
                unread,
                len(critiques),
            )


def _mean(critiques: Sequence[Critique]) -> float:
    """Mean of the scores that apply; NaN if one can't be read or none applies."""
    scores = [c.score for c in critiques if c.score is not None]
    return sum(scores) / len(scores) if scores else math.nan


def load(
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    *,
    dimensions: Mapping[str, Dimension] | None = None,
    max_new_tokens: int = 160,
    max_prompt_tokens: int = 256,
    batch_size: int = 8,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> CritiqueReward:
    """Load the reward; ``source`` as in :func:`t2x.scoring.vlm.load_vlm`.

    ``dimensions``: by default ``EMOJI_DIMENSIONS`` for emoji-vlm, else ``DIMENSIONS``. An answer of
    ``max_new_tokens`` that has not come to its score is unreadable.
    """
    if dimensions is None:
        dimensions = EMOJI_DIMENSIONS if source == "emoji-vlm" else DIMENSIONS
    return CritiqueReward(
        load_vlm(source, device=device, dtype=dtype),
        dimensions,
        max_new_tokens=max_new_tokens,
        max_prompt_tokens=max_prompt_tokens,
        batch_size=batch_size,
    )
