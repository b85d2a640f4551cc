"""Localized grounding: finds what a phrase names, and scores that part of the picture.

    load_reward("grounded")                                 # emoji-clip finds, clip scores
    load_reward("grounded", finder=ZeroShotFinder.from_pretrained("owner/owlv2"), reward="siglip")

Two finders: patches of a CLIP against the phrase, and zero-shot detectors of transformers (OWL-ViT,
OWLv2, Grounding DINO). RewardFlow (arXiv 2604.08536) grounds by RegionCLIP and by SAM2 masks from
text, and penalises what leaks outside of them. Differs from the paper: boxes instead of masks, any
finder and any reward inside. No box gets a gradient: pixels of a region do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from t2x.errors import T2XError
from t2x.failures import reading
from t2x.functional.grounding import leakage, map_box, phrase_map, phrase_similarity
from t2x.registry import load_reward
from t2x.scoring.clip_patches import ClipPatches
from t2x.scoring.pairs import check_pairs, device_of
from t2x.scoring.region import RegionReward
from t2x.types import Context

if TYPE_CHECKING:
    from t2x.types import Media, Modality, RewardModel

__all__ = [
    "ClipPatchFinder",
    "Finder",
    "Found",
    "GroundedReward",
    "ZeroShotFinder",
    "load",
    "named_things",
]


class Found(NamedTuple):
    """``boxes`` (N, 4) as x0, y0, x1, y1 in [0, 1], NaN where nothing was found; ``scores`` (N,),
    the finder's own, higher is surer.
    """

    boxes: Tensor
    scores: Tensor


class Finder(Protocol):
    """Finds one phrase in each of N pictures."""

    def find(self, pictures: Sequence[Tensor], phrases: Sequence[str]) -> Found:
        """Boxes of the phrases in pictures (3, H, W) in [0, 1]; without gradients."""
        ...


class ClipPatchFinder:
    """Compares the patches of a CLIP with the phrase, by the values of its last attention
    (MaskCLIP, Zhou et al. 2022, arXiv 2112.01071), and takes the box of the map.

    ``temperature``: of the softmax over patches, chosen on renders of the emoji world for
    emoji-clip; larger ones make wider boxes.
    """

    def __init__(self, source: Any = "emoji-clip", *, temperature: float = 0.5) -> None:
        self.patches = ClipPatches(source)
        self.temperature = temperature

    @torch.no_grad()
    def maps(self, pictures: Sequence[Tensor], phrases: Sequence[str]) -> Tensor:
        """Maps (N, h, w) of sum 1, a value for each patch."""
        return phrase_map(self._similarity(pictures, phrases), temperature=self.temperature)

    @torch.no_grad()
    def find(self, pictures: Sequence[Tensor], phrases: Sequence[str]) -> Found:
        """See :class:`Finder`; the score is the cosine of the best patch."""
        similarity = self._similarity(pictures, phrases)
        boxes = map_box(phrase_map(similarity, temperature=self.temperature))
        return Found(boxes, similarity.flatten(1).amax(1))

    def _similarity(self, pictures: Sequence[Tensor], phrases: Sequence[str]) -> Tensor:
        embedded, (height, width) = self.patches.embed(pictures)
        texts = self.patches.encoder.encode_text(phrases).to(embedded)
        return phrase_similarity(embedded, texts).view(-1, height, width)


class ZeroShotFinder:
    """A zero-shot detector of transformers with its processor; the best box of a phrase.

    ``threshold``: least score of a box. Not run on real weights.
    """

    def __init__(self, model: Any, processor: Any, *, threshold: float = 0.1) -> None:
        if not hasattr(processor, "post_process_grounded_object_detection"):
            raise T2XError(
                f"{type(processor).__name__} finds no phrases; give a model and processor of "
                "zero-shot object detection (OWLv2, Grounding DINO)"
            )
        self.model, self.processor, self.threshold = model.eval(), processor, threshold

    @staticmethod
    def from_pretrained(source: str, *, threshold: float = 0.1) -> ZeroShotFinder:
        """Load a folder or hub id. Raises T2XError for one that can't be loaded."""
        from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

        with reading(source, "the detector"):
            model = AutoModelForZeroShotObjectDetection.from_pretrained(source)
            processor = AutoProcessor.from_pretrained(source)
        return ZeroShotFinder(model.requires_grad_(False), processor, threshold=threshold)

    @torch.no_grad()
    def find(self, pictures: Sequence[Tensor], phrases: Sequence[str]) -> Found:
        """See :class:`Finder`; one picture at a time, as their sizes may differ."""
        pairs = zip(pictures, phrases, strict=True)
        rows = [self._one(picture, phrase) for picture, phrase in pairs]
        return Found(torch.stack([r[:4] for r in rows]), torch.stack([r[4] for r in rows]))

    def _one(self, picture: Tensor, phrase: str) -> Tensor:
        """x0, y0, x1, y1 and the score; NaN if nothing reaches the threshold."""
        height, width = picture.shape[-2:]
        text = f"{phrase.strip().lower()}."  # Grounding DINO ends each phrase so
        shown = picture.detach().reshape(3, height, width).clamp(0, 1).cpu()
        inputs = self.processor(
            text=[text], images=shown, do_rescale=False, return_tensors="pt"
        ).to(self.model.device)
        output = self.model(**inputs)
        (found,) = self.processor.post_process_grounded_object_detection(
            output, threshold=self.threshold, target_sizes=[(height, width)]
        )
        if not len(found["scores"]):
            return torch.full((5,), math.nan, device=picture.device)
        best = int(found["scores"].argmax())
        box = found["boxes"][best].float().cpu() / torch.tensor([width, height, width, height])
        score = found["scores"][best].float().cpu()
        return torch.cat([box.clamp(0, 1), score[None]]).to(picture.device)


