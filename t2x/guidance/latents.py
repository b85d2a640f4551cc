"""Latent spaces of pipelines: from what a scheduler sees to media and back, with gradients.

Three layers, each told by the pipeline's own parts rather than by its name, so that a pipeline
that nobody has seen yet works if its autoencoder is known:

1. *layout*: packed tokens (Flux, Qwen-Image, LTX), frames before channels (CogVideoX);
2. *scale*: scaling_factor, shift_factor, latents_mean and latents_std of the autoencoder, the
   statistics of its batch norm (FLUX.2), sigma_data of the scheduler (Sana-Sprint);
3. *autoencoder*: called as the pipeline calls it, so that its slicing, tiling and gradient
   checkpointing are used where they are switched on.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from t2x.errors import T2XError
from t2x.guidance.levels import data_scale
from t2x.guidance.sources import frames_shown

__all__ = [
    "AUTOENCODERS",
    "AutoencoderSpace",
    "LatentSpace",
    "check_decoder",
    "frozen",
    "latent_space",
]

_PICTURES = ("AutoencoderKL", "AutoencoderDC", "AutoencoderKLFlux2", "AutoencoderTiny")
_VIDEOS = (
    "AutoencoderKLCogVideoX",
    "AutoencoderKLHunyuanVideo15",
    "AutoencoderKLLTXVideo",
    "AutoencoderKLQwenImage",
    "AutoencoderKLWan",
)
AUTOENCODERS = (*_PICTURES, *_VIDEOS)


class LatentSpace(Protocol):
    """Between latents in the layout of a pipeline's scheduler and media in [0, 1].

    A pipeline of one's own may carry one as its attribute ``t2x_latent_space``.
    """

    def decode(
        self, latents: Tensor, *, frames: int | Sequence[int] | None = None, scale: float = 1.0
    ) -> Tensor:
        """(N, 3, H, W) or (N, F, 3, H, W), float32; gradients reach the latents."""

    def encode(self, media: Tensor) -> Tensor:
        """Latents (N, ...) of media, the posterior's mode."""


def latent_space(
    pipe: Any, arguments: Mapping[str, Any], *, turn: Callable[[], int] = lambda: 0
) -> LatentSpace:
    """The latent space of a call of ``pipe``.

    Args:
        pipe: its attribute ``t2x_latent_space`` comes first, then its ``vae``.
        arguments: those of ``pipe.prepare_latents`` by name; packed layouts need ``height`` and
            ``width`` in pixels, packed videos ``num_frames``, too. LTX's decoder may take the
            call's ``decode_timestep`` and ``decode_noise_scale``; 0 without, as its pipeline.
        turn: the step at hand, from 0: which frames a number of them is.

    Raises T2XError for an autoencoder or a layout that is not known.
    """
    own = getattr(pipe, "t2x_latent_space", None)
    if own is not None:
        space: LatentSpace = own
        return space
    check_decoder(pipe)
    layout = _layout(pipe, arguments)
    scale, denoising = _data_scale(pipe), _denoising(arguments)
    return AutoencoderSpace(pipe.vae, layout, data_scale=scale, denoising=denoising, turn=turn)


def check_decoder(pipe: Any) -> None:
    """Raise T2XError for a pipeline whose latents can't be decoded, and name what can."""
    if getattr(pipe, "t2x_latent_space", None) is not None:
        return
    vae = getattr(pipe, "vae", None)
    if type(vae).__name__ not in AUTOENCODERS:
        held = "no vae" if vae is None else f"a {type(vae).__name__}"
        raise T2XError(
            f"guidance can't decode the latents of {type(pipe).__name__}, which has {held}; it "
            f"knows {', '.join(AUTOENCODERS)}, and pipelines with a t2x_latent_space of their own"
        )


