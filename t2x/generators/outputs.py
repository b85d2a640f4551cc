"""From whatever a pipeline returns to pixels, and refusal of what are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Media, Modality

__all__ = ["censored", "gathered", "pixels"]


def pixels(output: Any, modality: Modality) -> Tensor:
    """Take (N, 3, H, W) or (N, F, 3, H, W), float32 on the CPU, from a pipeline's output.

    Pipelines that know no tensor output give PIL pictures. Raises T2XError for another shape, and
    for NaN or infinity, which half precision gives when a decoder overflows.
    """
    import torch

    value = getattr(output, "frames", None)
    value = value if value is not None else getattr(output, "images", None)
    if isinstance(value, list):
        value = _from_pictures(value)
    wanted = 5 if modality == "video" else 4
    if not isinstance(value, torch.Tensor) or value.ndim != wanted or value.shape[-3] != 3:
        got = tuple(value.shape) if isinstance(value, torch.Tensor) else type(value).__name__
        raise T2XError(f"the pipeline gave {got}; {modality}s in RGB are needed")
    if not bool(torch.isfinite(value).all()):
        raise T2XError(
            f"the pipeline gave pixels that are no numbers, in {value.dtype}; try "
            'dtype="bfloat16" or dtype="float32"'
        )
    return value.detach().to("cpu", torch.float32)


def censored(output: Any) -> int:
    """Count the pictures that the pipeline's own safety checker blacked out."""
    return sum(bool(flag) for flag in getattr(output, "nsfw_content_detected", None) or [])


def gathered(media: list[Tensor]) -> Media:
    """Give N samples as one tensor (N, ..., 3, H, W), or where their sizes differ as a list of
    (1, ..., 3, H, W)."""
    import torch

    if len({item.shape for item in media}) == 1:
        return torch.stack(media)
    return [item.unsqueeze(0) for item in media]


def _from_pictures(value: list[Any]) -> Any:
    import torch

    from t2x.media import from_pil

    if not value or not isinstance(value[0], list):
        return from_pil(value)
    videos: list[Any] = [from_pil(frames) for frames in value]
    return torch.stack(videos)
