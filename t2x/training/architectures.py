"""How large published models are: their real classes, built from the published settings on torch's
meta device, so that counting needs neither weights nor a hub.

What is not in the tables is read from a local folder, or from the hub's headers where it can be
reached (``t2x.memory.weights``); what stays unknown is None, never 0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "DRAWERS",
    "LANGUAGE_MODELS",
    "Drawer",
    "LanguageModel",
    "drawer",
    "language_model",
    "lora_params",
    "reward_size",
]


@dataclass(frozen=True)
class LanguageModel:
    """``params`` of a causal language model, and what its activations and caches depend on."""

    params: int
    layers: int
    hidden: int
    keys: int  # width of keys and of values in a layer
    vocabulary: int


@dataclass(frozen=True)
class Drawer:
    """A generator: parameters of its parts; ``width`` of its denoiser, which reads ``tokens(size)``
    at a picture of ``size`` pixels and takes ``flops(size)`` for one pass."""

    parts: Mapping[str, int]
    width: int
    tokens: Callable[[int], int]
    flops: Callable[[int], float]
    steps: int  # of its pipeline by default
    guided: bool  # two passes a step

    @property
    def params(self) -> int:
        """Those of all parts."""
        return sum(self.parts.values())


_QWEN2 = {"model_type": "qwen2", "vocab_size": 151936, "num_key_value_heads": 2}
LANGUAGE_MODELS: Mapping[str, Mapping[str, Any]] = {
    "Qwen/Qwen2.5-0.5B-Instruct": {
        **_QWEN2, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-1.5B-Instruct": {
        **_QWEN2, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-3B-Instruct": {
        **_QWEN2, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36,
        "num_attention_heads": 16, "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-7B-Instruct": {
        **_QWEN2, "vocab_size": 152064, "num_key_value_heads": 4, "hidden_size": 3584,
        "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "tie_word_embeddings": False,
    },
    "Qwen/Qwen3-4B": {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 2560,
        "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
    },
    "smollm2": {
        "model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
        "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "tie_word_embeddings": True,
    },
}  # fmt: skip


def language_model(name: str) -> LanguageModel | None:
    """Size of a model of ``LANGUAGE_MODELS``, of an embedded one or of a folder; None of others."""
    config = _settings(name)
    return None if config is None else _language_model(json.dumps(config, sort_keys=True))


def _settings(name: str) -> dict[str, Any] | None:
    from t2x.world.weights import EMBEDDED, model_dir

    if name in LANGUAGE_MODELS:
        return dict(LANGUAGE_MODELS[name])
    folder = model_dir(name) if name in EMBEDDED else Path(name)
    path = folder / "config.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


@cache
def _language_model(settings: str) -> LanguageModel:
    model = _meta_model(settings)
    config = model.config
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    keys = (getattr(config, "num_key_value_heads", None) or heads) * size
    return LanguageModel(
        _count(model), config.num_hidden_layers, config.hidden_size, keys, config.vocab_size
    )


@cache
def _meta_model(settings: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = json.loads(settings)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


def lora_params(name: str, rank: int, targets: str | list[str]) -> int | None:
    """Parameters of adapters of this rank on ``targets`` (``all-linear``: every linear layer but
    the head), rank * (inputs + outputs) for each."""
    import torch

    config = _settings(name)
    if config is None:
        return None
    model = _meta_model(json.dumps(config, sort_keys=True))
    head = model.get_output_embeddings()
    found = [
        module
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
        and module is not head
        and (targets == "all-linear" or path.rpartition(".")[2] in targets)
    ]
    return sum(rank * (m.in_features + m.out_features) for m in found)


def _count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _on_meta(build: Callable[[], Any]) -> int:
    import torch

    with torch.device("meta"):
        return _count(build())


@cache
def _clip_l() -> int:
    from transformers import CLIPTextConfig, CLIPTextModel

    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12}
    return _on_meta(lambda: CLIPTextModel(CLIPTextConfig(num_attention_heads=12, **sizes)))


@cache
def _clip_g() -> int:
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    sizes = {"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32}
    config = CLIPTextConfig(num_attention_heads=20, projection_dim=1280, **sizes)
    return _on_meta(lambda: CLIPTextModelWithProjection(config))


@cache
def _t5_xxl() -> int:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64,
        feed_forward_proj="gated-gelu",
    )  # fmt: skip
    return _on_meta(lambda: T5EncoderModel(config))


@cache
def _vae(channels: int) -> int:
    from diffusers import AutoencoderKL

    return _on_meta(
        lambda: AutoencoderKL(
            down_block_types=["DownEncoderBlock2D"] * 4,
            up_block_types=["UpDecoderBlock2D"] * 4,
            block_out_channels=[128, 256, 512, 512],
            layers_per_block=2,
            latent_channels=channels,
        )
    )


def _transformer_flops(
    params: int, layers: int, width: int, tokens: Callable[[int], int]
) -> Callable[[int], float]:
    """2 per weight and token, and 4 T^2 d of attention in each layer."""
    return lambda size: 2.0 * params * tokens(size) + 4.0 * layers * width * tokens(size) ** 2


def _patches(text: int) -> Callable[[int], int]:
    """Tokens of a latent an eighth of the picture in patches of 2x2, and those of the text."""
    return lambda size: (size // 16) ** 2 + text


def _sdxl_unet() -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel(
        sample_size=64, block_out_channels=(320, 640, 1280),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        transformer_layers_per_block=(1, 2, 10), attention_head_dim=(5, 10, 20),
        cross_attention_dim=2048, use_linear_projection=True, addition_embed_type="text_time",
        addition_time_embed_dim=256, projection_class_embeddings_input_dim=2816,
    )  # fmt: skip


@cache
def _sdxl_flops(size: int) -> float:
    """Of one pass of the U-Net, counted by torch on the meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), torch.no_grad(), FlopCounterMode(display=False) as counter:
        _sdxl_unet()(
            torch.zeros(1, 4, size // 8, size // 8), torch.zeros(1), torch.zeros(1, 77, 2048),
            added_cond_kwargs={"text_embeds": torch.zeros(1, 1280), "time_ids": torch.zeros(1, 6)},
        )  # fmt: skip
    return float(counter.get_total_flops())


def _sdxl_turbo() -> Drawer:
    parts = {"U-Net": _on_meta(_sdxl_unet), "texts": _clip_l() + _clip_g(), "VAE": _vae(4)}
    return Drawer(parts, 1280, _patches(77), _sdxl_flops, steps=4, guided=False)


def _sd35(layers: int, *, dual: int, positions: int) -> Drawer:
    from diffusers import SD3Transformer2DModel

    params = _on_meta(
        lambda: SD3Transformer2DModel(
            sample_size=128, patch_size=2, in_channels=16, out_channels=16, num_layers=layers,
            attention_head_dim=64, num_attention_heads=layers, joint_attention_dim=4096,
            caption_projection_dim=64 * layers, pooled_projection_dim=2048,
            pos_embed_max_size=positions, dual_attention_layers=tuple(range(dual)),
            qk_norm="rms_norm",
        )
    )  # fmt: skip
    tokens, width = _patches(77 + 256), 64 * layers
    parts = {
        "transformer": params,
        "texts": _clip_l() + _clip_g() + _t5_xxl(),
        "VAE": _vae(16),
    }
    flops = _transformer_flops(params, layers, width, tokens)
    return Drawer(parts, width, tokens, flops, steps=28, guided=True)


def _flux() -> Drawer:
    from diffusers import FluxTransformer2DModel

    params = _on_meta(lambda: FluxTransformer2DModel(guidance_embeds=True))
    tokens = _patches(512)
    parts = {"transformer": params, "texts": _clip_l() + _t5_xxl(), "VAE": _vae(16)}
    flops = _transformer_flops(params, 57, 3072, tokens)
    return Drawer(parts, 3072, tokens, flops, steps=28, guided=False)


def _z_image() -> Drawer:
    from diffusers import ZImageTransformer2DModel

    params = _on_meta(ZImageTransformer2DModel)  # its defaults are the published settings
    text = language_model("Qwen/Qwen3-4B")
    assert text is not None
    tokens = _patches(256)
    parts = {"transformer": params, "texts": text.params, "VAE": _vae(16)}
    flops = _transformer_flops(params, 34, 3840, tokens)
    return Drawer(parts, 3840, tokens, flops, steps=8, guided=False)


DRAWERS: Mapping[str, Callable[[], Drawer]] = {
    "Tongyi-MAI/Z-Image-Turbo": _z_image,
    "black-forest-labs/FLUX.1-dev": _flux,
    "stabilityai/sdxl-turbo": _sdxl_turbo,
    "stabilityai/stable-diffusion-3.5-large": lambda: _sd35(38, dual=0, positions=192),
    "stabilityai/stable-diffusion-3.5-medium": lambda: _sd35(24, dual=13, positions=384),
}


@cache
def drawer(name: str) -> Drawer | None:
    """Size of a generator of ``DRAWERS``; None of others."""
    return DRAWERS[name]() if name in DRAWERS else None


_QWEN2_VL: Mapping[str, Mapping[str, Any]] = {
    "Qwen/Qwen2-VL-2B-Instruct": {
        "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28,
        "num_attention_heads": 12, "num_key_value_heads": 2, "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2-VL-7B-Instruct": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
        "tie_word_embeddings": False,
    },
}  # fmt: skip


@cache
def reward_size(name: str, source: str | None = None) -> tuple[int, int] | None:
    """Parameters of a reward and bytes of each on a GPU: of the network that it is published with
    (float32), or of the vision-language model that it takes as ``source`` (16 bits); None where
    neither is known."""
    from t2x.scoring.full_size import FULL_SIZE, TOWERS

    if source is not None:
        return (_qwen2_vl(source), 2) if source in _QWEN2_VL else None
    if name not in FULL_SIZE:
        return None
    tower = FULL_SIZE[name].tower
    if tower.startswith("Qwen2-VL"):
        return _qwen2_vl(f"Qwen/{tower}-Instruct"), 2
    found = TOWERS[tower]("meta")
    models = found if isinstance(found, tuple) else (found,)
    return sum(_count(model) for model in models if hasattr(model, "parameters")), 4


def _qwen2_vl(name: str) -> int:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    text = dict(_QWEN2_VL[name])
    vision = {"depth": 32, "embed_dim": 1280, "hidden_size": text["hidden_size"], "num_heads": 16}
    tied = text["tie_word_embeddings"]
    config = Qwen2VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=tied)
    return _on_meta(lambda: Qwen2VLForConditionalGeneration(config))