class AutoencoderSpace:
    """Latent space of one of diffusers' autoencoders.

    ``pack`` and ``unpack`` go between the pipeline's layout and the autoencoder's, (N, C, h, w) or
    (N, C, f, h, w); ``data_scale`` is what the scheduler multiplies latents by; ``denoising`` the
    timestep that a decoder which denoises, too, is told, and the part of noise that it gets: the
    same noise for every sample and call, where the pipeline draws one; ``turn`` the step at hand.
    """

    def __init__(
        self,
        vae: Any,
        layout: _Layout,
        *,
        data_scale: float = 1.0,
        denoising: tuple[float, float] = (0.0, 0.0),
        turn: Callable[[], int] = lambda: 0,
    ) -> None:
        self.vae = _safe(vae)
        self.pack, self.unpack = layout.pack, layout.unpack
        self.video = type(vae).__name__ in _VIDEOS
        self.still = type(vae).__name__ == "AutoencoderKLQwenImage"  # pictures of a video coder
        self.patched = hasattr(vae, "bn")  # FLUX.2 scales 2 x 2 latents as channels of one
        self._factor, self._mean = _scale(vae)
        self._factor = self._factor / data_scale
        self._denoising, self._turn = denoising, turn

    def decode(
        self, latents: Tensor, *, frames: int | Sequence[int] | None = None, scale: float = 1.0
    ) -> Tensor:
        """Media in [0, 1], float32, (N, 3, H, W) or (N, F, 3, H, W), of latents (N, ...) in the
        pipeline's layout, of any float type.

        Values beyond [0, 1] are clipped, and gradients pass straight through the clip (and through
        the one inside Wan's and Qwen-Image's decoders): a saturated pixel can still be steered.

        Args:
            frames: of a video, decode so many latent frames only, or those of these indices. A
                number of them is evenly spread, others at each step until all had their turn, of
                two or more with the first among them, as causal decoders need it. They are decoded
                as if they followed each other: each frame is about right, motion between is not.
            scale: in (0, 1]: resize latents (area) before, for media so much smaller.
        """
        z = self.unpack(latents)
        if self.video and frames is not None:
            z = z[:, :, _sampled(frames, z.shape[2], self._turn())]
        if scale != 1.0:
            z = _resized(z, scale)
        z = z * _channels(self._factor, z) + _channels(self._mean, z)
        media = self._decoded(z.to(self.vae.dtype)).float()
        media = _straight_clip((media + 1) / 2, 0.0, 1.0)
        if not self.video:
            return media
        return media[:, :, 0] if self.still else media.transpose(1, 2)

    def frames_shown(
        self, latents: Tensor, *, frames: int | Sequence[int] | None, decoded: int, count: int
    ) -> list[int]:
        """Numbers of the frames, of a video of ``count``, that the ``decoded`` frames are of, which
        ``decode(latents, frames=frames)`` gives at this step."""
        total = self.unpack(latents).shape[2]
        chosen = range(total) if frames is None else _sampled(frames, total, self._turn())
        return frames_shown(chosen, total, decoded, count)

    def encode(self, media: Tensor) -> Tensor:
        """Latents (N, ...), float32, in the pipeline's layout, of media in [0, 1]: the mode of the
        posterior, scaled. A picture (N, 3, H, W) is a video of one frame."""
        pixels = media * 2 - 1
        if self.video:
            pixels = pixels.unsqueeze(2) if media.ndim == 4 else pixels.transpose(1, 2)
        with frozen(self.vae):
            found = self.vae.encode(pixels.to(self.vae.dtype))
        z = _mode(found).float()
        z = torch.nn.functional.pixel_unshuffle(z, 2) if self.patched else z
        return self.pack((z - _channels(self._mean, z)) / _channels(self._factor, z))

    def _decoded(self, z: Tensor) -> Tensor:
        z = torch.nn.functional.pixel_shuffle(z, 2) if self.patched else z
        channels = self._channels
        if channels is not None and z.shape[1] != channels:
            raise T2XError(
                f"latents of {z.shape[1]} channels don't fit {type(self.vae).__name__}, which has "
                f"{channels}; give the pipeline a t2x_latent_space of its own"
            )
        given: tuple[Tensor, ...] = (z,)
        if getattr(self.vae.config, "timestep_conditioning", False):  # LTX 0.9.1
            timestep, part = self._denoising
            if part:
                noise = torch.randn(z[:1].shape, generator=torch.Generator().manual_seed(0))
                z = (1 - part) * z + part * noise.to(z)
            given = (z, torch.full((len(z),), timestep, device=z.device, dtype=z.dtype))
        with _frozen_unless_recomputed(self.vae), _StraightThrough(), _quiet(self.vae, z.device):
            media: Tensor = self.vae.decode(*given, return_dict=False)[0]
        return media

    @property
    def _channels(self) -> int | None:
        config = self.vae.config
        found = getattr(config, "latent_channels", None) or getattr(config, "z_dim", None)
        return None if found is None else int(found)


