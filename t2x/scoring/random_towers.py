"""Networks of published size with random weights, to time rewards on without a download.

Sizes come from whoever ships them: open_clip's list of architectures, torchvision's builders, the
defaults of transformers' configurations. Where those defaults are another model's, the numbers that
differ stand here, from the ``config.json`` beside the published weights.

Tokenizers are stand-ins that cut texts into about as many pieces. Before a network takes memory its
size is worked out, and :class:`TooLarge` says what it needs.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from t2x.errors import T2XError
from t2x.memory.machine import available_bytes
from t2x.testing import tiny_bert_tokenizer
from t2x.world.weights import require_model

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "HPSV3",
    "QWEN2_VL",
    "TooLarge",
    "blip_itm",
    "blip_reward",
    "dinov2_base",
    "lpips_files",
    "open_clip_tower",
    "qwen2_vl",
    "random_affine",
    "random_model",
]

GIB = 2**30
# Text and picture towers of Qwen/Qwen2-VL-2B-Instruct and -7B-Instruct, where they differ from
# transformers' defaults.
QWEN2_VL: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "2B": (
        {
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "num_hidden_layers": 28,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        },
        {"hidden_size": 1536},
    ),
    "7B": (
        {
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
            "tie_word_embeddings": False,
        },
        {"hidden_size": 3584},
    ),
}
HPSV3 = (3584, 1024, 16, 2)
"""Widths of HPSv3's head."""
_ROPE = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
_CONTROL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% for part in m.content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
_BERT_PIECES = 30522
_BLOCK = 2**22
_ROOM = 1.1  # activations and what else the process takes, as a factor on the weights
_aten = torch.ops.aten
_RANDOM = {_aten.normal_, _aten.uniform_, _aten.random_, _aten.bernoulli_}


class TooLarge(T2XError):
    """A network needs more memory than there is."""


class _Undrawn(TorchDispatchMode):
    """Inside, no random numbers are drawn in place: what would be is overwritten anyway. Their
    mean stands in for them, since initialisers that draw until all is in range would go on for
    ever with what lies in fresh memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in _RANDOM:
            return args[0].fill_(_mean(func.overloadpacket, *args[1:3]))
        return func(*args, **(kwargs or {}))


def _mean(packet: Any, first: float = 0.0, second: float = 1.0) -> float:
    """Of normal_(mean, std) and uniform_(from, to); 0 for the others."""
    if packet is _aten.normal_:
        return first
    return (first + second) / 2 if packet is _aten.uniform_ else 0.0


def random_model(
    make: Callable[[str], nn.Module], *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Any:
    """What ``make`` builds on the device that it is given, frozen, with random weights of unit gain
    that are the same every time.

    It is built on the device "meta" first, where it takes no memory. Raises ``TooLarge`` if it does
    not fit into what is available.
    """
    with torch.device("meta"):
        count = sum(p.numel() for p in make("meta").parameters())
    needed, there = int(count * dtype.itemsize * _ROOM), available_bytes(device)
    if there is not None and needed > there:
        raise TooLarge(
            f"needs {needed / GIB:.1f} GiB of memory as {str(dtype).removeprefix('torch.')}, "
            f"{there / GIB:.1f} GiB are available"
        )
    with torch.random.fork_rng(devices=[]), _Undrawn():  # type: ignore[no-untyped-call]
        model = make("cpu")
    model = model.to(device, dtype).eval().requires_grad_(False)
    _fill(model, device, dtype)
    return model


def _fill(model: nn.Module, device: str, dtype: torch.dtype) -> None:
    """Norms 1, biases 0, what multiplies of unit gain, from one block of numbers over and over."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randn(_BLOCK, generator=generator).to(device, dtype)
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            weight.data.fill_(0.0 if name.endswith("bias") else 1.0)
        elif weight.ndim > 1:
            flat = weight.data.view(-1)
            for part in flat.split(_BLOCK):
                torch.mul(block[: len(part)], weight[0].numel() ** -0.5, out=part)


def random_affine(*widths: int) -> list[tuple[Tensor, Tensor]]:
    """Weights (b, a) and biases (b,) of affine layers from each width to the next."""
    generator = torch.Generator().manual_seed(0)
    pairs = pairwise(widths)
    return [(torch.randn(b, a, generator=generator) / a**0.5, torch.zeros(b)) for a, b in pairs]


# ---- CLIP and SigLIP ----------------------------------------------------------------------------


def open_clip_tower(
    architecture: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Any, Any]:
    """A model of open_clip's list and its tokenizer, or a stand-in where that is on a hub.

    Raises ``T2XError`` for an architecture that open_clip does not have.
    """
    import open_clip

    if architecture not in open_clip.list_models():
        raise T2XError(f"open_clip has no architecture {architecture!r}; try ViT-L-14-quickgelu")

    def make(place: str) -> nn.Module:
        built: nn.Module = open_clip.create_model(architecture, pretrained=None, device=place)
        return built

    root = logging.getLogger()
    root.addFilter(_is_news)
    try:
        model = random_model(make, device=device, dtype=dtype)
    finally:
        root.removeFilter(_is_news)
    text = open_clip.get_model_config(architecture)["text_cfg"]
    if "hf_tokenizer_name" in text:
        return model, _Words(text["context_length"], text["vocab_size"])
    return model, open_clip.get_tokenizer(architecture)


