"""Tiny pipelines that start from a picture: image to image, editing and image to video, from the
parts of their text-to-image and text-to-video counterparts (see ``pipelines``).

``EDITING`` builds one of each; ``EDITING_CALLS`` holds the arguments of a short call but for the
picture, which ``SOURCE_SIDES`` gives the smallest side of where it is not 32 pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from t2x.testing.distilled_pipelines import tiny_flux2, tiny_flux2_klein, tiny_sana_sprint
from t2x.testing.families import CALLS
from t2x.testing.models import fixed_weights
from t2x.testing.pipelines import (
    tiny_flux,
    tiny_qwen_image,
    tiny_sd3,
    tiny_sdxl,
    tiny_stable_diffusion,
    tiny_unet,
    tiny_z_image,
)
from t2x.testing.video_pipelines import tiny_cogvideox, tiny_ltx, tiny_wan

__all__ = [
    "EDITING",
    "EDITING_CALLS",
    "SOURCE_SIDES",
    "tiny_cogvideox_i2v",
    "tiny_ltx_condition",
    "tiny_qwen_image_edit",
    "tiny_wan_i2v",
]


def _as(name: str, build: Callable[..., Any], seed: int = 0) -> Any:
    """The parts of what ``build`` gives in another class of diffusers."""
    import diffusers

    pipe = build(seed)
    settings = {"requires_safety_checker": False} if "safety_checker" in pipe.components else {}
    return getattr(diffusers, name)(**pipe.components, **settings)


def _sdxl_as(name: str, seed: int = 0) -> Any:
    import diffusers

    return getattr(diffusers, name)(**tiny_sdxl(seed).components, add_watermarker=False)


def tiny_instruct_pix2pix(seed: int = 0) -> Any:
    """Build a StableDiffusionInstructPix2PixPipeline: the source's latents beside x_t, three
    passes."""
    from diffusers import EulerAncestralDiscreteScheduler

    pipe = _as("StableDiffusionInstructPix2PixPipeline", tiny_stable_diffusion, seed)
    with fixed_weights(seed):
        pipe.register_modules(unet=tiny_unet(in_channels=8))
    pipe.scheduler = EulerAncestralDiscreteScheduler()
    return pipe


def tiny_qwen_image_edit(seed: int = 0, *, name: str = "QwenImageEditPipeline") -> Any:
    """Build a QwenImageEditPipeline, or ``name``: Qwen2.5-VL reads the source, too. The class draws
    and encodes a million pixels whatever the source, so its autoencoder divides sides by 32."""
    import diffusers
    from transformers import (
        AddedToken,
        Qwen2VLImageProcessor,
        Qwen2VLProcessor,
        Qwen2VLVideoProcessor,
    )

    pipe = tiny_qwen_image(seed, stages=6)
    tokenizer, sizes = pipe.tokenizer, {"shortest_edge": 784, "longest_edge": 784 * 4}
    marks = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer.add_tokens([AddedToken(mark, special=True) for mark in marks], special_tokens=True)
    text = pipe.text_encoder
    with fixed_weights(seed):
        text.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    ids = {mark: tokenizer.convert_tokens_to_ids(mark) for mark in marks}
    text.config.image_token_id = ids["<|image_pad|>"]
    text.config.video_token_id = ids["<|video_pad|>"]
    text.config.vision_start_token_id = ids["<|vision_start|>"]
    return getattr(diffusers, name)(
        **pipe.components,
        processor=Qwen2VLProcessor(
            image_processor=Qwen2VLImageProcessor(size=sizes),
            tokenizer=tokenizer,
            video_processor=Qwen2VLVideoProcessor(size=sizes),
        ),
    )


def tiny_wan_i2v(seed: int = 0, *, experts: int = 1) -> Any:
    """Build a WanImageToVideoPipeline: as Wan 2.1's with CLIP's embedding of the source, or as Wan
    2.2's with two ``experts`` and without."""
    from diffusers import WanImageToVideoPipeline
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

    see: dict[str, Any] = {} if experts == 2 else {"image_dim": 16, "added_kv_proj_dim": 24}
    parts = tiny_wan(seed, experts=experts, in_channels=36, **see).components
    clip: dict[str, Any] = {}
    if experts == 1:
        tower = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
        config = CLIPVisionConfig(**tower, num_hidden_layers=2, image_size=16, patch_size=8)
        size = {"height": 16, "width": 16}
        with fixed_weights(seed):
            clip["image_encoder"] = CLIPVisionModel(config).eval()
        clip["image_processor"] = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=size)
    ratio = 0.5 if experts == 2 else None
    return WanImageToVideoPipeline(**{**parts, **clip}, boundary_ratio=ratio)


