"""Vision-language models of the real classes, tiny and random, built in code.

Weights are large enough that scores differ clearly from picture to picture.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from t2x.testing import fixed_weights

QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
PROMPTS = ["a cat", "two red dogs to the left of a bus, please", "eine Katze, 猫 🐈"]
_SENTENCES = (
    "Does this figure show it? Please answer yes or no. Yes No yes no Yes. No.",
    "Describe this image in detail. What is this a picture of? Score: 3 N/A",
    "a photo of two red dogs to the left of a bus and a cat above a green umbrella",
    *("Yes", "yes", "No", "no"),
)
_CONTROL = (
    "<|pad|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def pictures(n: int, height: int = 64, width: int = 64, *, seed: int = 0) -> Tensor:
    """Coarse random pictures, (n, 3, height, width) in steps of 1/255."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(n, 3, 4, 4, generator=generator)
    return (torch.nn.functional.interpolate(coarse, size=(height, width)) * 255).round() / 255


def tokenizer(control: Sequence[str] = _CONTROL, *, end: str, closes: bool = False) -> Any:
    """Byte-level BPE; ``closes``: it puts the end token behind every text, as T5's does."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(control),
        show_progress=False,
    )
    learner.train_from_iterator(_SENTENCES * 20, trainer)
    if closes:
        learner.post_processor = processors.TemplateProcessing(
            single=f"$A {end}", special_tokens=[(end, learner.token_to_id(end))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=learner,
        pad_token=control[0],
        eos_token=end,
        additional_special_tokens=[c for c in control[1:] if c != end],
        padding_side="left",
    )


@lru_cache(maxsize=8)
def qwen(kind: str) -> tuple[Any, Any]:
    """(model, processor) of ``kind`` in ``QWEN``: two vision and two text layers."""
    import transformers as t

    words = tokenizer(end="<|im_end|>")
    patch = 16 if kind == "qwen3_vl" else 14
    vision = {"depth": 2, "num_heads": 2, "patch_size": patch, "spatial_merge_size": 2}
    if kind == "qwen2_vl":
        vision |= {"embed_dim": 32, "hidden_size": 48, "mlp_ratio": 2}
    else:
        vision |= {"hidden_size": 32, "intermediate_size": 64, "out_hidden_size": 48}
    if kind == "qwen2_5_vl":
        vision |= {"window_size": 4 * patch, "fullatt_block_indexes": [1]}
    if kind == "qwen3_vl":
        vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 1]}
    text = {
        "vocab_size": len(words),
        "hidden_size": 48,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "max_position_embeddings": 1024,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 2, 2]},
        "bos_token_id": None,
        "eos_token_id": words.eos_token_id,
        "pad_token_id": words.pad_token_id,
    }
    ids = dict(zip(_CONTROL, words.convert_tokens_to_ids(list(_CONTROL)), strict=True))
    config = t.AutoConfig.for_model(
        kind,
        vision_config=vision,
        text_config=text,
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    size = {"shortest_edge": (2 * patch) ** 2, "longest_edge": 16 * (2 * patch) ** 2}
    settings = {"patch_size": patch, "merge_size": 2, "size": size}
    make = t.Qwen3VLProcessor if kind == "qwen3_vl" else t.Qwen2VLProcessor
    videos = t.Qwen3VLVideoProcessor if kind == "qwen3_vl" else t.Qwen2VLVideoProcessor
    processor = make(t.Qwen2VLImageProcessor(**settings), words, videos(), chat_template=_TEMPLATE)
    return _filled(config), processor


@lru_cache(maxsize=1)
def blip2_t5() -> tuple[Any, Any]:
    """(model, processor) of BLIP-2 over a T5, an encoder-decoder."""
    import transformers as t

    words = tokenizer(("<pad>", "</s>", "<image>"), end="</s>", closes=True)
    words.image_token = t.AddedToken("<image>", normalized=False, special=True)
    processor = t.Blip2Processor(
        t.BlipImageProcessor(size={"height": 32, "width": 32}), words, num_query_tokens=4
    )
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    config = t.Blip2Config(
        vision_config={**small, "num_attention_heads": 2, "image_size": 32, "patch_size": 8},
        qformer_config={
            **small,
            "num_attention_heads": 2,
            "encoder_hidden_size": 32,
            "vocab_size": 10,
        },
        text_config={
            "model_type": "t5",
            "vocab_size": len(words),
            "d_model": 32,
            "d_kv": 16,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 2,
            "decoder_start_token_id": words.pad_token_id,
            "eos_token_id": words.eos_token_id,
            "pad_token_id": words.pad_token_id,
        },
        num_query_tokens=4,
        image_token_index=words.convert_tokens_to_ids("<image>"),
    )
    return _filled(config), processor


def fresh(kind: str) -> tuple[Any, Any]:
    """(model, processor) of ``kind``, in ``QWEN`` or blip2_t5, that nobody else holds."""
    return copy.deepcopy(blip2_t5() if kind == "blip2_t5" else qwen(kind))


def _filled(config: Any) -> Any:
    from transformers import AutoModelForImageTextToText

    with fixed_weights(0):
        model = AutoModelForImageTextToText.from_config(config).eval()
        for weight in model.parameters():
            if weight.ndim > 1:
                torch.nn.init.normal_(weight, std=1.5 / math.sqrt(weight[0].numel()))
    return model