# ---- scale -----------------------------------------------------------------------------------


def _scale(vae: Any) -> tuple[Tensor, Tensor]:
    """(factor, mean), each (C,) or (1,): z of the autoencoder is factor * latent + mean."""
    config = vae.config
    if hasattr(vae, "bn"):
        deviation = torch.sqrt(vae.bn.running_var.float() + config.batch_norm_eps)
        mean: Tensor = vae.bn.running_mean.float()
        return deviation, mean
    factor = torch.tensor([1.0 / (getattr(config, "scaling_factor", None) or 1.0)])
    mean = torch.tensor([float(getattr(config, "shift_factor", None) or 0.0)])
    found = [_statistic(vae, name) for name in ("latents_mean", "latents_std")]
    if found[0] is not None and found[1] is not None:
        mean, factor = found[0], factor * found[1]
    return factor, mean


def _data_scale(pipe: Any) -> float:
    scheduler = getattr(pipe, "scheduler", None)
    return 1.0 if scheduler is None else data_scale(scheduler)


def _denoising(arguments: Mapping[str, Any]) -> tuple[float, float]:
    """(timestep, part of noise) of LTX's decoder: the second is the first without."""
    timestep, part = (arguments.get(f"decode_{key}") for key in ("timestep", "noise_scale"))
    for value in (timestep, part):
        if isinstance(value, (list, tuple)):
            raise T2XError("decode_timestep and decode_noise_scale are one number under guidance")
    timestep = float(timestep or 0.0)
    return timestep, timestep if part is None else float(part)


def _statistic(vae: Any, name: str) -> Tensor | None:
    """Per channel, of the configuration (Wan, Qwen-Image, some of SDXL's), or a buffer (LTX)."""
    value = getattr(vae.config, name, None)
    if value is None:
        value = dict(vae.named_buffers()).get(name)
    return None if value is None else torch.as_tensor(value, dtype=torch.float32).flatten()


def _channels(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like).view(1, -1, *[1] * (like.ndim - 2))


# ---- layout ----------------------------------------------------------------------------------


class _Layout(Protocol):
    def unpack(self, latents: Tensor) -> Tensor: ...

    def pack(self, z: Tensor) -> Tensor: ...


class _Plain:
    def unpack(self, latents: Tensor) -> Tensor:
        return latents

    def pack(self, z: Tensor) -> Tensor:
        return z


class _FramesFirst:
    """CogVideoX: (N, f, C, h, w), with ``padding`` frames ahead that the pipeline drops."""

    def __init__(self, padding: int) -> None:
        self.padding = padding

    def unpack(self, latents: Tensor) -> Tensor:
        return latents[:, self.padding :].transpose(1, 2)

    def pack(self, z: Tensor) -> Tensor:
        latents = z.transpose(1, 2)
        return torch.cat([latents[:, :1]] * self.padding + [latents], dim=1)


