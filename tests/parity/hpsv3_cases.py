"""Pictures, prompts, tokenizer and weights of the HPSv3 goldens: the same numbers wherever they are
made. Imported by the test and by the script that made the goldens.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

if __package__:
    from . import clip_cases as shared
else:  # for the script, which runs outside the package
    import clip_cases as shared

# Not the instruction of the published weights, which the goldens do not need.
INSTRUCTION = "Rate how well this fits and how good it is.\nWanted: {text_prompt}\n\n\n"
ENDING = "\nOverall: <|Reward|>\n\nEND\n"
PROMPTS = shared.PROMPTS
UNLIKE = shared.UNLIKE
CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
REWARD = "<|Reward|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WIDTH, HEADS, LAYERS = 64, 4, 2
VOCABULARY = 256 + len(CONTROL) + 1
# Reduced depth and width; patches, merging, activations and the head's 1024-16-2 are those of the
# real model.
VISION = {
    "depth": 2,
    "embed_dim": 64,
    "hidden_size": WIDTH,
    "mlp_ratio": 2,
    "num_heads": 4,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 128,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "bos_token_id": None,
    "eos_token_id": 258,
    "pad_token_id": 256,
}
ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3]}
THETA = 1e6
IDS = {
    "vision_start_token_id": 259,
    "vision_end_token_id": 260,
    "image_token_id": 261,
    "video_token_id": 262,
}


def tokenizer_json(path: str) -> None:
    """Write a byte-level tokenizer without merges: one token per byte, then ``CONTROL``."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(c, special=True, normalized=False) for c in CONTROL])
    made.save(path)


def pictures() -> dict[str, Image.Image]:
    """Those of the CLIP goldens, and one that is not resized."""
    return {**shared.pictures(), "fits": Image.fromarray(shared.scene(448, 448, 11))}


def weights(shapes: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
    """Weights by the official names: unit gain for what multiplies, twice that for queries and keys
    so that patches count unequally and pictures differ, near 1 for norms, small for biases.
    """
    return {name: _weight(name, tuple(shape)) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    values = np.random.RandomState(seed).standard_normal(shape)
    if len(shape) > 1:
        gain = 2.0 if any(part in name for part in ("q_proj", "k_proj", "qkv")) else 1.0
        fan_in = 1 if "embed_tokens" in name else math.prod(shape[1:])
        values = values * gain / math.sqrt(fan_in)
    else:
        values = 0.1 * values + ("norm" in name or "ln_q" in name) * name.endswith("weight")
    return values.astype(np.float32)


def checksum(tensors: Mapping[str, Any]) -> float:
    """Sum of absolute values over all tensors, to see that both sides have the same."""
    return float(sum(np.abs(np.asarray(v, dtype=np.float64)).sum() for v in tensors.values()))
