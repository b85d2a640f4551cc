"""Pictures that a pipeline starts from: image to image, editing, image to video.

The argument of the call is ``image`` in all of diffusers' classes. What a list there means differs:
a picture for each prompt, or several references of one picture; of the latter, and of classes that
nobody has checked, each picture is drawn in a call of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from t2x.errors import T2XError

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

Sources: TypeAlias = "Tensor | Sequence[Tensor | Image]"
"""One picture for each prompt: (N, 3, H, W) in [0, 1], or N of (3, H, W), (1, 3, H, W) or PIL, of
any sizes."""

# A list is one picture for each prompt (read in diffusers 0.42, and tested: tests/families).
_ONE_FOR_EACH = (
    "CogVideoXImageToVideoPipeline",
    "FluxImg2ImgPipeline",
    "FluxKontextPipeline",
    "LTXImageToVideoPipeline",
    "QwenImageEditPipeline",
    "QwenImageImg2ImgPipeline",
    "SanaSprintImg2ImgPipeline",
    "StableDiffusion3Img2ImgPipeline",
    "StableDiffusionImg2ImgPipeline",
    "StableDiffusionInstructPix2PixPipeline",
    "StableDiffusionXLImg2ImgPipeline",
    "StableDiffusionXLInstructPix2PixPipeline",
    "ZImageImg2ImgPipeline",
)
# Others run at least one step of any strength.
_ROUNDED_DOWN = ("StableDiffusionImg2ImgPipeline", "StableDiffusionXLImg2ImgPipeline")
_OPTIONAL = (
    "Flux2KleinKVPipeline",
    "Flux2KleinPipeline",
    "Flux2Pipeline",
    "FluxKontextPipeline",
    "LTXConditionPipeline",
    "ZImageOmniPipeline",
)

__all__ = [
    "Sources",
    "check_strength",
    "checked_sources",
    "needs_source",
    "rows_of_call",
    "source_arguments",
    "source_digest",
    "takes_source",
]


def takes_source(arguments: Mapping[str, Any]) -> bool:
    """Whether a call with these arguments takes a source picture."""
    return "image" in arguments


def needs_source(kind: type, arguments: Mapping[str, Any]) -> bool:
    """Whether a class of pipelines draws nothing without a source picture."""
    return takes_source(arguments) and not _is(kind, _OPTIONAL)


def checked_sources(
    kind: type, arguments: Mapping[str, Any], sources: Sources | None, *, count: int
) -> list[Image] | None:
    """Give ``count`` RGB pictures of 8 bits, or None where there is no source.

    Raises T2XError where the pipeline needs sources and has none, or takes none, and for anything
    but one picture with numbers in [0, 1] for each prompt.
    """
    name = kind.__name__
    if "mask_image" in arguments:
        raise T2XError(
            f"{name} needs a mask, which is not supported; use its class without inpaint"
        )
    if sources is None:
        if needs_source(kind, arguments):
            raise T2XError(
                f"{name} starts from a picture: give sources=, one for each prompt (--source of "
                "t2x generate), or load the text-to-image or text-to-video class of this model"
            )
        return None
    if not takes_source(arguments):
        raise T2XError(
            f"{name} takes no source picture; leave it out, or load an image-to-image, editing or "
            "image-to-video class of this model (t2x edit edits with any class)"
        )
    pictures = [_picture(item) for item in _listed(sources)]
    if len(pictures) != count:
        raise T2XError(f"{count} prompts but {len(pictures)} sources; give one for each prompt")
    if any(base.__name__.startswith("Flux2") for base in kind.__mro__):
        for width, height in (picture.size for picture in pictures):
            if min(width, height) < 64 or max(width, height) > 8 * min(width, height):
                raise T2XError(
                    f"a source is {height}x{width} pixels; {name} takes 64 or more on each side, "
                    "and at most 8 times as many on one as on the other"
                )
    return pictures


def rows_of_call(kind: type, rows: list[int], pictures: Sequence[Image] | None) -> list[int]:
    """Give the first of ``rows`` that one call of a class of pipelines can draw: those whose
    sources are of a size, or one of them. ``pictures`` are those of all rows."""
    if pictures is None:
        return rows
    if not _is(kind, _ONE_FOR_EACH):
        return rows[:1]
    alike = [pictures[i].size == pictures[rows[0]].size for i in rows]
    return rows[: alike.index(False)] if False in alike else rows


def check_strength(kind: type, sampling: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
    """Refuse a ``strength`` that is none or leaves no step: it is the part of the steps that are
    run (but in LTXConditionPipeline, which calls that denoise_strength)."""
    if "strength" not in arguments or "denoise_strength" in arguments:
        return
    strength = sampling.get("strength", arguments["strength"])
    steps = sampling.get("num_inference_steps", arguments["num_inference_steps"])
    if not isinstance(strength, (int, float)) or not 0 < strength <= 1:
        raise T2XError(f"strength is {strength!r}; give more than 0 and at most 1")
    if _is(kind, _ROUNDED_DOWN) and int(steps * strength) < 1:
        raise T2XError(
            f"strength {strength:g} of {steps} steps runs none of them; give a strength of "
            f"{1 / steps:.2g} or more, or more steps"
        )


def source_arguments(
    pipe: Any, call: Mapping[str, Any], arguments: Mapping[str, Any], pictures: Sequence[Image]
) -> dict[str, Any]:
    """Give ``image`` of a call, and height and width where the class would stretch the picture to
    its own default: image-to-image pipelines draw at the size of the source unless told otherwise.

    ``call`` are the settings so far, ``pictures`` those of the prompts of this call, all of a size.
    """
    found: dict[str, Any] = {"image": list(pictures)}
    if not _is(type(pipe), _ONE_FOR_EACH):
        found["image"] = pictures[0]
    sized = {"strength", "height", "width"} <= arguments.keys()
    if sized and call.get("height") is None and call.get("width") is None:
        side = 2 * int(pipe.vae_scale_factor)
        width, height = pictures[0].size
        found["height"], found["width"] = (max(side, n // side * side) for n in (height, width))
    return found


def source_digest(picture: Any) -> str:
    """Name a source picture, (3, H, W), (1, 3, H, W) or PIL, by its pixels: 16 hex digits, for the
    key of what is drawn from it (``t2x.store.media_key``)."""
    image = _picture(picture)
    return hashlib.sha256(f"{image.size}".encode() + image.tobytes()).hexdigest()[:16]


def _listed(sources: Any) -> list[Any]:
    import torch

    if isinstance(sources, torch.Tensor):
        if sources.ndim != 4:
            raise T2XError(
                f"sources are (N, 3, H, W) in [0, 1] or a list of pictures; got shape "
                f"{tuple(sources.shape)}"
            )
        return list(sources)
    if isinstance(sources, (str, bytes)) or not isinstance(sources, Sequence):
        raise T2XError(
            f"sources are (N, 3, H, W) in [0, 1] or a list of pictures, got "
            f"{type(sources).__name__}; read files with t2x.media.load_picture"
        )
    return list(sources)


def _picture(item: Any) -> Image:
    """An RGB picture of 8 bits."""
    import torch
    from PIL import Image

    from t2x.media import from_pil, to_pil

    if isinstance(item, Image.Image):
        pixels = from_pil([item])
    elif isinstance(item, torch.Tensor):
        pixels = item.unsqueeze(0) if item.ndim == 3 else item
        if pixels.ndim != 4 or pixels.shape[:2] != (1, 3) or not pixels.is_floating_point():
            raise T2XError(
                f"a source is (3, H, W) or (1, 3, H, W) of numbers in [0, 1]; got {item.dtype} of "
                f"shape {tuple(item.shape)}"
            )
        low, high = (float(edge) for edge in pixels.aminmax())
        if not -1e-3 <= low <= high <= 1 + 1e-3:  # False for NaN, too
            raise T2XError(f"a source holds numbers from {low:g} to {high:g}; give [0, 1]")
    else:
        raise T2XError(
            f"a source is a tensor or a PIL picture, got {type(item).__name__}; read files with "
            "t2x.media.load_picture"
        )
    return to_pil(pixels)[0]


def _is(kind: type, names: Sequence[str]) -> bool:
    return not {base.__name__ for base in kind.__mro__}.isdisjoint(names)
