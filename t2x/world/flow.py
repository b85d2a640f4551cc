"""What belongs to emoji-flow outside its recipe: its sampler, and the autoencoder that other
recipes build on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.world.weights import is_present, model_dir

if TYPE_CHECKING:
    from diffusers import AutoencoderKL, DPMSolverMultistepScheduler

__all__ = ["AUTOENCODER_STAGES", "find_vae", "flow_scheduler", "load_drawer", "load_vae"]

log = logging.getLogger(__name__)

AUTOENCODER_STAGES = ("emoji-decoder", "emoji-vae")  # the later one first: it holds the earlier


def flow_scheduler(**changes: Any) -> DPMSolverMultistepScheduler:
    """The stock sampler for flow models; ``steps_offset`` has no effect here but the pipeline asks
    for 1."""
    from diffusers import DPMSolverMultistepScheduler

    settings = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "steps_offset": 1}
    return DPMSolverMultistepScheduler(**{**settings, **changes})


def find_vae(out: Path, stages: Sequence[str] = AUTOENCODER_STAGES) -> Path | None:
    """Folder of the autoencoder that the first of ``stages`` trained beside ``out``, else of the
    embedded one; None without either."""
    folders = [*(out.parent / stage / "vae" for stage in stages), model_dir("emoji-flow") / "vae"]
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def load_vae(
    out: Path, *, start: Path | None = None, stages: Sequence[str] = AUTOENCODER_STAGES
) -> AutoencoderKL:
    """Load the autoencoder in float32 and freeze it: that of the pipeline ``start``, whose latents
    its UNet knows, or what ``find_vae`` finds.

    Raises ``T2XError`` where there is none.
    """
    import torch
    from diffusers import AutoencoderKL

    folder = start / "vae" if start else find_vae(out, stages)
    if folder is None:
        raise T2XError(
            "no autoencoder: run `t2x world train emoji-vae` with an --out beside this one first"
        )
    if not (folder / "config.json").is_file():
        raise T2XError(f"no autoencoder in {folder}; --start takes the folder of a whole pipeline")
    vae: AutoencoderKL = AutoencoderKL.from_pretrained(folder, dtype=torch.float32)
    return vae.eval().requires_grad_(False)


def load_drawer(folder: Path | None = None) -> Any:
    """The emoji-flow pipeline that redraws training pictures: from ``folder``, the embedded one
    without; None where there is none.
    """
    if folder is None and is_present("emoji-flow"):
        folder = model_dir("emoji-flow")
    if folder is None:
        log.warning("no emoji-flow yet: training goes on without pictures that it has redrawn")
        return None
    import torch
    from diffusers import StableDiffusionPipeline

    return StableDiffusionPipeline.from_pretrained(folder, dtype=torch.float32)
