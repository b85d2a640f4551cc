"""Pictures, prompts and weights of the CLIP goldens: the same numbers wherever they are made, from
whole-number arithmetic and from generators seeded by a tensor's own name.

Imported by the tests and by the script that made the goldens.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

PROMPTS = {
    "short": "a red bus left of a cat",
    "long": " ".join(f"{word} {n}" for n, word in enumerate(("castle", "river", "moon") * 67)),
    "foreign": "一只红色的猫, и собака: naïve café ☕",
    "empty": "",
}
# Of 150 tags of a model, or 200 of its last layer, the one whose cosines are all positive, so that
# CLIPScore's clamp hides nothing.
TAGS = {
    "clipscore": "clipscore 18",
    "openai-b32 text_projection": "openai-b32 94",
    "openai-l14 text_projection": "openai-l14 138",
}
# Prompts of the full-size goldens.
PLAIN = ("short", "long", "foreign")
# What the official code makes of these files is not what t2x.load_picture makes of them.
UNLIKE = ("clear", "palette", "sixteen")

# Towers as published, in open_clip's form; HPSv2's ViT-H/14 is the one of either package.
FULL_B32 = {
    "embed_dim": 512,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 224, "layers": 12, "width": 768, "patch_size": 32},
    "text_cfg": {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 512,
        "heads": 8,
        "layers": 12,
    },
}
FULL_L14 = {
    "embed_dim": 768,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 224, "layers": 24, "width": 1024, "patch_size": 14},
    "text_cfg": {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 768,
        "heads": 12,
        "layers": 12,
    },
}
# Widths and depths are reduced; patches, picture size, head width, vocabulary and text length are
# those of the real towers. open_clip's form.
OPENAI_L14 = {
    "embed_dim": 768,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 224, "layers": 2, "width": 128, "patch_size": 14},
    "text_cfg": {
        "context_length": 77,
        "vocab_size": 49408,
        "width": 128,
        "heads": 2,
        "layers": 2,
    },
}
OPENAI_B32 = {
    **OPENAI_L14,
    "embed_dim": 64,
    "vision_cfg": {"image_size": 224, "layers": 2, "width": 128, "patch_size": 32},
}
VIT_H14 = {
    "embed_dim": 64,
    "vision_cfg": {
        "image_size": 224,
        "layers": 2,
        "width": 160,
        "head_width": 80,
        "patch_size": 14,
    },
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 128, "heads": 2, "layers": 2},
}
# The same tower as VIT_H14 in transformers' form.
PICKSCORE: dict[str, Any] = {
    "projection_dim": 64,
    "text_config": {
        "hidden_size": 128,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "hidden_act": "gelu",
        "projection_dim": 64,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "vision_config": {
        "hidden_size": 160,
        "intermediate_size": 640,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 224,
        "patch_size": 14,
        "hidden_act": "gelu",
        "projection_dim": 64,
    },
}
# config.json of yuvalkirstain/PickScore_v1, as far as scores depend on it.
FULL_PICKSCORE: dict[str, Any] = {
    "projection_dim": 1024,
    "text_config": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "hidden_act": "gelu",
        "projection_dim": 1024,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "vision_config": {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 16,
        "image_size": 224,
        "patch_size": 14,
        "hidden_act": "gelu",
        "projection_dim": 1024,
    },
}
# preprocessor_config.json of laion/CLIP-ViT-H-14-laion2B-s32B-b79K.
CLIP_PROCESSOR = {
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_processor_type": "CLIPImageProcessor",
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "rescale_factor": 1 / 255,
    "size": {"shortest_edge": 224},
}
HEADS = {
    "laion-v1": {"weight": (1, 768), "bias": (1,)},
    "laion-v1-b32": {"weight": (1, 512), "bias": (1,)},
    "laion-v2": {
        f"layers.{place}.{leaf}": shape
        for place, (out, width) in {
            0: (1024, 768),
            2: (128, 1024),
            4: (64, 128),
            6: (16, 64),
            7: (1, 16),
        }.items()
        for leaf, shape in (("weight", (out, width)), ("bias", (out,)))
    },
}


def pictures() -> dict[str, Image.Image]:
    """Pictures of every shape and mode, by name. Of *wide* and *tall*, an odd number of pixels is
    cropped, whose two ways of halving differ.
    """
    alpha = np.abs(np.mgrid[:160, :210][1] * 2 - 210).astype(np.uint8)[..., None]
    sixteen = scene(160, 220, 8)[..., 0].astype(np.uint16) * 257
    return {
        "square": Image.fromarray(scene(256, 256, 0)),
        "exact": Image.fromarray(scene(112, 224, 1)),
        "wide": Image.fromarray(scene(150, 399, 2)),
        "tall": Image.fromarray(scene(378, 130, 3)),
        "grey": Image.fromarray(scene(180, 200, 5)[..., 0]),
        "clear": Image.fromarray(np.concatenate([scene(160, 210, 4), alpha], -1)),
        "palette": Image.fromarray(scene(240, 190, 6)).quantize(64, dither=Image.Dither.NONE),
        "sixteen": Image.fromarray(sixteen),
        "tiny": Image.fromarray(scene(5, 7, 7)),
        "huge": Image.fromarray(scene(1500, 2200, 10)),
        "stripes": Image.fromarray(stripes(389, 517)),
    }


def scene(height: int, width: int, seed: int) -> np.ndarray:
    """Plain shapes in strong colours on a slope of two colours: (H, W, 3) bytes."""
    draw = np.random.RandomState(seed)
    y, x = np.mgrid[:height, :width].astype(np.int64)
    top, bottom = draw.randint(0, 256, (2, 3))
    picture = (top * (height - y[..., None]) + bottom * y[..., None]) // height
    for _ in range(6):
        cy, cx, ry, rx, round_ = draw.randint((0, 0, 8, 8, 0), (100, 100, 40, 40, 2))
        down = np.abs(y * 100 - cy * height) * 1000 // (ry * height)
        over = np.abs(x * 100 - cx * width) * 1000 // (rx * width)
        inside = down**2 + over**2 < 10**6 if round_ else np.maximum(down, over) < 1000
        picture[inside] = draw.randint(0, 256, 3)
    return picture.astype(np.uint8)


def stripes(height: int, width: int) -> np.ndarray:
    """Stripes and squares of one to three pixels, which alias unless they are averaged."""
    y, x = np.mgrid[:height, :width]
    fine = np.where(y < height // 2, x % 2, (x // 2 + y // 2) % 2) * 255
    return np.stack([fine, 255 - fine, (x % 3 == 0) * 255], -1).astype(np.uint8)


def weights(model: str, shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Weights by name (:func:`weight`)."""
    return {name: weight(model, name, shape) for name, shape in shapes.items()}


