"""Loads a published generator as its preset says: files, number formats, scheduler."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import MissingDependencyError, T2XError
from t2x.failures import reading
from t2x.generators.defaults import is_recorded
from t2x.generators.loading import load_pipeline, quiet, resolve_dtype
from t2x.settings import read_object
from t2x.weight_files import names_file

if TYPE_CHECKING:
    import torch

    from t2x.generators.presets import ModelPreset

log = logging.getLogger(__name__)

__all__ = ["load_published", "number_formats", "published_options", "with_scheduler"]


def load_published(
    source: str | Path,
    preset: ModelPreset | None,
    *,
    formats: Mapping[str, torch.dtype],
    revision: str | None,
    options: Mapping[str, Any],
) -> Any:
    """Load a pipeline on the CPU, in the number formats of ``number_formats``.

    The preset's scheduler is set, but not in a folder, which has its own, and not over the
    caller's. ``options`` (``published_options``) go to ``DiffusionPipeline.from_pretrained``.
    Raises T2XError, of what is on the hub with what would have been downloaded.
    """
    dtype = dict(formats) if len(formats) > 1 else formats["default"]
    if preset is None:
        return load_pipeline(source, dtype=dtype, revision=revision, options=options)
    given = dict(options)
    try:
        if preset.denoiser_file and str(source) == preset.hub[0]:
            unet = _denoiser(preset, formats["default"], revision, given)
            source, revision, given = preset.base, None, {"unet": unet, **given}
        pipeline = load_pipeline(source, dtype=dtype, revision=revision, options=given)
    except MissingDependencyError:
        raise
    except T2XError as error:
        if Path(source).is_dir() or names_file(source):
            raise
        raise T2XError(f"{error}; {preset.name} loads {preset.download}") from error
    if "scheduler" not in options and not is_recorded(source):
        pipeline.scheduler = with_scheduler(preset, pipeline.scheduler)
    return pipeline


def published_options(
    source: str | Path, preset: ModelPreset | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Give the options of loading with the variant of the files that the preset names; the caller's
    own wins."""
    if preset is None or preset.variant is None or str(source) != preset.hub[0]:
        return dict(given)
    return {"variant": preset.variant, **given}


def number_formats(
    preset: ModelPreset | None, dtype: str | torch.dtype | None, device: torch.device
) -> dict[str, torch.dtype]:
    """Give the number format of each component that has its own, and the "default" of the others.

    A ``dtype`` of None is the preset's on an accelerator, else the device's own.
    """
    if preset is None or dtype is not None or device.type == "cpu":
        return {"default": resolve_dtype(dtype, device)}
    # bfloat16 only where it is fast; float16 is what its authors ask for
    whole = None if preset.dtype == "bfloat16" else preset.dtype
    parts = {name: resolve_dtype(text, device) for name, text in preset.parts_dtype.items()}
    return {"default": resolve_dtype(whole, device), **parts}


def with_scheduler(preset: ModelPreset, scheduler: Any) -> Any:
    """Give the scheduler that the preset wants, with what it does not say from ``scheduler``."""
    import diffusers

    config = scheduler.config
    changed = any(config.get(key) != value for key, value in preset.scheduler_changes.items())
    if type(scheduler).__name__ == preset.scheduler and not changed:
        return scheduler
    with quiet():
        kind = getattr(diffusers, preset.scheduler)
        return kind.from_config(config, **preset.scheduler_changes)


def _denoiser(
    preset: ModelPreset,
    dtype: torch.dtype,
    revision: str | None,
    options: Mapping[str, Any],
) -> Any:
    """The UNet of a repository that holds nothing else, in the shape of the base's."""
    import torch
    from diffusers import UNet2DConditionModel
    from huggingface_hub import hf_hub_download
    from safetensors.torch import load_file

    own = {k: options[k] for k in ("cache_dir", "local_files_only", "token") if k in options}
    what = f"{preset.denoiser_file} of"
    with reading(preset.hub[0], what, otherwise=(Exception,)), quiet(bars=True):
        config = read_object(Path(hf_hub_download(preset.base, "unet/config.json", **own)))
        path = hf_hub_download(preset.hub[0], preset.denoiser_file, revision=revision, **own)
        with torch.device("meta"):  # no random weights for what is overwritten
            unet = UNet2DConditionModel.from_config(config)
        unet.load_state_dict(load_file(path), assign=True)
    return unet.to(dtype).eval()
