"""Tiny models and fakes for tests, examples and plugins; built in code, no download, no file."""

from __future__ import annotations

from t2x.testing.bad_rewriters import BAD_REWRITERS, BadRewriter
from t2x.testing.contract import check_gradient, check_reward, check_truncation
from t2x.testing.distilled_pipelines import (
    tiny_flux2,
    tiny_flux2_klein,
    tiny_sana_sprint,
    tiny_sdxl_turbo,
)
from t2x.testing.editing_pipelines import (
    EDITING,
    EDITING_CALLS,
    SOURCE_SIDES,
    tiny_cogvideox_i2v,
    tiny_qwen_image_edit,
    tiny_wan_i2v,
)
from t2x.testing.fakes import FakeGenerator, FakeReward, FakeRewriter
from t2x.testing.families import CALLS, DISTILLED, FAMILIES, VARIANTS
from t2x.testing.models import (
    WORDS,
    fixed_weights,
    tiny_bert_tokenizer,
    tiny_blip,
    tiny_byte_tokenizer,
    tiny_causal_lm,
    tiny_clip_tokenizer,
    tiny_open_clip,
    tiny_siglip,
    tiny_transformers_clip,
    tiny_vae,
    tiny_word_tokenizer,
)
from t2x.testing.pipelines import (
    tiny_flux,
    tiny_pixart,
    tiny_qwen_image,
    tiny_sana,
    tiny_sd3,
    tiny_sdxl,
    tiny_stable_diffusion,
    tiny_z_image,
)
from t2x.testing.video_pipelines import tiny_cogvideox, tiny_hunyuan_video, tiny_ltx, tiny_wan

__all__ = [
    "BAD_REWRITERS",
    "CALLS",
    "DISTILLED",
    "EDITING",
    "EDITING_CALLS",
    "FAMILIES",
    "SOURCE_SIDES",
    "VARIANTS",
    "WORDS",
    "BadRewriter",
    "FakeGenerator",
    "FakeReward",
    "FakeRewriter",
    "check_gradient",
    "check_reward",
    "check_truncation",
    "fixed_weights",
    "tiny_bert_tokenizer",
    "tiny_blip",
    "tiny_byte_tokenizer",
    "tiny_causal_lm",
    "tiny_clip_tokenizer",
    "tiny_cogvideox",
    "tiny_cogvideox_i2v",
    "tiny_flux",
    "tiny_flux2",
    "tiny_flux2_klein",
    "tiny_hunyuan_video",
    "tiny_ltx",
    "tiny_open_clip",
    "tiny_pixart",
    "tiny_qwen_image",
    "tiny_qwen_image_edit",
    "tiny_sana",
    "tiny_sana_sprint",
    "tiny_sd3",
    "tiny_sdxl",
    "tiny_sdxl_turbo",
    "tiny_siglip",
    "tiny_stable_diffusion",
    "tiny_transformers_clip",
    "tiny_vae",
    "tiny_wan",
    "tiny_wan_i2v",
    "tiny_word_tokenizer",
    "tiny_z_image",
]
