"""What a pipeline's call takes, and checks that turn wrong input into one clear line."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from t2x.errors import T2XError
from t2x.plain import is_text

OWN_ARGUMENTS = (
    "prompt",
    "negative_prompt",
    "image",
    "generator",
    "output_type",
    "return_dict",
    "latents",
)

# Bytes a pixel that decoding takes at the least: a picture in float32 four times (the output, the
# batch, and while it is rounded), where networks of a hundred channels would be another 400.
_DECODING = 4 * 3 * 4

SHOWN_DEFAULTS = ("num_inference_steps", "guidance_scale", "true_cfg_scale", "num_frames")

__all__ = [
    "call_arguments",
    "check_prompts",
    "check_room",
    "checked_sampling",
    "default_arguments",
    "guidance_acts",
    "negative_matters",
    "of_rows",
    "with_size",
]


def call_arguments(pipeline: Any) -> dict[str, Any]:
    """Give the arguments of a pipeline's call with their defaults.

    Raises T2XError for a pipeline that is not driven by a prompt and a random generator.
    """
    arguments = default_arguments(type(pipeline))
    if "prompt" not in arguments or "generator" not in arguments:
        raise T2XError(
            f"{type(pipeline).__name__} takes no prompt or no generator; give a text-to-image or "
            "text-to-video pipeline"
        )
    return arguments


def default_arguments(kind: type) -> dict[str, Any]:
    """Give the arguments of the call of a class of pipelines with their defaults."""
    parameters = inspect.signature(kind.__call__).parameters
    arguments = {k: p.default for k, p in parameters.items() if p.kind != p.VAR_KEYWORD}
    return {k: v for k, v in arguments.items() if k != "self"}


def negative_matters(
    kind: type, arguments: Mapping[str, Any], sampling: Mapping[str, Any], pipeline: Any
) -> bool:
    """Whether a negative prompt has any effect: the call takes one and guidance is on (see
    ``guidance_acts``)."""
    return "negative_prompt" in arguments and guidance_acts(kind, arguments, sampling, pipeline)


def guidance_acts(
    kind: type, arguments: Mapping[str, Any], sampling: Mapping[str, Any], pipeline: Any
) -> bool:
    """Whether a call predicts without the prompt, too, for classifier-free guidance.

    Thresholds differ between classes (1 for most, 0 for Z-Image), and distilled models take the
    scale as an input instead: the class's own property is asked of ``pipeline``, the loaded one or
    anything with the same parts.
    """
    if not {"negative_prompt", "negative_prompt_embeds"} & arguments.keys():
        return False
    settings = {**{k: arguments[k] for k in SHOWN_DEFAULTS if k in arguments}, **sampling}
    if "true_cfg_scale" in settings:
        return bool(settings["true_cfg_scale"] > 1)
    guider = getattr(pipeline, "guider", None)
    if guider is not None:  # HunyuanVideo-1.5
        return bool(guider.num_conditions > 1)
    scale = settings.get("guidance_scale")
    if scale is None:
        return False
    pipeline._guidance_scale = scale
    if "image_guidance_scale" in arguments:  # InstructPix2Pix asks for both
        pipeline._image_guidance_scale = sampling.get(
            "image_guidance_scale", arguments["image_guidance_scale"]
        )
    own = getattr(kind, "do_classifier_free_guidance", None)
    if isinstance(own, property) and own.fget is not None:
        return bool(own.fget(pipeline))
    return bool(scale > 1)


def checked_sampling(
    sampling: Mapping[str, Any], arguments: Mapping[str, Any], *, pipeline: str
) -> dict[str, Any]:
    """Refuse settings that the call of ``pipeline`` does not take or that are not the caller's."""
    allowed = {name for name in arguments if name not in OWN_ARGUMENTS and "per_prompt" not in name}
    for key in sampling:
        if key not in allowed:
            raise T2XError(
                f"{key!r} is no sampling setting of {pipeline}; allowed: "
                f"{', '.join(sorted(allowed))}"
            )
    steps = sampling.get("num_inference_steps", 1)
    if _whole("num_inference_steps", steps) < 1:
        raise T2XError(f"num_inference_steps must be at least 1, got {steps}")
    for key, value in sampling.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise T2XError(f"{key} must be a finite number, got {value}")
    return dict(sampling)


def with_size(
    sampling: Mapping[str, Any],
    arguments: Mapping[str, Any],
    *,
    size: tuple[int, int] | None,
    num_frames: int | None,
) -> dict[str, Any]:
    """Add size (height, width) and number of frames to the settings of a call, if it takes them."""
    call = dict(sampling)
    if size is not None:
        height, width = (_whole("size", side) for side in size)
        if min(height, width) < 1:
            raise T2XError(f"size is (height, width) in pixels, both positive; got {size}")
        if not {"height", "width"} <= arguments.keys():
            raise T2XError("this pipeline has one fixed size; leave size out")
        call.update(height=height, width=width)
    if num_frames is not None:
        if "num_frames" not in arguments:
            raise T2XError("this pipeline makes pictures; leave num_frames out")
        if _whole("num_frames", num_frames) < 1:
            raise T2XError(f"num_frames must be at least 1, got {num_frames}")
        call["num_frames"] = num_frames
    return call


def check_prompts(
    prompts: Sequence[str], *, negative: Sequence[str] | None, seeds: Sequence[int]
) -> None:
    """Refuse anything but N prompts, N seeds and none or N negative prompts. "" is a prompt."""
    if isinstance(prompts, str) or not all(isinstance(text, str) for text in prompts):
        raise T2XError("prompts must be a list of strings, one per sample")
    if not prompts:
        raise T2XError("no prompts given; give at least one")
    for text in negative or ():
        if not isinstance(text, str):
            kind = type(text).__name__
            raise T2XError(f"negative prompts must be strings ('' for none), got {kind}")
    for index, text in enumerate([*prompts, *(negative or ())]):
        if not is_text(text):
            raise T2XError(f"prompt {index % len(prompts)} is no valid Unicode text: {text[:40]!r}")
    if len(seeds) != len(prompts):
        raise T2XError(f"{len(prompts)} prompts but {len(seeds)} seeds; give one seed per sample")
    for seed in seeds:
        if not 0 <= _whole("a seed", seed) < 2**64:
            raise T2XError(f"seed {seed} is not in 0 ... 2**64 - 1")
    if negative is not None and (isinstance(negative, str) or len(negative) != len(prompts)):
        raise T2XError(
            f"{len(prompts)} prompts need as many negative prompts, one per sample ('' for none)"
        )


def check_room(call: Mapping[str, Any], model_id: str) -> None:
    """Refuse a picture or clip which, finished, is larger than the memory: a decoder holds several
    times as much, and a process that asks for it is killed without a word."""
    from t2x.memory.machine import available_bytes, readable_bytes

    height, width = call.get("height") or 0, call.get("width") or 0
    needed = _DECODING * height * width * (call.get("num_frames") or 1)
    room = available_bytes()
    if room is not None and needed > room:
        raise T2XError(
            f"{model_id}: {height}x{width} pixels need {readable_bytes(needed)} at the least, and "
            f"{readable_bytes(room)} of memory are free; ask for a smaller size or fewer frames"
        )


def of_rows(arguments: Mapping[str, Any], rows: Sequence[int]) -> dict[str, Any]:
    """Give arguments of a call for some of its rows: of those that are lists, one entry for each
    prompt, the entries of ``rows``."""
    return {
        key: [value[i] for i in rows] if isinstance(value, list) else value
        for key, value in arguments.items()
    }


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise T2XError(f"{name} must be a whole number, got {value!r}") from error