def _is_news(record: logging.LogRecord) -> bool:
    """False for open_clip's warning that weights are random, which here they are meant to be."""
    return "initialized randomly" not in record.getMessage()


class _Words:
    """Texts to (N, ``length``) ids, one a word."""

    def __init__(self, length: int, vocabulary: int) -> None:
        self.length, self.vocabulary = length, vocabulary

    def __call__(self, texts: Sequence[str]) -> Tensor:
        rows = torch.ones(len(texts), self.length, dtype=torch.long)
        for row, text in zip(rows, texts, strict=True):
            ids = [zlib.crc32(w.encode()) % self.vocabulary for w in text.split()[: self.length]]
            row[: len(ids)] = torch.tensor(ids, dtype=torch.long)
        return rows


# ---- BLIP ---------------------------------------------------------------------------------------


def blip_itm(*, device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """``BlipForImageTextRetrieval`` and processor of Salesforce/blip-itm-base-coco, which are
    transformers' default but for the heads of the text tower.
    """
    from transformers import (
        BlipConfig,
        BlipForImageTextRetrieval,
        BlipImageProcessor,
        BlipProcessor,
    )

    config = BlipConfig(text_config={"num_attention_heads": 12})
    model = random_model(lambda _: BlipForImageTextRetrieval(config), device=device, dtype=dtype)
    return model, BlipProcessor(BlipImageProcessor(), _bert_tokenizer())


def blip_reward(
    *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Any, Any, Any, list[tuple[Tensor, Tensor]]]:
    """Picture tower, text tower, tokenizer and head of ImageReward v1.0: BLIP's ViT-L/16 at 224
    pixels beside BERT-base, and 768-1024-128-64-16-1.
    """
    from transformers import BlipTextConfig, BlipTextModel, BlipVisionConfig, BlipVisionModel

    vision = BlipVisionConfig(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=224,
    )
    text = BlipTextConfig(num_attention_heads=12, encoder_hidden_size=1024)
    towers = random_model(
        lambda _: nn.ModuleList(
            [BlipVisionModel(vision), BlipTextModel(text, add_pooling_layer=False)]
        ),
        device=device,
        dtype=dtype,
    )
    return towers[0], towers[1], _bert_tokenizer(), random_affine(768, 1024, 128, 64, 16, 1)


def _bert_tokenizer() -> Any:
    """BERT's on letters, filled up to the number of its pieces."""
    few = len(tiny_bert_tokenizer(()))
    return tiny_bert_tokenizer(f"[unused{n}]" for n in range(_BERT_PIECES - few))


# ---- pictures alone -----------------------------------------------------------------------------


def dinov2_base(*, device: str = "cpu", dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """``Dinov2Model`` and image processor of facebook/dinov2-base: transformers' default but for
    the picture that positions were trained on.
    """
    from transformers import BitImageProcessor, Dinov2Config, Dinov2Model

    config = Dinov2Config(image_size=518)
    processor = BitImageProcessor(size={"shortest_edge": 256}, crop_size=224, **_IMAGENET)
    return random_model(lambda _: Dinov2Model(config), device=device, dtype=dtype), processor


def lpips_files(builder: str, ends: Sequence[int]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """State dicts of torchvision's convolutional trunk ``builder`` and of LPIPS weights on the
    layers that end at ``ends``.
    """
    from torchvision import models

    trunk = random_model(lambda _: getattr(models, builder)(weights=None).features)
    widths = []
    for end in ends:
        found = [layer.out_channels for layer in trunk[:end] if isinstance(layer, nn.Conv2d)]
        widths.append(found[-1])
    lins = {f"lin{i}.model.1.weight": torch.ones(1, w, 1, 1) / w for i, w in enumerate(widths)}
    return {f"features.{n}": t for n, t in trunk.state_dict().items()}, lins


# ---- vision-language ----------------------------------------------------------------------------


def qwen2_vl(
    size: str, *, device: str = "cpu", dtype: torch.dtype = torch.float32
) -> tuple[Any, Any]:
    """``Qwen2VLForConditionalGeneration`` and processor, ``size`` a key of ``QWEN2_VL``, with the
    tokenizer of emoji-vlm.
    """
    import transformers as t

    words = t.AutoTokenizer.from_pretrained(str(require_model("emoji-vlm")))
    words.add_special_tokens({"additional_special_tokens": list(_CONTROL)})
    ids = dict(zip(_CONTROL, words.convert_tokens_to_ids(list(_CONTROL)), strict=True))
    sizes, vision = QWEN2_VL[size]
    text = {
        **sizes,
        "rope_parameters": _ROPE,
        "rms_norm_eps": 1e-6,
        "bos_token_id": None,
        "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": words.pad_token_id,
    }
    config = t.Qwen2VLConfig(
        text_config=text,
        vision_config=dict(vision),
        tie_word_embeddings=sizes["tie_word_embeddings"],
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
    )
    processor = t.Qwen2VLProcessor(
        t.Qwen2VLImageProcessor(), words, t.Qwen2VLVideoProcessor(), chat_template=_TEMPLATE
    )
    model = random_model(
        lambda _: t.Qwen2VLForConditionalGeneration(config), device=device, dtype=dtype
    )
    return model, processor
