"""Tiny models and fakes for tests, examples and plugins; built in code, no download, no file."""

from __future__ import annotations

from t2x.testing.bad_rewriters import BAD_REWRITERS, BadRewriter
from t2x.testing.contract import check_gradient, check_reward, check_truncation
from t2x.testing.fakes import FakeGenerator, FakeReward, FakeRewriter
from t2x.testing.models import (
    WORDS,
    fixed_weights,
    tiny_bert_tokenizer,
    tiny_blip,
    tiny_byte_tokenizer,
    tiny_causal_lm,
    tiny_clip_tokenizer,
    tiny_open_clip,
    tiny_sdxl,
    tiny_siglip,
    tiny_stable_diffusion,
    tiny_transformers_clip,
    tiny_vae,
    tiny_wan,
    tiny_word_tokenizer,
    tiny_z_image,
)

__all__ = [
    "BAD_REWRITERS",
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
    "tiny_open_clip",
    "tiny_sdxl",
    "tiny_siglip",
    "tiny_stable_diffusion",
    "tiny_transformers_clip",
    "tiny_vae",
    "tiny_wan",
    "tiny_word_tokenizer",
    "tiny_z_image",
]
