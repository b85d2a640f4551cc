"""What each named reward is, in one table: for ``t2x rewards`` and whoever must choose without
loading anything.

A new reward is one line here beside its line in ``t2x/registry.py``; tests compare the table with
the registry and, where weights are embedded, with what the loaded reward says of itself.
"""

from __future__ import annotations

import math
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
    "align": Facts(
        "key points that the prompt raises, one question each (PromptEnhancer's AlignEvaluator)",
        "probability, mean of groups",
        (0.0, 1.0),
        real="any AutoModelForImageTextToText",
    ),
    "blip-itm": Facts(
        "match of picture and prompt, read together (BLIP)",
        "logit; also itm (probability), itc (cosine)",
        (-math.inf, math.inf),
        licence="BSD-3-Clause",
        download="0.9 GB",
    ),
    "clip": Facts(
        "fit of picture and prompt (CLIPScore)",
        "cos; also clipscore (2.5 max(cos, 0)), x100, logit",
        (-1.0, 1.0),
        real="any open_clip checkpoint; openai ViT-L/14 (MIT, 0.9 GB)",
    ),
    "critique": Facts(
        "a written critique per dimension, then its score (RationalRewards)",
        "mean of scores, 0 to 1",
        (0.0, 1.0),
        differentiable=False,
        real="any AutoModelForImageTextToText",
    ),
    "dino": Facts(
        "likeness to the source picture (DINO, DINOv2)",
        "cosine",
        (-1.0, 1.0),
        download="0.35 GB",
    ),
    "grounded": Facts(
        "any reward of each thing where it is found, less what leaks outside (RewardFlow)",
        "that of the reward, clip by default",
        (-math.inf, 1.0),
        real="any CLIP, or OWLv2 and Grounding DINO to find; as the reward inside",
    ),
    "hps": Facts(
        "which picture of one prompt people prefer (HPS, PickScore)",
        "cos; also x100, logit",
        (-1.0, 1.0),
        real="xswu/HPSv2 (Apache-2.0, 2 GB), yuvalkirstain/PickScore_v1 (MIT, 4 GB)",
    ),
    "hpsv2": Facts(
        "which picture of one prompt people prefer, v2.0",
        "cos; also x100, logit",
        (-1.0, 1.0),
        download="2 GB",
    ),
    "hpsv2.1": Facts(
        "the same, v2.1; not comparable with v2.0",
        "cos; also x100, logit",
        (-1.0, 1.0),
        download="2 GB",
    ),
    "hpsv3": Facts(
        "which picture of one prompt people prefer (Qwen2-VL)",
        "mu",
        (-math.inf, math.inf),
        licence="MIT code, Apache-2.0 weights",
        download="17 GB",
    ),
    "imagereward": Facts(
        "which picture of one prompt people prefer (BLIP)",
        "standardised, about -2.3 to 2.3",
        (-math.inf, math.inf),
        download="1.8 GB",
    ),
    "laion-v1": Facts(
        "look of the picture alone, linear head on CLIP L/14",
        "rating",
        (1.0, 10.0),
        licence="MIT",
        download="0.9 GB",
    ),
    "laion-v2": Facts(
        "look of the picture alone, sac+logos+ava1 head on CLIP L/14",
        "rating",
        (1.0, 10.0),
        licence="Apache-2.0, CLIP MIT",
        download="0.9 GB",
    ),
    "lpips": Facts(
        "closeness to the source picture (LPIPS)",
        "minus the distance",
        (-math.inf, 0.0),
        licence="BSD-2-Clause",
        download="0.24 GB (alex), 0.53 GB (vgg)",
        extra="lpips",
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
    "pal": Facts(
        "what one user likes best, from a handful of choices (PAL)",
        "minus the distance from the ideal point",
        (-math.inf, 0.0),
        download="fitted by you, on emoji-clip or any CLIP",
    ),
    "pickscore": Facts(
        "which picture of one prompt people pick (PickScore v1)",
        "logit, about 15 to 26; also cos",
        (-math.inf, math.inf),
        licence="MIT (code)",
        download="4 GB",
    ),
    "promptecho": Facts(
        "how likely the prompt is as the answer about the picture (PromptEcho)",
        "mean log-probability",
        (-math.inf, 0.0),
        real="any AutoModelForImageTextToText",
    ),
    "quality": Facts(
        "sharpness without noise (classical, no model)",
        "(1 - blur) exp(-noise / 0.1)",
        (0.0, 1.0),
        download="no weights",
    ),
    "questions": Facts(
        "right answers to questions about the prompt's objects, colours, ... (RewardFlow's VQA)",
        "mean log-probability less a margin's lack",
        (-math.inf, 0.0),
        real="any AutoModelForImageTextToText",
    ),
    "region": Facts(
        "any reward on the boxes or the mask of the context",
        "that of the reward, clip by default",
        (-1.0, 1.0),
        real="as the reward inside",
    ),
    "rl-vlm-f": Facts(
        "what a model's pairwise choices have taught (RL-VLM-F)",
        "log-odds, up to a constant per prompt",
        (-math.inf, math.inf),
        download="fitted by you, on emoji-clip or any CLIP",
    ),
    "siglip": Facts(
        "probability that picture and prompt belong together (SigLIP)",
        "probability; also logit, cos",
        (0.0, 1.0),
        download="3.5 GB",
    ),
    "temporal-consistency": Facts(
        "how alike neighbouring frames are to CLIP",
        "mean cosine",
        (-1.0, 1.0),
        modality="video",
        real="any open_clip checkpoint; openai ViT-L/14 (MIT, 0.9 GB)",
    ),
    "vlm-rm": Facts(
        "way from a baseline text to the prompt in CLIP (VLM-RM)",
        "1 - half the squared distance",
        (-1.0, 1.0),
        real="any CLIP; openai ViT-L/14 (MIT, 0.9 GB)",
    ),
    "vqa": Facts(
        "P(yes) to: does this figure show the prompt? (VQAScore)",
        "probability",
        (0.0, 1.0),
        real="any AutoModelForImageTextToText",
    ),
    "yes-no": Facts(
        "odds of yes against no to your own questions (ZYN)",
        "probability; also logit",
        (0.0, 1.0),
        real="any AutoModelForImageTextToText",
    ),
}
