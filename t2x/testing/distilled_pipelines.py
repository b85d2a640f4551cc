"""Tiny pipelines of models that are sampled in few steps or take the guidance scale as an input:
FLUX.2 and its klein, Sana-Sprint, SDXL Turbo and Lightning (see ``pipelines``).
"""

from __future__ import annotations

from typing import Any

from t2x.testing.models import (
    WORDS,
    fixed_weights,
    tiny_byte_tokenizer,
    tiny_causal_lm,
    tiny_word_tokenizer,
)
from t2x.testing.pipelines import sana_parts, tiny_sdxl

__all__ = [
    "tiny_flux2",
    "tiny_flux2_klein",
    "tiny_sana_sprint",
    "tiny_sdxl_lightning",
    "tiny_sdxl_turbo",
]

_MULTIMODAL_TEMPLATE = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} "
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }} {% else %}[IMG] {% endif %}{% endfor %}"
    "<|im_end|> {% endfor %}"
)


def tiny_flux2(seed: int = 0) -> Any:
    """Build a Flux2Pipeline: latents of 2 x 2 patches, normalised by a batch norm's statistics and
    packed by ids; Mistral's hidden states; the guidance scale as an input.

    A source picture has at least 64 pixels on each side.
    """
    from diffusers import FlowMatchEulerDiscreteScheduler, Flux2Pipeline
    from transformers import (
        Mistral3Config,
        Mistral3ForConditionalGeneration,
        PixtralImageProcessor,
        PixtralProcessor,
    )

    marks = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
    tokenizer = tiny_word_tokenizer((*WORDS, *marks))
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "head_dim": 8}
    text = {"model_type": "mistral", "num_hidden_layers": 2, "num_key_value_heads": 2}
    config = Mistral3Config(
        text_config={**tower, **text, "vocab_size": len(tokenizer)},
        vision_config={**tower, "model_type": "pixtral", "num_hidden_layers": 1, "patch_size": 8},
        image_token_index=tokenizer.convert_tokens_to_ids("[IMG]"),
    )
    with fixed_weights(seed):
        text_encoder = Mistral3ForConditionalGeneration(config).eval()
        vae, transformer = _flux2_vae(), _flux2_transformer(joint=48, guidance_embeds=True)
        vae.bn.running_mean.normal_()
        vae.bn.running_var.uniform_(0.5, 2.0)
    return Flux2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=PixtralProcessor(
            image_processor=PixtralImageProcessor(size={"longest_edge": 32}, patch_size=8),
            tokenizer=tokenizer,
            patch_size=8,
            chat_template=_MULTIMODAL_TEMPLATE,
        ),
        transformer=transformer,
    )


def tiny_flux2_klein(seed: int = 0, *, is_distilled: bool = False) -> Any:
    """Build a Flux2KleinPipeline: FLUX.2's latents, Qwen3's hidden states, two-pass guidance, which
    a distilled one ignores. The batch norm's statistics are those of no normalisation."""
    from diffusers import FlowMatchEulerDiscreteScheduler, Flux2KleinPipeline

    model, tokenizer = tiny_causal_lm(seed, tokenizer=tiny_byte_tokenizer())
    with fixed_weights(seed):
        vae, transformer = _flux2_vae(), _flux2_transformer(joint=96, guidance_embeds=False)
    return Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vae,
        text_encoder=model,
        tokenizer=tokenizer,
        transformer=transformer,
        is_distilled=is_distilled,
    )


def _flux2_vae() -> Any:
    from diffusers import AutoencoderKLFlux2

    return AutoencoderKLFlux2(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=(8, 16, 16),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=8,
        sample_size=64,
    ).eval()


def _flux2_transformer(*, joint: int, guidance_embeds: bool) -> Any:
    from diffusers import Flux2Transformer2DModel

    return Flux2Transformer2DModel(
        in_channels=16,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=joint,
        timestep_guidance_channels=32,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=guidance_embeds,
    ).eval()


def tiny_sana_sprint(seed: int = 0) -> Any:
    """Build a SanaSprintPipeline: Sana's parts, TrigFlow (SCMScheduler), the guidance scale as an
    input."""
    from diffusers import SanaSprintPipeline, SCMScheduler

    parts = sana_parts(seed, guidance_embeds=True, qk_norm="rms_norm_across_heads")
    return SanaSprintPipeline(**parts, scheduler=SCMScheduler())


def tiny_sdxl_turbo(seed: int = 0) -> Any:
    """Build SDXL as Turbo is sampled: Euler with noise of its own, on trailing timesteps."""
    return _sdxl_on_trailing("EulerAncestralDiscreteScheduler", seed)


def tiny_sdxl_lightning(seed: int = 0) -> Any:
    """Build SDXL as Lightning is sampled: Euler on trailing timesteps."""
    return _sdxl_on_trailing("EulerDiscreteScheduler", seed)


def _sdxl_on_trailing(scheduler: str, seed: int) -> Any:
    import diffusers

    pipe = tiny_sdxl(seed)
    pipe.scheduler = getattr(diffusers, scheduler)(
        beta_schedule="scaled_linear", steps_offset=1, timestep_spacing="trailing"
    )
    return pipe
