"""What a pipeline must be for guidance: said before anything is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from t2x.errors import T2XError
from t2x.generators.calls import default_arguments
from t2x.guidance.latents import check_decoder
from t2x.guidance.step import DENOISERS

__all__ = [
    "check_noise_start",
    "check_pipeline",
    "check_whole_sample",
    "checkpointed",
    "starts_within",
]


def check_pipeline(pipe: Any, mode: str) -> None:
    """Raise T2XError where ``pipe`` can't be guided in ``mode``, with the reason and a way out.

    Both "E" and "J" differentiate through the autoencoder, "J" through the denoiser as well. What
    stands in the way of a gradient: torch.inference_mode, a compiled, quantised or offloaded
    module, a denoiser that reuses features of earlier steps (diffusers' caches).
    """
    name = type(pipe).__name__
    check_whole_sample(pipe)
    if torch.is_inference_mode_enabled():
        raise T2XError(
            "torch.inference_mode keeps no gradients, not even within enable_grad; guide outside "
            "of it (pipelines use torch.no_grad by themselves)"
        )
    check_decoder(pipe)
    for part in ("vae", *DENOISERS):
        module = getattr(pipe, part, None)
        if not isinstance(module, torch.nn.Module) or (mode != "J" and part != "vae"):
            continue
        if reason := _obstacle(module):
            way = 'use mode "E", or ' if part != "vae" else ""
            raise T2XError(
                f"the {part} of this {name} {reason[0]}, and no gradient passes that safely; "
                f"{way}{reason[1]}"
            )
    if mode == "J" and getattr(pipe, "_all_hooks", None):
        raise T2XError(
            f"this {name} moves its denoiser off the device (enable_model_cpu_offload) before the "
            'gradient comes back to it; use mode "E", or call remove_all_hooks() and keep it there'
        )


def check_whole_sample(pipe: Any) -> None:
    """Raise T2XError for a pipeline whose scheduler steps a part of the latents, which can't be
    decoded without the rest (LTX's image to video leaves the first frame out)."""
    if any(base.__name__ == "LTXImageToVideoPipeline" for base in type(pipe).__mro__):
        raise T2XError(
            f"{type(pipe).__name__} steps all frames but the first, which guidance can't decode "
            "alone; use best-of-N (mode search), or Wan's or CogVideoX's image to video"
        )


def starts_within(pipe: Any) -> bool:
    """Whether a pipeline starts within its list of timesteps, from a source picture with noise
    (picture to picture)."""
    return hasattr(pipe, "get_timesteps") and "strength" in default_arguments(type(pipe))


def check_noise_start(pipe: Any) -> None:
    """Raise T2XError for a pipeline whose first x_t is more than noise: what searches or optimises
    noise would take the source picture for it."""
    check_whole_sample(pipe)
    if starts_within(pipe):
        raise T2XError(
            f"{type(pipe).__name__} starts from a picture with noise, not from noise alone, which "
            'noise optimisation and zero-order search move; use mode "E", or best-of-N'
        )


def _obstacle(module: torch.nn.Module) -> tuple[str, str] | None:
    """(what it is, what to do) of something that a gradient does not pass, or None."""
    inner = list(module.modules())
    if any(hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in inner):
        return "is compiled", "load it without torch.compile"
    if getattr(module, "hf_quantizer", None) is not None or getattr(module, "is_quantized", False):
        return "is quantised", "load it in bfloat16"
    if any(p.device.type == "meta" for p in module.parameters()):
        return "is offloaded layer by layer", "leave enable_sequential_cpu_offload out"
    if any("group_offloading" in name for m in inner for name in _hooks(m)):
        return "is offloaded in groups", "leave enable_group_offload out"
    if getattr(module, "is_cache_enabled", False):
        return "reuses features of earlier steps", "call its disable_cache()"
    return None


def _hooks(module: torch.nn.Module) -> list[str]:
    """Names of diffusers' hooks on a module."""
    registry = getattr(module, "_diffusers_hook", None)
    return [] if registry is None else list(registry.hooks)


@contextmanager
def checkpointed(pipe: Any, mode: str) -> Iterator[None]:
    """Gradient checkpointing of what ``mode`` differentiates through, as it was afterwards.

    Raises T2XError for a part that has none (Wan's, Qwen-Image's and DC-AE's decoders).
    """
    parts = ("vae", *DENOISERS) if mode == "J" else ("vae",)
    with ExitStack() as stack:
        for name in parts:
            module = getattr(pipe, name, None)
            if module is None or getattr(module, "is_gradient_checkpointing", False):
                continue
            if not getattr(module, "_supports_gradient_checkpointing", False):
                raise T2XError(
                    f"{type(module).__name__}, the {name} of {type(pipe).__name__}, has no "
                    "gradient checkpointing; leave checkpointing out and decode less "
                    "(decode_scale, frames), or switch it on yourself where it is to be had "
                    "(pipe.transformer.enable_gradient_checkpointing())"
                )
            module.enable_gradient_checkpointing()
            stack.callback(module.disable_gradient_checkpointing)
        yield
