"""The families of tiny pipelines that people use, by name, and short calls of them.

``FAMILIES`` have classifier-free guidance, ``DISTILLED`` take the guidance scale as an input, and
``VARIANTS`` are further models of some of them; ``CALLS`` holds the arguments of a short call of
each, with guidance where the family has it. What starts from a picture is in
``editing_pipelines.EDITING``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from t2x.testing.distilled_pipelines import (
    tiny_flux2,
    tiny_flux2_klein,
    tiny_sana_sprint,
    tiny_sdxl_lightning,
    tiny_sdxl_turbo,
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
from t2x.testing.video_pipelines import tiny_cogvideox, tiny_ltx, tiny_wan

__all__ = ["CALLS", "DISTILLED", "FAMILIES", "VARIANTS"]

FAMILIES: Mapping[str, Callable[..., Any]] = {
    "sd15": tiny_stable_diffusion,
    "sdxl": tiny_sdxl,
    "sd3": tiny_sd3,
    "flux": tiny_flux,
    "sana": tiny_sana,
    "qwen": tiny_qwen_image,
    "z": tiny_z_image,
    "pixart": tiny_pixart,
    "wan": tiny_wan,
    "cogvideox": tiny_cogvideox,
    "ltx": tiny_ltx,
    "klein": tiny_flux2_klein,
}
DISTILLED: Mapping[str, Callable[..., Any]] = {"flux2": tiny_flux2, "sprint": tiny_sana_sprint}
VARIANTS: Mapping[str, Callable[..., Any]] = {
    "turbo": tiny_sdxl_turbo,
    "lightning": tiny_sdxl_lightning,
    "schnell": partial(tiny_flux, guidance_embeds=False),
    "klein4": partial(tiny_flux2_klein, is_distilled=True),
    "wan22": partial(tiny_wan, experts=2),
    "wan5b": partial(tiny_wan, expand_timesteps=True),
    "cogvideox15": partial(tiny_cogvideox, patch_size_t=2),
}

_PICTURE = {"height": 32, "width": 32, "guidance_scale": 3.0}
_VIDEO = {**_PICTURE, "num_frames": 5}
_TRUE_CFG = {"height": 32, "width": 32, "true_cfg_scale": 3.0}
_UNBINNED = {"use_resolution_binning": False, "clean_caption": False, "max_sequence_length": 16}
_SANA = {**_PICTURE, **_UNBINNED, "complex_human_instruction": None}
_FLUX2 = {**_PICTURE, "max_sequence_length": 64, "text_encoder_out_layers": (0, 1, 2)}

CALLS: Mapping[str, Mapping[str, Any]] = {
    "sd15": _PICTURE,
    "sdxl": _PICTURE,
    "sd3": {**_PICTURE, "max_sequence_length": 16},
    "flux": {**_TRUE_CFG, "max_sequence_length": 16},
    "sana": _SANA,
    "qwen": _TRUE_CFG,
    "z": {**_PICTURE, "max_sequence_length": 16},
    "pixart": {**_PICTURE, **_UNBINNED},
    "wan": {**_VIDEO, "max_sequence_length": 16},
    "cogvideox": {**_VIDEO, "max_sequence_length": 16},
    "ltx": {**_VIDEO, "max_sequence_length": 16},
    "klein": _FLUX2,
    "flux2": _FLUX2,
    "sprint": _SANA,
    "turbo": {**_PICTURE, "guidance_scale": 0.0},
    "lightning": {**_PICTURE, "guidance_scale": 0.0},
    "schnell": {**_PICTURE, "guidance_scale": 0.0, "max_sequence_length": 16},
    "klein4": {**_FLUX2, "guidance_scale": 1.0},
    "wan22": {**_VIDEO, "max_sequence_length": 16},
    "wan5b": {**_VIDEO, "max_sequence_length": 16},
    "cogvideox15": {**_VIDEO, "num_frames": 9, "max_sequence_length": 16},
}