def tiny_cogvideox_i2v(seed: int = 0) -> Any:
    """Build a CogVideoXImageToVideoPipeline: the source's latents beside those of each frame."""
    from diffusers import CogVideoXImageToVideoPipeline

    return CogVideoXImageToVideoPipeline(**tiny_cogvideox(seed, in_channels=8).components)


def tiny_ltx_condition(seed: int = 0) -> Any:
    """Build an LTXConditionPipeline: pictures stand in for frames, and steps have a level for each
    token. The class of LTX's distilled models, whose schedule does not shift with the size."""
    from diffusers import FlowMatchEulerDiscreteScheduler, LTXConditionPipeline

    pipe = LTXConditionPipeline(**tiny_ltx(seed, timestep_conditioning=True).components)
    changes = {"use_dynamic_shifting": False, "shift_terminal": None}
    pipe.scheduler = FlowMatchEulerDiscreteScheduler.from_config(pipe.scheduler.config, **changes)
    return pipe


EDITING: Mapping[str, Callable[..., Any]] = {
    "sd15-img2img": partial(_as, "StableDiffusionImg2ImgPipeline", tiny_stable_diffusion),
    "pix2pix": tiny_instruct_pix2pix,
    "sdxl-img2img": partial(_sdxl_as, "StableDiffusionXLImg2ImgPipeline"),
    "sd3-img2img": partial(_as, "StableDiffusion3Img2ImgPipeline", tiny_sd3),
    "flux-img2img": partial(_as, "FluxImg2ImgPipeline", tiny_flux),
    "kontext": partial(_as, "FluxKontextPipeline", tiny_flux),
    "flux2-edit": tiny_flux2,
    "klein-edit": tiny_flux2_klein,
    "sprint-img2img": partial(_as, "SanaSprintImg2ImgPipeline", tiny_sana_sprint),
    "qwen-img2img": partial(_as, "QwenImageImg2ImgPipeline", tiny_qwen_image),
    "qwen-edit": tiny_qwen_image_edit,
    "qwen-edit-plus": partial(tiny_qwen_image_edit, name="QwenImageEditPlusPipeline"),
    "z-img2img": partial(_as, "ZImageImg2ImgPipeline", tiny_z_image),
    "wan-i2v": tiny_wan_i2v,
    "wan22-i2v": partial(tiny_wan_i2v, experts=2),
    "cogvideox-i2v": tiny_cogvideox_i2v,
    "ltx-i2v": partial(_as, "LTXImageToVideoPipeline", tiny_ltx),
    "ltx-condition": tiny_ltx_condition,
}

SOURCE_SIDES: Mapping[str, int] = {"flux2-edit": 64, "klein-edit": 64}


def _call(family: str, **more: Any) -> dict[str, Any]:
    """The call of a family, without the size where the class takes that of the source."""
    return {k: v for k, v in CALLS[family].items() if k not in ("height", "width")} | more


EDITING_CALLS: Mapping[str, Mapping[str, Any]] = {
    "sd15-img2img": _call("sd15", strength=0.5),
    "pix2pix": _call("sd15"),
    "sdxl-img2img": _call("sdxl", strength=0.5),
    "sd3-img2img": _call("sd3", strength=0.5),
    "flux-img2img": _call("flux", strength=0.5),
    "kontext": {**CALLS["flux"], "max_area": 32 * 32, "_auto_resize": False},
    "flux2-edit": CALLS["flux2"],
    "klein-edit": CALLS["klein"],
    "sprint-img2img": {**CALLS["sprint"], "strength": 0.5},
    "qwen-img2img": _call("qwen", strength=0.5),
    "qwen-edit": {**CALLS["qwen"], "height": 64, "width": 64},
    "qwen-edit-plus": {**CALLS["qwen"], "height": 64, "width": 64},
    "z-img2img": _call("z", strength=0.5),
    "wan-i2v": CALLS["wan"],
    "wan22-i2v": CALLS["wan"],
    "cogvideox-i2v": CALLS["cogvideox"],
    "ltx-i2v": CALLS["ltx"],
    "ltx-condition": CALLS["ltx"],
}
