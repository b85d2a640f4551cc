"""Tiny pipelines of the families that people use, from their real classes: a few thousand random
weights from a fixed seed, a picture or a clip of 32 pixels in well under a second on one thread.

Those of models that are sampled in few steps are in ``distilled_pipelines``, those that start from
a picture in ``editing_pipelines``; ``families`` lists all.
"""

from __future__ import annotations

from typing import Any

from t2x.testing.models import (
    fixed_weights,
    tiny_byte_tokenizer,
    tiny_causal_lm,
    tiny_clip_text,
    tiny_clip_tokenizer,
    tiny_t5,
    tiny_vae,
    tiny_word_tokenizer,
)

__all__ = [
    "sana_parts",
    "tiny_flux",
    "tiny_pixart",
    "tiny_qwen_image",
    "tiny_sana",
    "tiny_sd3",
    "tiny_sdxl",
    "tiny_stable_diffusion",
    "tiny_unet",
    "tiny_z_image",
]


def tiny_unet(**changes: Any) -> Any:
    """Build a UNet of two levels, with random weights as the caller's seed has it."""
    from diffusers import UNet2DConditionModel

    settings = {
        "sample_size": 16,
        "in_channels": 4,
        "out_channels": 4,
        "block_out_channels": (16, 32),
        "layers_per_block": 1,
        "norm_num_groups": 8,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
        "cross_attention_dim": 32,
        "attention_head_dim": 2,
    }
    return UNet2DConditionModel(**{**settings, **changes}).eval()


def tiny_stable_diffusion(seed: int = 0, *, guidance_embedding: int | None = None) -> Any:
    """Build a StableDiffusionPipeline shaped like the embedded generators: 64x64 from 16x16
    latents.

    With ``guidance_embedding`` (its width) the UNet takes the guidance scale as an input, as
    distilled models do, and classifier-free guidance is off.
    """
    from diffusers import StableDiffusionPipeline

    from t2x.world.flow import flow_scheduler

    tokenizer = tiny_clip_tokenizer()
    with fixed_weights(seed):
        unet = tiny_unet(time_cond_proj_dim=guidance_embedding)
        text_encoder = tiny_clip_text(tokenizer)
    return StableDiffusionPipeline(
        vae=tiny_vae(seed),
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=flow_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def tiny_sdxl(seed: int = 0) -> Any:
    """Build a StableDiffusionXLPipeline: two text encoders, pooled text, size conditioning."""
    from diffusers import EulerDiscreteScheduler, StableDiffusionXLPipeline

    tokenizer = tiny_clip_tokenizer()
    with fixed_weights(seed):
        unet = tiny_unet(
            cross_attention_dim=64,
            addition_embed_type="text_time",
            addition_time_embed_dim=8,
            projection_class_embeddings_input_dim=6 * 8 + 32,
            use_linear_projection=True,
        )
        encoders = tiny_clip_text(tokenizer), tiny_clip_text(tokenizer, projected=True)
    return StableDiffusionXLPipeline(
        vae=tiny_vae(seed),
        text_encoder=encoders[0],
        text_encoder_2=encoders[1],
        tokenizer=tokenizer,
        tokenizer_2=tokenizer,
        unet=unet,
        scheduler=EulerDiscreteScheduler(beta_schedule="scaled_linear", steps_offset=1),
        add_watermarker=False,
    )


def tiny_z_image(seed: int = 0) -> Any:
    """Build a ZImagePipeline: diffusion transformer on the hidden states of a chat model."""
    from diffusers import FlowMatchEulerDiscreteScheduler, ZImagePipeline, ZImageTransformer2DModel

    model, tokenizer = tiny_causal_lm(seed)
    with fixed_weights(seed):
        transformer = ZImageTransformer2DModel(
            in_channels=4,
            dim=32,
            n_layers=2,
            n_refiner_layers=1,
            n_heads=2,
            n_kv_heads=2,
            cap_feat_dim=32,
            axes_dims=[8, 4, 4],
            axes_lens=[256, 32, 32],
        )
        for tokens in (transformer.x_pad_token, transformer.cap_pad_token):
            tokens.data.normal_()
    return ZImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=tiny_vae(seed, scaling_factor=0.5, shift_factor=0.1),
        text_encoder=model.model,
        tokenizer=tokenizer,
        transformer=transformer.eval(),
    )


def tiny_sd3(seed: int = 0) -> Any:
    """Build a StableDiffusion3Pipeline: two CLIPs and T5, flow matching."""
    from diffusers import (
        FlowMatchEulerDiscreteScheduler,
        SD3Transformer2DModel,
        StableDiffusion3Pipeline,
    )

    clip, words = tiny_clip_tokenizer(), tiny_word_tokenizer()
    with fixed_weights(seed):
        transformer = SD3Transformer2DModel(
            sample_size=16,
            patch_size=2,
            in_channels=4,
            out_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_projection_dim=32,
            joint_attention_dim=64,
            pooled_projection_dim=64,
        )
        encoders = tiny_clip_text(clip, projected=True), tiny_clip_text(clip, projected=True)
        text_encoder_3 = tiny_t5(words, width=64)
    return StableDiffusion3Pipeline(
        transformer=transformer.eval(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        vae=tiny_vae(seed, scaling_factor=0.5, shift_factor=0.1),
        text_encoder=encoders[0],
        tokenizer=clip,
        text_encoder_2=encoders[1],
        tokenizer_2=clip,
        text_encoder_3=text_encoder_3,
        tokenizer_3=words,
    )


def tiny_flux(seed: int = 0, *, guidance_embeds: bool = True) -> Any:
    """Build a FluxPipeline: packed latents and, as in FLUX.1 dev, the guidance scale as an input of
    the transformer. schnell has none (``guidance_embeds``), and no shift by the size."""
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    clip, words = tiny_clip_tokenizer(), tiny_word_tokenizer()
    with fixed_weights(seed):
        transformer = FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            guidance_embeds=guidance_embeds,
            axes_dims_rope=(4, 4, 8),
        )
        encoders = tiny_clip_text(clip), tiny_t5(words)
    return FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=guidance_embeds),
        vae=tiny_vae(seed, scaling_factor=0.5, shift_factor=0.1),
        text_encoder=encoders[0],
        tokenizer=clip,
        text_encoder_2=encoders[1],
        tokenizer_2=words,
        transformer=transformer.eval(),
    )


