"""Whether the text that the prompt puts in quotes stands in the picture, read by an OCR engine.

    load_reward("ocr")                     RapidOCR: pip install 't2x[ocr]', models in its wheel
    load_reward("ocr", engine=read)        any function from a PIL picture to the texts in it

For each quoted text, in straight, curly or angle quotes (``t2x.prompts.protect`` finds them), the
ratio of ``t2x.functional.text``: 1 if it stands in what was read, less for every wrong character;
the mean over quoted texts is the score. Case and white space do not count. Nothing else does: text
that nobody asked for, its place, font and size are not looked at.

Differs from Flow-GRPO's: all quotes count instead of the first pair, the best piece of what was
read is compared instead of the whole, and a prompt without a quote, or a picture on which the
engine fails, is NaN and counted instead of an error or 0.

Not differentiable: the engine works on bytes, and asking for a gradient is an error. English and
Chinese by RapidOCR's own models.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from t2x.devices import Device
from t2x.errors import T2XError
from t2x.functional.text import contained_ratio
from t2x.media import to_pil
from t2x.prompts.protect import protect
from t2x.scoring.pairs import check_pairs, device_of, wants_gradient

if TYPE_CHECKING:
    from PIL.Image import Image

    from t2x.types import Context, Media, Modality

__all__ = ["OcrReward", "load", "quoted_texts"]

log = logging.getLogger(__name__)
_EMPTY = re.compile(r'(?<!\S)""(?!\S)')


def quoted_texts(prompt: str) -> list[str]:
    """What a prompt puts in quotes, in order, without the quotes; inch marks and apostrophes are
    none."""
    filled = _EMPTY.sub(" ", prompt)  # or its second mark would open a quote
    texts = [span.text[1:-1] for span in protect(filled).spans if span.kind == "quote"]
    return [text for text in texts if text.strip()]


class OcrReward:
    """A ``RewardModel`` around ``engine``, from a PIL picture to the texts read in it, in order.

    ``unread`` counts the pictures on which the engine has failed so far.
    """

    name = "ocr"
    modality: Modality = "image"
    scale = "share of the quoted text that was read, 0 to 1"
    range = (0.0, 1.0)
    differentiable = False

    def __init__(self, engine: Callable[[Image], Sequence[str]]) -> None:
        self.engine = engine
        self.unread = 0

    def score(
        self, prompts: Sequence[str], media: Media, *, context: Context | None = None
    ) -> Tensor:
        """Score N pairs: (N,) float32; NaN without a quote, for pixels that are not finite and
        where the engine failed.

        Raises ``T2XError`` if a gradient is asked for.
        """
        check_pairs(prompts, media, modality=self.modality, name=self.name)
        if wants_gradient(media):
            raise T2XError(
                "ocr has no gradient, it reads bytes; detach the media, or guide by another reward"
            )
        targets = [quoted_texts(prompt) for prompt in prompts]
        if silent := sum(not texts for texts in targets):
            log.warning("ocr: %d of %d prompts have no text in quotes", silent, len(prompts))
        values = [
            self._one(texts, item.reshape(1, *item.shape[-3:]))
            for texts, item in zip(targets, media, strict=True)
        ]
        return torch.tensor(values, dtype=torch.float32, device=device_of(media))

    def _one(self, targets: Sequence[str], picture: Tensor) -> float:
        if not targets or not bool(torch.isfinite(picture).all()):
            return math.nan
        try:
            text = "\n".join(self.engine(to_pil(picture)[0]))
        except Exception as error:  # whatever an engine raises is a picture not read, not a score
            self.unread += 1
            log.warning("ocr: a picture was not read (%d so far): %r", self.unread, error)
            return math.nan
        return sum(contained_ratio(target, text) for target in targets) / len(targets)


def load(
    *,
    engine: Callable[[Image], Sequence[str]] | None = None,
    device: Device | None = None,
    dtype: torch.dtype | None = None,
) -> OcrReward:
    """Load the reward over ``engine``, or over RapidOCR, which computes on the CPU.

    Engines bring their own weights, so ``device`` and ``dtype`` say nothing. Raises
    ``MissingDependencyError`` if RapidOCR is asked for and not installed.
    """
    return OcrReward(_rapidocr() if engine is None else engine)


def _rapidocr() -> Callable[[Image], Sequence[str]]:
    import numpy as np
    from rapidocr import RapidOCR

    ocr = RapidOCR(params={"Global.log_level": "error"})

    def read(picture: Image) -> Sequence[str]:
        pixels = np.ascontiguousarray(np.asarray(picture)[:, :, ::-1])  # the engine takes BGR
        return tuple(ocr(pixels).txts or ())

    return read