def named_things(prompt: str) -> list[str]:
    """The things of a prompt with their attributes, as phrases: "a red cat"."""
    from t2x.guidance.primitives import read_prompt
    from t2x.guidance.regions import phrases_of

    return phrases_of(read_prompt(prompt))


class GroundedReward:
    """``reward`` of each phrase on the part of the picture where ``finder`` sees it, averaged, less
    ``weight`` times what leaks outside.

    Outside is measured on the source of the context, if there is one: how much changed there (root
    mean square, in [0, 1]). Without, by ``reward`` itself: what it gives the phrase for the picture
    with the part painted over by ``fill``, less what it gives a picture that is ``fill`` all over.
    Phrases are those of the context, a policy's say, which come with boxes where the words tell a
    place: nothing is looked for then, and a thing elsewhere leaks. Else, and of a sample for which
    the context has none, those of :func:`named_things`, or of ``phrases``, of its prompt. A prompt
    without any, and a picture in which none is found, scores NaN.
    """

    modality: Modality = "image"

    def __init__(
        self,
        reward: RewardModel,
        finder: Finder,
        *,
        phrases: Callable[[str], Sequence[str]] = named_things,
        weight: float = 0.5,
        fill: float = 0.6,
    ) -> None:
        if weight < 0:
            raise T2XError(f"the weight of leakage is {weight}; give 0 or more")
        self.reward, self.finder, self.phrases = reward, finder, phrases
        self.weight, self.fill = weight, fill
        self._region = RegionReward(reward)
        self.name = "grounded"
        self.scale = f"mean over things of {reward.name} ({reward.scale}) where each is"
        self.range = (-math.inf, reward.range[1])
        self.differentiable = reward.differentiable

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,) float32, where the media are. Gradients reach the pixels; boxes are
        constants.
        """
        n = check_pairs(prompts, media, name=self.name)
        asked = [self._asked(i, prompt, context) for i, prompt in enumerate(prompts)]
        pairs = [(i, region) for i, regions in enumerate(asked) for region in regions]
        missing = torch.full((n,), math.nan, device=device_of(media))
        shown = [item.reshape(1, *item.shape[-3:]) for item in media]
        pairs = [(i, r) for i, r in pairs if bool(shown[i].isfinite().all())]
        if not pairs:
            return missing
        rows, phrases = [i for i, _ in pairs], [r[0] for _, r in pairs]
        boxes = torch.stack([r[1] for _, r in pairs]).to(missing.device, torch.float32)
        if sought := [at for at, box in enumerate(boxes) if bool(box.isnan().any())]:
            pictures = [shown[rows[at]][0].detach() for at in sought]
            found = self.finder.find(pictures, [phrases[at] for at in sought])
            boxes[sought] = found.boxes.to(boxes)
        inside = self._region.score(
            phrases, [shown[i] for i in rows], context=Context(boxes=boxes.unsqueeze(1))
        )
        values = inside - self._leaks(phrases, rows, shown, boxes, context)
        owners = torch.tensor(rows, device=values.device)
        means = [values[owners == i].nanmean() for i in range(n)]  # of nothing: NaN
        return torch.stack(means)

    def _asked(self, row: int, prompt: str, context: Context | None) -> list[tuple[str, Tensor]]:
        """Phrases of a sample, each with its box (4,): NaN where it is to be found."""
        told = () if context is None or context.phrases is None else context.phrases[row]
        boxes = torch.full((len(told) or 1, 4), math.nan)
        if not told:
            return [(phrase, boxes[0]) for phrase in self.phrases(prompt)]
        if context is not None and context.boxes is not None:
            known = context.boxes[row][: len(told)].to(boxes)
            boxes[: len(known)] = known
        return list(zip(told, boxes, strict=True))

    def _leaks(
        self,
        phrases: Sequence[str],
        rows: Sequence[int],
        shown: Sequence[Tensor],
        boxes: Tensor,
        context: Context | None,
    ) -> Tensor:
        """What leaks, times ``weight``: one value a phrase."""
        if self.weight == 0:
            return boxes.new_zeros(len(rows))
        masks = [_inside(box, shown[i]) for i, box in zip(rows, boxes, strict=True)]
        if context is not None and context.source is not None:
            leaks = []
            for i in rows:  # a change is allowed where any thing of the picture is
                own = [m for m, row in zip(masks, rows, strict=True) if row == i]
                before = context.source[i].reshape(shown[i].shape).to(shown[i])
                leaks.append(leakage(shown[i] - before, torch.stack(own).amax(0)))
            return self.weight * torch.cat(leaks)
        painted = [
            shown[i] * (1 - mask) + self.fill * mask for i, mask in zip(rows, masks, strict=True)
        ]
        blank = [torch.full_like(p, self.fill).detach() for p in painted]
        outside = self.reward.score(phrases, painted) - self.reward.score(phrases, blank).detach()
        return self.weight * outside.clamp(min=0)


def _inside(box: Tensor, picture: Tensor) -> Tensor:
    """1 in the pixels of a box (4,) whose centres it holds, else 0: (1, 1, H, W)."""
    height, width = picture.shape[-2:]
    x = (torch.arange(width, device=picture.device) + 0.5) / width
    y = (torch.arange(height, device=picture.device) + 0.5) / height
    columns = ((x >= box[0]) & (x <= box[2])).to(picture)
    rows = ((y >= box[1]) & (y <= box[3])).to(picture)
    return (rows[:, None] * columns)[None, None]


def load(
    reward: str = "clip",
    *,
    finder: Finder | str = "emoji-clip",
    phrases: Callable[[str], Sequence[str]] = named_things,
    weight: float = 0.5,
    fill: float = 0.6,
    **options: Any,
) -> GroundedReward:
    """Load the reward ``reward``, to which ``options`` go, and put it where ``finder`` (a CLIP by
    name, or any object) sees things. Raises ``T2XError`` for a negative weight, and what loading
    raises.
    """
    found = ClipPatchFinder(finder) if isinstance(finder, str) else finder
    inner = load_reward(reward, **options)
    return GroundedReward(inner, found, phrases=phrases, weight=weight, fill=fill)