class _Squares:
    """Flux, Qwen-Image: 2 x 2 patches as tokens (N, h/2 w/2, 4 C)."""

    def __init__(self, height: int, width: int, video: bool) -> None:
        self.height, self.width, self.video = height, width, video

    def unpack(self, latents: Tensor) -> Tensor:
        n, _, depth = latents.shape
        z = latents.reshape(n, self.height // 2, self.width // 2, depth // 4, 2, 2)
        z = z.permute(0, 3, 1, 4, 2, 5).reshape(n, depth // 4, self.height, self.width)
        return z.unsqueeze(2) if self.video else z

    def pack(self, z: Tensor) -> Tensor:
        z = z.squeeze(2) if self.video else z
        n, channels = z.shape[:2]
        z = z.reshape(n, channels, self.height // 2, 2, self.width // 2, 2)
        return z.permute(0, 2, 4, 1, 3, 5).reshape(n, -1, 4 * channels)


class _Rows:
    """FLUX.2: each place a token (N, h w, C), row by row."""

    def __init__(self, height: int, width: int) -> None:
        self.height, self.width = height, width

    def unpack(self, latents: Tensor) -> Tensor:
        return latents.transpose(1, 2).reshape(len(latents), -1, self.height, self.width)

    def pack(self, z: Tensor) -> Tensor:
        return z.flatten(2).transpose(1, 2)


class _Boxes:
    """LTX: patches of p_t frames and p x p latents as tokens (N, S, C p_t p p)."""

    def __init__(self, sizes: tuple[int, int, int], patches: tuple[int, int, int]) -> None:
        self.sizes, self.patches = sizes, patches

    def unpack(self, latents: Tensor) -> Tensor:
        grid = [size // patch for size, patch in zip(self.sizes, self.patches, strict=True)]
        z = latents.reshape(len(latents), *grid, -1, *self.patches)
        return z.permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(len(z), -1, *self.sizes)

    def pack(self, z: Tensor) -> Tensor:
        split = [
            part
            for size, patch in zip(self.sizes, self.patches, strict=True)
            for part in (size // patch, patch)
        ]
        z = z.reshape(*z.shape[:2], *split)
        return z.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4).flatten(1, 3)


def _layout(pipe: Any, arguments: Mapping[str, Any]) -> _Layout:
    kind = type(pipe.vae).__name__
    if kind == "AutoencoderKLCogVideoX":
        return _FramesFirst(_padding(pipe, arguments))
    patched = kind == "AutoencoderKLFlux2"
    if not patched and not hasattr(pipe, "_unpack_latents"):
        return _Plain()
    height, width = (_needed(pipe, arguments, name) for name in ("height", "width"))
    if patched:
        side = 2 * pipe.vae_scale_factor
        return _Rows(height // side, width // side)
    if kind == "AutoencoderKLLTXVideo":
        frames = _needed(pipe, arguments, "num_frames")
        sizes = (
            (frames - 1) // pipe.vae_temporal_compression_ratio + 1,
            height // pipe.vae_spatial_compression_ratio,
            width // pipe.vae_spatial_compression_ratio,
        )
        patch = pipe.transformer_spatial_patch_size
        return _Boxes(sizes, (pipe.transformer_temporal_patch_size, patch, patch))
    side = 2 * pipe.vae_scale_factor
    return _Squares(2 * (height // side), 2 * (width // side), kind in _VIDEOS)


def _needed(pipe: Any, arguments: Mapping[str, Any], name: str) -> int:
    value = arguments.get(name)
    if value is None:
        raise T2XError(
            f"the packed latents of {type(pipe).__name__} can't be unpacked without {name}, which "
            "its prepare_latents was not given; give the pipeline a t2x_latent_space of its own"
        )
    return int(value)


def _padding(pipe: Any, arguments: Mapping[str, Any]) -> int:
    """Latent frames that CogVideoX 1.5 puts ahead. ``prepare_latents`` is told a number of frames
    with them; what was asked for is taken to be 16 k + 1, as the models are made for, which needs
    one."""
    patch = pipe.transformer.config.patch_size_t
    if patch is None:
        return 0
    latent = (_needed(pipe, arguments, "num_frames") - 1) // pipe.vae_scale_factor_temporal + 1
    return int(patch) - 1 if latent > 1 else 0


# ---- autoencoder -----------------------------------------------------------------------------


def _safe(vae: Any) -> Any:
    """The autoencoder, or a copy in float32 of one whose activations overflow float16 (SDXL's)."""
    if vae.dtype == torch.float16 and getattr(vae.config, "force_upcast", False):
        return copy.deepcopy(vae).float()
    return vae


@contextmanager
def frozen(module: torch.nn.Module) -> Iterator[None]:
    """No gradients for a module's parameters meanwhile."""
    asked = [p for p in module.parameters() if p.requires_grad]
    for parameter in asked:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in asked:
            parameter.requires_grad_(True)


def _frozen_unless_recomputed(vae: Any) -> AbstractContextManager[None]:
    """Gradient checkpointing runs the decoder again in the backward pass, and wants to find what
    the forward pass saw. (Not for the whole call: frozen convolutions differ in their last bits on
    CPUs, and the pipeline's own decoding must not.)"""
    return nullcontext() if vae.is_gradient_checkpointing else frozen(vae)


def _mode(found: Any) -> Tensor:
    """Of a posterior, or what an autoencoder without one gives (DC-AE, Tiny)."""
    if hasattr(found, "latent_dist"):
        mode: Tensor = found.latent_dist.mode()
        return mode
    latents: Tensor = found.latent if hasattr(found, "latent") else found.latents
    return latents


def _sampled(frames: int | Sequence[int], total: int, turn: int = 0) -> list[int]:
    """Indices of latent frames; of a number of them those of a ``turn``."""
    if not isinstance(frames, int):
        chosen = list(frames)
        if not chosen or not all(0 <= index < total for index in chosen):
            raise T2XError(f"latent frames {chosen} of a video of {total}; give 0 to {total - 1}")
        return chosen
    if frames < 1:
        raise T2XError(f"{frames} latent frames; give 1 or more, or None for all")
    if frames >= total:
        return list(range(total))
    if frames == 1:
        return [_place_at(turn, total)]
    others, rest = frames - 1, total - 1
    offset = _place_at(turn, math.ceil(rest / others))
    return [0, *sorted(rest - (offset + i * rest // others) % rest for i in range(others))]


def _place_at(turn: int, places: int) -> int:
    """Each of ``places`` once in as many turns, far from the one before. Shifted by one from round
    to round, so that every second turn, say, reaches all of them as well."""
    stride = round(0.618 * places)
    while math.gcd(stride, places) != 1:
        stride += 1
    return (turn * stride + turn // places) % places


def _resized(z: Tensor, scale: float) -> Tensor:
    if not 0 < scale <= 1:
        raise T2XError(f"latents can be decoded at a scale in (0, 1], not {scale}")
    sizes = [max(1, round(size * scale)) for size in z.shape[-2:]]
    flat = z.transpose(1, 2).flatten(0, 1) if z.ndim == 5 else z
    flat = torch.nn.functional.interpolate(flat, size=sizes, mode="area")
    return flat if z.ndim == 4 else flat.unflatten(0, (len(z), -1)).transpose(1, 2)


def _straight_clip(value: Tensor, low: float, high: float) -> Tensor:
    """Clip in the forward pass, the identity in the backward pass."""
    return value + (value.detach().clip(low, high) - value.detach())


class _StraightThrough(TorchFunctionMode):
    """Meanwhile, gradients pass ``torch.clamp(x, -1, 1)`` as if it weren't there.

    Wan's and Qwen-Image's decoders end in it, which would leave saturated pixels without gradient;
    there is no switch. The forward pass is the same, and nothing is changed on the classes.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.clamp and (kwargs.get("min"), kwargs.get("max")) == (-1.0, 1.0):
            return _straight_clip(args[0], -1.0, 1.0)
        return func(*args, **kwargs)


@contextmanager
def _quiet(vae: Any, device: torch.device) -> Iterator[None]:
    """LTX 0.9.1's decoder draws noise from torch's own stream: the same each time, and the
    caller's stream is left alone."""
    if not any(getattr(vae.config, "decoder_inject_noise", None) or ()):
        yield
        return
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(0)
        yield