def sana_parts(seed: int = 0, **transformer: Any) -> dict[str, Any]:
    """Build what Sana and Sana-Sprint share, with these changes to the transformer: linear
    attention, deep-compression autoencoder, Gemma's hidden states."""
    from diffusers import AutoencoderDC, SanaTransformer2DModel
    from transformers import Gemma2Config, Gemma2Model

    tokenizer = tiny_word_tokenizer()
    text = Gemma2Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        head_dim=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    coder: dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        coder[f"{side}_block_types"] = ("ResBlock", "ResBlock", "EfficientViTBlock")
        coder[f"{side}_block_out_channels"] = (8, 8, 8)
        coder[f"{side}_qkv_multiscales"] = ((), (), (5,))
        coder[f"{side}_layers_per_block"] = (1, 1, 1)
    with fixed_weights(seed):
        vae = AutoencoderDC(latent_channels=4, attention_head_dim=2, scaling_factor=0.5, **coder)
        network = SanaTransformer2DModel(
            in_channels=4,
            out_channels=4,
            num_layers=1,
            num_attention_heads=2,
            attention_head_dim=8,
            num_cross_attention_heads=2,
            cross_attention_head_dim=8,
            cross_attention_dim=16,
            caption_channels=16,
            sample_size=32,
            patch_size=1,
            **transformer,
        )
        text_encoder = Gemma2Model(text).eval()
    return {
        "tokenizer": tokenizer,
        "text_encoder": text_encoder,
        "vae": vae.eval(),
        "transformer": network.eval(),
    }


def tiny_sana(seed: int = 0) -> Any:
    """Build a SanaPipeline: DPM-Solver++ on flow sigmas."""
    from diffusers import DPMSolverMultistepScheduler, SanaPipeline

    return SanaPipeline(
        **sana_parts(seed),
        scheduler=DPMSolverMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )


def tiny_pixart(seed: int = 0) -> Any:
    """Build a PixArtSigmaPipeline: a transformer that puts out a variance too, DPM-Solver++."""
    from diffusers import (
        DPMSolverMultistepScheduler,
        PixArtSigmaPipeline,
        PixArtTransformer2DModel,
    )

    tokenizer = tiny_word_tokenizer()
    with fixed_weights(seed):
        transformer = PixArtTransformer2DModel(
            sample_size=16,
            num_layers=2,
            patch_size=2,
            attention_head_dim=8,
            num_attention_heads=4,
            caption_channels=32,
            in_channels=4,
            out_channels=8,
            cross_attention_dim=32,
            use_additional_conditions=False,
        )
        text_encoder = tiny_t5(tokenizer)
    return PixArtSigmaPipeline(
        tokenizer=tokenizer,
        text_encoder=text_encoder,
        vae=tiny_vae(seed, scaling_factor=0.5),
        transformer=transformer.eval(),
        scheduler=DPMSolverMultistepScheduler(),
    )


def tiny_qwen_image(seed: int = 0, *, stages: int = 3) -> Any:
    """Build a QwenImagePipeline: packed latents of a video autoencoder, two-pass guidance. Its
    autoencoder divides sides by 2 to the power of ``stages`` - 1."""
    from diffusers import (
        AutoencoderKLQwenImage,
        FlowMatchEulerDiscreteScheduler,
        QwenImagePipeline,
        QwenImageTransformer2DModel,
    )
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    tokenizer = tiny_byte_tokenizer()
    narrow = {"hidden_size": 16, "intermediate_size": 16}
    rope = {"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 1e6}
    text = Qwen2_5_VLConfig(
        text_config={
            **narrow,
            "vocab_size": len(tokenizer),
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "rope_scaling": rope,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
            "eos_token_id": tokenizer.eos_token_id,
        },
        vision_config={**narrow, "depth": 1, "num_heads": 2, "out_hidden_size": 16},
    )
    with fixed_weights(seed):
        vae = AutoencoderKLQwenImage(
            base_dim=4,
            z_dim=4,
            dim_mult=[1] * stages,
            num_res_blocks=1,
            temperal_downsample=[False] * (stages - 2) + [True],
            latents_mean=[0.1, -0.1, 0.2, 0.0],
            latents_std=[0.5, 1.0, 2.0, 1.5],
        )
        transformer = QwenImageTransformer2DModel(
            in_channels=16,
            out_channels=4,
            num_layers=2,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=16,
            axes_dims_rope=(8, 4, 4),
        )
        text_encoder = Qwen2_5_VLForConditionalGeneration(text).eval()
    return QwenImagePipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=vae.eval(),
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        transformer=transformer.eval(),
    )
