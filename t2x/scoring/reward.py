"""A reward as data: the encoders that it needs, and a pure head over what they give.

Keeping the two apart lets :class:`t2x.scoring.ensemble.RewardEnsemble` run an encoder once for all
the rewards that share it. Encoders hold weights and preprocessing; heads are equations of
``t2x/functional/scores.py`` or small networks.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.scoring.pairs import check_pairs, device_of, finite, measurable, wants_gradient

if TYPE_CHECKING:
    from t2x.types import Context, Media, Modality

__all__ = ["Encoder", "EncoderReward", "Features", "encode_all"]

log = logging.getLogger(__name__)

Features: TypeAlias = Mapping[str, Tensor]


class Encoder(Protocol):
    """Weights and preprocessing shared by rewards. Two encoders of one ``key`` give the same
    features.
    """

    key: str

    def encode(
        self,
        prompts: Sequence[str],
        media: Media,
        *,
        parts: frozenset[str],
        context: Context | None = None,
    ) -> Features:
        """Named features with N rows each; only those in ``parts`` have to be computed.

        Differentiable in ``media``. Pixels are finite; what a blank prompt gives is thrown away.
        """
        ...


@dataclass(frozen=True)
class EncoderReward:
    """A ``RewardModel`` made of encoders and a head.

    ``encoders`` by role; ``head`` gets their features by the same roles and gives (N,); ``parts``
    are the features that it reads. Pairs with a blank prompt (if ``"text"`` or ``"text:..."`` is
    read) or with pixels that are not finite score NaN.
    """

    name: str
    encoders: Mapping[str, Encoder]
    head: Callable[[Mapping[str, Features]], Tensor]
    scale: str
    range: tuple[float, float] = (-math.inf, math.inf)
    parts: frozenset[str] = frozenset({"image", "text"})
    modality: Modality = "image"
    differentiable: bool = True

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,) float32, where the media are. Gradients reach ``media`` if it
        requires them, else no graph is kept.

        Raises ``T2XError``, before anything runs, if a gradient is asked of a reward without one.
        """
        check_pairs(prompts, media, modality=self.modality, name=self.name)
        if wants_gradient(media) and not self.differentiable:
            raise T2XError(
                f"{self.name} gives no gradient; detach the media or score under torch.no_grad(); "
                "of a vision-language model, load the processor with backend='torchvision'"
            )
        with torch.set_grad_enabled(wants_gradient(media)):
            features = encode_all([self], prompts, media, context=context)
            return self.score_features(prompts, media, features)

    def score_features(
        self, prompts: Sequence[str], media: Media, features: Mapping[str, Features]
    ) -> Tensor:
        """Score from features by encoder key, as :func:`encode_all` gives them: (N,) float32."""
        if len(prompts) == 0:
            return torch.zeros(0, device=device_of(media))
        values = self.head({role: features[e.key] for role, e in self.encoders.items()})
        values = values.to(device_of(media), torch.float32)
        if values.shape != (len(prompts),):
            raise ValueError(
                f"{self.name}: the head gave shape {tuple(values.shape)} for {len(prompts)} pairs"
            )
        reads_text = any(part.partition(":")[0] == "text" for part in self.parts)
        good = measurable(prompts, media, needs_text=reads_text).to(values.device)
        if not bool(good.all()):
            log.warning(
                "%s: %d of %d pairs can't be scored", self.name, int((~good).sum()), len(good)
            )
        return torch.where(good, values, torch.full_like(values, math.nan))


def encode_all(
    rewards: Iterable[EncoderReward],
    prompts: Sequence[str],
    media: Media,
    *,
    context: Context | None = None,
) -> dict[str, Features]:
    """Run every encoder of ``rewards`` once: features by encoder key."""
    encoders: dict[str, Encoder] = {}
    parts: dict[str, set[str]] = {}
    for reward in rewards:
        for encoder in reward.encoders.values():
            encoders.setdefault(encoder.key, encoder)
            parts.setdefault(encoder.key, set()).update(reward.parts)
    if len(prompts) == 0:
        return {key: {} for key in encoders}
    clean = finite(media)
    return {
        key: encoder.encode(prompts, clean, parts=frozenset(parts[key]), context=context)
        for key, encoder in encoders.items()
    }