def weight(model: str, name: str, shape: Sequence[int]) -> np.ndarray:
    """One tensor, float32 that float16 can hold (OpenAI's are stored so): unit gain for what
    multiplies, near 1 for norms, small for biases.
    """
    if name.endswith("position_ids"):
        return np.arange(shape[-1]).reshape(shape)
    if name == "logit_scale":
        return np.float32(math.log(100)).reshape(shape)
    tag = TAGS.get(f"{model} {name}") or f"{TAGS.get(model, model)} {name}"
    seed = hashlib.sha256(tag.encode()).digest()[:4]
    noise = np.random.RandomState(list(seed)).standard_normal(tuple(shape))
    if name.endswith("bias"):
        noise *= 0.1
    elif "embedding" in name and "patch" not in name:
        noise *= 0.5
    elif len(shape) == 1:
        noise = 1 + 0.1 * noise
    else:
        fan_in = shape[0] if name.endswith(("proj", "text_projection")) else math.prod(shape[1:])
        noise *= fan_in**-0.5
    return noise.astype(np.float16).astype(np.float32)


def checksum(tensors: Mapping[str, np.ndarray]) -> float:
    """A number that changes if the generators do."""
    return float(sum(np.abs(w.astype(np.float64)).sum() for w in tensors.values()))
