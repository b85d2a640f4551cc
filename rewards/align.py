"""AlignEvaluator: the key points that a prompt raises, one yes/no question each, averaged inside
six groups and then over the groups (PromptEnhancer, arXiv 2509.04545).

    reward = t2x.load_reward("align")                        # emoji-vlm, key points by text rules
    reward = t2x.load_reward("align", source="owner/model")  # the model says which points there are
    reward.details(prompts, pictures)[0]   # {"relations": {"layout": 0.93}, ...}

Scored against the user's own prompt. Differs from the paper: its evaluator, a fine-tuned model, was
not released, so any model is asked in plain words; a point is a probability, not a match; a prompt
that raises no key point is scored by VQAScore's question (under ``overall``). Not run on real
weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.answers import grouped_mean
from t2x.scoring.key_points import GROUPS, KEY_POINTS, OVERALL, Finder, VlmFinder
from t2x.scoring.pairs import check_pairs
from t2x.scoring.reward import EncoderReward, Features, encode_all
from t2x.scoring.vlm import Vlm, load_vlm
from t2x.scoring.vlm_encoder import Question, ask_all
from t2x.world.key_points import emoji_key_points, knows_emoji

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality

__all__ = ["AlignEvaluator", "PointEncoder", "load"]

_NAMES = (*KEY_POINTS, "overall")
_GROUP_OF = {**{n: p.group for n, p in KEY_POINTS.items()}, "overall": "overall"}


class PointEncoder:
    """Asks a :class:`Vlm` about the key points of each prompt. Feature: ``points`` (N, 25), the
    probability of each key point, NaN where it is not raised; the last is ``overall``.
    """

    def __init__(self, vlm: Vlm, find: Finder, *, max_prompt_tokens: int, batch_size: int) -> None:
        self.vlm, self.find = vlm, find
        self.max_prompt_tokens, self.batch_size = max_prompt_tokens, batch_size
        self.key = f"{vlm.key} {max_prompt_tokens} key points of {find!r}"

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str] = frozenset({"points"}),
        context: Context | None = None,
    ) -> dict[str, Tensor]:
        """Ask about N pictures; several questions of one point are averaged."""
        plain = self.vlm.fitted(prompts, self.max_prompt_tokens)
        raised = {p: self._raised(p) for p in dict.fromkeys(plain)}
        asked = [[q for _, q in raised[p]] for p in plain]
        answers = ask_all(self.vlm, asked, media, batch_size=self.batch_size).sigmoid()
        columns = [
            self._column([[n == name for n, _ in raised[p]] for p in plain], answers)
            for name in _NAMES
        ]
        return {"points": torch.stack(columns, dim=1)}

    def _raised(self, prompt: str) -> list[tuple[str, Question]]:
        found = list(self.find(prompt))
        if unknown := sorted({n for n, _ in found} - set(KEY_POINTS)):
            raise T2XError(f"unknown key points {unknown}; allowed: {', '.join(KEY_POINTS)}")
        return found or [("overall", Question(OVERALL.replace("{prompt}", prompt)))]

    @staticmethod
    def _column(hits: Sequence[Sequence[bool]], answers: Tensor) -> Tensor:
        """Mean of the answers (N, Q) that belong to one point; NaN where none does."""
        width = answers.shape[1]
        mask = torch.tensor(
            [[*h, *[False] * (width - len(h))] for h in hits], device=answers.device
        )
        return torch.where(mask, answers, torch.full_like(answers, torch.nan)).nanmean(-1)


class AlignEvaluator:
    """A ``RewardModel`` whose parts can be looked at: :meth:`details`."""

    name = "align"
    modality: Modality = "image"
    scale = "mean probability of key points, over groups, 0 to 1"
    range = (0.0, 1.0)

    def __init__(self, encoder: PointEncoder) -> None:
        self.encoder = encoder
        self.differentiable = encoder.vlm.differentiable
        groups = [*GROUPS, "overall"]
        numbers = torch.tensor([groups.index(_GROUP_OF[n]) for n in _NAMES])

        def head(features: Mapping[str, Features]) -> Tensor:
            points = features["points"]["points"]
            return grouped_mean(points, numbers.to(points.device))

        self._reward = EncoderReward(
            name=self.name,
            encoders={"points": encoder},
            head=head,
            scale=self.scale,
            range=self.range,
            parts=frozenset({"text", "points"}),
            differentiable=self.differentiable,
        )

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,) float32 in [0, 1]; NaN for blank prompts and broken pixels."""
        return self._reward.score(prompts, media, context=context)

    @torch.no_grad()
    def details(self, prompts: Sequence[str], media: Media) -> list[dict[str, dict[str, float]]]:
        """The probability of every key point that each prompt raises, by group and name.

        Empty for pairs that can't be scored.
        """
        check_pairs(prompts, media, modality=self.modality, name=self.name)
        features = encode_all([self._reward], prompts, media)
        scores = self._reward.score_features(prompts, media, features)
        points = features[self.encoder.key].get("points")
        found: list[dict[str, dict[str, float]]] = []
        for i in range(len(prompts)):
            row: dict[str, dict[str, float]] = {}
            if points is not None and not bool(scores[i].isnan()):
                for name, value in zip(_NAMES, points[i].tolist(), strict=True):
                    if value == value:  # not NaN
                        row.setdefault(_GROUP_OF[name], {})[name] = value
            found.append(row)
        return found


def load(
    source: str | Path | tuple[Any, Any] = "emoji-vlm",
    *,
    find: Finder | None = None,
    max_prompt_tokens: int = 256,
    batch_size: int = 32,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> AlignEvaluator:
    """Load the evaluator; ``source`` as in :func:`t2x.scoring.vlm.load_vlm`.

    ``find`` turns a prompt into key points with questions; by default text rules for emoji-vlm and
    for a folder whose ``t2x.json`` says ``{"key_points": "emoji"}``, and for any other the model
    itself (:class:`t2x.scoring.key_points.VlmFinder`).
    """
    vlm = load_vlm(source, device=device, dtype=dtype)
    if find is None:
        find = emoji_key_points if knows_emoji(source) else VlmFinder(vlm)
    encoder = PointEncoder(vlm, find, max_prompt_tokens=max_prompt_tokens, batch_size=batch_size)
    return AlignEvaluator(encoder)
