"""Records and protocols that every part of t2x agrees on.

Dimension legend, kept here and nowhere else: B prompts, G rewrites per prompt, N = B*G, S seeds,
K rewards, F frames, T tokens, C channels, H, W pixels, h, w latents.

Media are float32 in [0, 1]: pictures ``(N, 3, H, W)``, videos ``(N, F, 3, H, W)``; pictures of
several sizes are a list of ``(1, 3, H, W)`` tensors. Whatever is stored or scored passes through
8 bits first (``t2x.media.quantize``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor

Media: TypeAlias = "Tensor | list[Tensor]"
Status = Literal["accepted", "unchanged", "reverted", "failed"]
Modality = Literal["image", "video"]

__all__ = [
    "Check",
    "Context",
    "Generator",
    "Media",
    "Modality",
    "RewardModel",
    "Rewrite",
    "Rewriter",
    "Status",
]


@dataclass(frozen=True)
class Check:
    """One test that a rewrite went through; ``reason`` is one line if it has not ``passed``, or
    says what it took to pass ("left out: ...").
    """

    name: str
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class Rewrite:
    """What became of one prompt.

    ``text`` is what the generator gets. ``status`` says how it came about: *accepted* (a new text
    that passed every check), *unchanged* (the rewriter had nothing to add), *reverted* (the
    proposal broke a check, ``text`` is the original again) or *failed* (the policy gave no usable
    answer, ``text`` is the original again; ``raw`` holds the completion).
    """

    original: str
    text: str
    negative: str = ""
    reasoning: str = ""
    status: Status = "accepted"
    checks: tuple[Check, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    model_id: str = ""
    raw: str = ""

    @property
    def changed(self) -> bool:
        """Whether the generator gets anything but the user's own words."""
        return self.text != self.original or bool(self.negative)


@dataclass(frozen=True)
class Context:
    """What a reward may need beside prompt and media: optional fields with one entry per sample.

    ``source``: pictures before an edit, (N, 3, H, W) in [0, 1] or a list of (1, 3, H, W); videos
    (N, F, 3, H, W) where videos are scored.
    ``mask``: (N, 1, H, W), 1 = keep. ``boxes``: (N, M, 4) as x0, y0, x1, y1 in [0, 1].
    ``phrases``: per sample what is in each of its boxes, or is to be looked for without.
    ``questions``: yes/no questions per sample; ``answers``: the right answer to each of them, "yes"
    where there are none. ``user``: ids for personal rewards. ``fps``: frames
    per second.
    """

    source: Media | None = None
    mask: Tensor | None = None
    boxes: Tensor | None = None
    phrases: Sequence[Sequence[str]] | None = None
    questions: Sequence[Sequence[str]] | None = None
    answers: Sequence[Sequence[str]] | None = None
    user: Sequence[str] | None = None
    fps: float | None = None


@runtime_checkable
class Rewriter(Protocol):
    """Policy that turns prompts into prompts."""

    model_id: str

    def rewrite(
        self, prompts: Sequence[str], *, num_generations: int = 1, seed: int = 0
    ) -> list[list[Rewrite]]:
        """Give ``num_generations`` rewrites for each of B prompts: B lists of G.

        The same prompt, seed and model give the same text, alone or in any batch.
        """
        ...


@runtime_checkable
class Generator(Protocol):
    """Frozen text-to-image or text-to-video model."""

    model_id: str
    modality: Modality

    def generate(
        self,
        prompts: Sequence[str],
        *,
        negative: Sequence[str] | None = None,
        seeds: Sequence[int],
        size: tuple[int, int] | None = None,
        num_frames: int | None = None,
    ) -> Media:
        """Draw one picture or video per prompt, each from noise of its own seed.

        ``size`` is (height, width) in pixels. A picture may differ between batch sizes by one
        grey level in 0.1 % of its pixels.
        """
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Scorer of (prompt, media) pairs; higher is always better."""

    name: str
    modality: Modality
    scale: str
    range: tuple[float, float]
    differentiable: bool

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,), float32. What cannot be measured is NaN.

        Gradients flow to ``media`` if it asks for them, and to no parameter; asking them of a
        reward that is not ``differentiable`` is an error. Media go to the reward's device by
        themselves, scores come back on that of the media.
        """
        ...
