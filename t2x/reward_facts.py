"""What each named reward is, in one table: for ``t2x rewards`` and whoever must choose without
loading anything.

A new reward is one line here beside its line in ``t2x/registry.py``; tests compare the table with
the registry and, where weights are embedded, with what the loaded reward says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FACTS", "Facts"]


@dataclass(frozen=True)
class Facts:
    """``range`` is that of the default scale, infinite where it has no bound; ``licence`` and
    ``download`` are those of what loads without further arguments, "embedded" if it is inside the
    package. ``real`` names the published checkpoint that the same file loads, with its licence
    and size. Higher is better for all: distances are negated.
    """

    measures: str
    scale: str
    range: tuple[float, float]
    differentiable: bool = True
    modality: str = "image"
    licence: str = "Apache-2.0"
    download: str = "embedded"
    real: str = ""
    extra: str = ""


FACTS = {
    "aesthetic": Facts(
        "look of the picture alone, as LAION's raters would (affine head on CLIP)",
        "rating",
        (1.0, 10.0),
        real="sac+logos+ava1 v2 (Apache-2.0, 4 MB) on openai ViT-L/14 (MIT, 0.9 GB)",
    ),
    "clip": Facts(
        "fit of picture and prompt (CLIPScore)",
        "cos; also clipscore (2.5 max(cos, 0)), x100, logit",
        (-1.0, 1.0),
        real="any open_clip checkpoint; openai ViT-L/14 (MIT, 0.9 GB)",
    ),
    "hps": Facts(
        "which picture of one prompt people prefer (HPS, PickScore)",
        "cos; also x100, logit",
        (-1.0, 1.0),
        real="xswu/HPSv2 (Apache-2.0, 2 GB), yuvalkirstain/PickScore_v1 (MIT, 4 GB)",
    ),
    "motion": Facts(
        "how much moves between frames once the camera's shift is taken out",
        "mean absolute difference",
        (0.0, 1.0),
        modality="video",
        download="no weights",
    ),
    "ocr": Facts(
        "whether the text in the prompt's quotes can be read in the picture",
        "share of characters read",
        (0.0, 1.0),
        differentiable=False,
        download="27 MB, in the extra's wheel",
        extra="ocr",
    ),
    "quality": Facts(
        "sharpness without noise (classical, no model)",
        "(1 - blur) exp(-noise / 0.1)",
        (0.0, 1.0),
        download="no weights",
    ),
    "temporal-consistency": Facts(
        "how alike neighbouring frames are to CLIP",
        "mean cosine",
        (-1.0, 1.0),
        modality="video",
        real="any open_clip checkpoint; openai ViT-L/14 (MIT, 0.9 GB)",
    ),
    "vqa": Facts(
        "P(yes) to: does this figure show the prompt? (VQAScore)",
        "probability",
        (0.0, 1.0),
        real="any AutoModelForImageTextToText",
    ),
}
