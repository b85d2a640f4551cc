"""Tiny video pipelines from their real classes, for clips of 1 + 4k frames (see ``pipelines``)."""

from __future__ import annotations

from typing import Any

from t2x.testing.models import (
    fixed_weights,
    tiny_byte_tokenizer,
    tiny_t5,
    tiny_word_tokenizer,
)

__all__ = ["tiny_cogvideox", "tiny_hunyuan_video", "tiny_ltx", "tiny_wan"]


def tiny_wan(
    seed: int = 0, *, experts: int = 1, expand_timesteps: bool = False, **transformer: Any
) -> Any:
    """Build a WanPipeline for videos of 1 + 4k frames and sizes in multiples of 16.

    With two ``experts``, as in Wan 2.2, the second takes the noise levels below half; with
    ``expand_timesteps``, as in its model of 5B, each token is told its level. Further settings are
    those of its transformers.
    """
    from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanPipeline
    from diffusers import WanTransformer3DModel as Transformer
    from transformers import UMT5Config, UMT5EncoderModel

    tokenizer = tiny_word_tokenizer(max_length=512)
    text = UMT5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=4
    )
    with fixed_weights(seed):
        vae = AutoencoderKLWan(base_dim=8, z_dim=16, dim_mult=[1, 1, 1, 1], num_res_blocks=1)
        first, *second = (
            Transformer(
                num_attention_heads=2,
                attention_head_dim=12,
                text_dim=32,
                freq_dim=32,
                ffn_dim=32,
                num_layers=2,
                rope_max_seq_len=32,
                **transformer,
            ).eval()
            for _ in range(experts)
        )
        return WanPipeline(
            tokenizer=tokenizer,
            text_encoder=UMT5EncoderModel(text).eval(),
            vae=vae.eval(),
            scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
            transformer=first,
            transformer_2=second[0] if second else None,
            boundary_ratio=0.5 if second else None,
            expand_timesteps=expand_timesteps,
        )


def tiny_cogvideox(seed: int = 0, *, patch_size_t: int | None = None, in_channels: int = 4) -> Any:
    """Build a CogVideoXPipeline for videos of 1 + 4k frames: v-prediction, DDIM.

    With ``patch_size_t``, as in CogVideoX 1.5, latent frames are padded to a multiple of it;
    ``in_channels`` of the transformer are 8 where it sees a source picture, too.
    """
    from diffusers import (
        AutoencoderKLCogVideoX,
        CogVideoXDDIMScheduler,
        CogVideoXPipeline,
        CogVideoXTransformer3DModel,
    )

    tokenizer = tiny_word_tokenizer()
    with fixed_weights(seed):
        vae = AutoencoderKLCogVideoX(
            down_block_types=("CogVideoXDownBlock3D",) * 4,
            up_block_types=("CogVideoXUpBlock3D",) * 4,
            block_out_channels=(8, 8, 8, 8),
            latent_channels=4,
            layers_per_block=1,
            norm_num_groups=2,
            temporal_compression_ratio=4,
            scaling_factor=0.7,
        )
        transformer = CogVideoXTransformer3DModel(
            num_attention_heads=2,
            attention_head_dim=16,
            in_channels=in_channels,
            out_channels=4,
            time_embed_dim=8,
            text_embed_dim=32,
            num_layers=2,
            sample_width=4,
            sample_height=4,
            sample_frames=9,
            patch_size=2,
            patch_size_t=patch_size_t,
            patch_bias=patch_size_t is None,
            use_rotary_positional_embeddings=patch_size_t is not None,
            temporal_compression_ratio=4,
            max_text_seq_length=16,
        )
        text_encoder = tiny_t5(tokenizer)
    return CogVideoXPipeline(
        tokenizer=tokenizer,
        text_encoder=text_encoder,
        vae=vae.eval(),
        transformer=transformer.eval(),
        scheduler=CogVideoXDDIMScheduler(
            prediction_type="v_prediction", rescale_betas_zero_snr=True, timestep_spacing="trailing"
        ),
    )


def tiny_ltx(seed: int = 0, **coder: Any) -> Any:
    """Build an LTXPipeline for videos of 1 + 4k frames: packed video latents. ``coder`` are further
    settings of its autoencoder: timestep_conditioning and decoder_inject_noise, as in LTX 0.9.1."""
    from diffusers import (
        AutoencoderKLLTXVideo,
        FlowMatchEulerDiscreteScheduler,
        LTXPipeline,
        LTXVideoTransformer3DModel,
    )

    tokenizer = tiny_word_tokenizer()
    for side in ("", "decoder_"):
        coder[f"{side}block_out_channels"] = (8, 8, 8, 8)
        coder[f"{side}layers_per_block"] = (1, 1, 1, 1, 1)
        coder[f"{side}spatio_temporal_scaling"] = (True, True, False, False)
    with fixed_weights(seed):
        vae = AutoencoderKLLTXVideo(latent_channels=8, patch_size=2, scaling_factor=0.8, **coder)
        transformer = LTXVideoTransformer3DModel(
            in_channels=8,
            out_channels=8,
            num_attention_heads=2,
            attention_head_dim=16,
            cross_attention_dim=32,
            num_layers=1,
            caption_channels=32,
        )
        text_encoder = tiny_t5(tokenizer)
        vae.latents_mean.normal_()
        vae.latents_std.uniform_(0.5, 2.0)
    return LTXPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(
            use_dynamic_shifting=True, shift_terminal=0.1, base_shift=0.95, max_shift=2.05
        ),
        vae=vae.eval(),
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        transformer=transformer.eval(),
    )


def tiny_hunyuan_video(seed: int = 0) -> Any:
    """Build a HunyuanVideo15Pipeline for videos of 1 + 4k frames: a guider in place of a guidance
    scale, and no callback. It reads 32 tokens here, and some thousand once it was saved."""
    from diffusers import (
        AutoencoderKLHunyuanVideo15,
        ClassifierFreeGuidance,
        FlowMatchEulerDiscreteScheduler,
        HunyuanVideo15Pipeline,
        HunyuanVideo15Transformer3DModel,
    )
    from transformers import ByT5Tokenizer, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

    tokenizer, glyphs = tiny_byte_tokenizer(), ByT5Tokenizer()
    text = Qwen2_5_VLTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        rope_parameters={"mrope_section": [1, 1, 2], "rope_type": "default", "rope_theta": 1e6},
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with fixed_weights(seed):
        vae = AutoencoderKLHunyuanVideo15(
            latent_channels=4,
            block_out_channels=(8, 8, 8),
            layers_per_block=1,
            spatial_compression_ratio=4,
            temporal_compression_ratio=4,
        )
        transformer = HunyuanVideo15Transformer3DModel(
            in_channels=9,
            out_channels=4,
            num_attention_heads=2,
            attention_head_dim=16,
            num_layers=1,
            num_refiner_layers=1,
            text_embed_dim=16,
            text_embed_2_dim=32,
            image_embed_dim=8,
            rope_axes_dim=(4, 6, 6),
            target_size=32,
            task_type="t2v",
        )
        encoders = Qwen2_5_VLTextModel(text).eval(), tiny_t5(glyphs)
    pipe = HunyuanVideo15Pipeline(
        text_encoder=encoders[0],
        tokenizer=tokenizer,
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=FlowMatchEulerDiscreteScheduler(shift=3.0),
        text_encoder_2=encoders[1],
        tokenizer_2=glyphs,
        guider=ClassifierFreeGuidance(guidance_scale=3.0),
    )
    pipe.system_message, pipe.prompt_template_encode_start_idx = "", 0
    pipe.tokenizer_max_length, pipe.tokenizer_2_max_length = 32, 8
    pipe.vision_num_semantic_tokens = 4
    return pipe
