"""The only place where tensors become files or PIL pictures, and back.

Media are float32 in [0, 1]: pictures (N, 3, H, W), videos (N, F, 3, H, W), pictures of several
sizes a list of (1, 3, H, W). Files hold 8 bits per channel, so whatever is stored or scored goes
through ``quantize``. What only reads or writes files without tensors needs no torch.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from t2x.errors import T2XError
from t2x.registry import missing_dependency

if TYPE_CHECKING:
    import torch

    from t2x.types import Media

__all__ = [
    "PICTURE_SUFFIXES",
    "VIDEO_SUFFIXES",
    "from_pil",
    "load_media",
    "load_picture",
    "png_info",
    "png_text",
    "quantize",
    "save_png",
    "save_video",
    "spaced",
    "to_pil",
    "upright",
]

log = logging.getLogger(__name__)

PICTURE_SUFFIXES = tuple(
    f".{kind}"
    for kind in ["png", "apng", "jpg", "jpeg", "webp", "gif", "avif", "bmp", "tif", "tiff"]
)
VIDEO_SUFFIXES = (".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi")  # read by PyAV


def quantize(media: Media) -> Media:
    """Round media to 8 bits: float32 k / 255, the values that a PNG file would give back.

    Values outside [0, 1] are clipped. No gradient passes. Raises ``ValueError`` for NaN or
    infinity.
    """
    if isinstance(media, list):
        return [_from_bytes(_to_bytes(picture)) for picture in media]
    return _from_bytes(_to_bytes(media))


def to_pil(media: Media) -> list[Image.Image]:
    """Give one RGB picture per sample; of videos (N, F, 3, H, W), N * F frames in order."""
    if isinstance(media, list):
        return [picture for item in media for picture in to_pil(item)]
    if media.ndim not in (4, 5) or media.shape[-3] != 3:
        raise ValueError(
            f"media must be (N, 3, H, W) or (N, F, 3, H, W), got shape {tuple(media.shape)}"
        )
    frames = _to_bytes(media).flatten(0, -4).permute(0, 2, 3, 1).cpu().numpy()
    return [Image.fromarray(np.ascontiguousarray(frame)) for frame in frames]


def from_pil(images: Sequence[Image.Image]) -> Media:
    """Give (N, 3, H, W) float32 in [0, 1], or a list of (1, 3, H, W) if the sizes differ.

    Palettes, grey, CMYK and 16 bits become 8-bit RGB; transparent pictures are laid on white.
    """
    import torch

    if not images:
        raise ValueError("from_pil needs at least one picture, got none")
    pictures = [_from_bytes(_rgb_bytes(image)) for image in images]
    if len({picture.shape for picture in pictures}) == 1:
        return torch.cat(pictures)
    return pictures


def load_picture(path: str | Path) -> torch.Tensor:
    """Read a picture file as (1, 3, H, W) float32 in [0, 1], turned as its EXIF orientation says.

    Raises ``T2XError`` for a file that is missing, unreadable or no picture.
    """
    with _readable(Path(path)), Image.open(path) as image:
        image.load()
        return _from_bytes(_rgb_bytes(upright(image)))


def load_media(path: str | Path, *, max_frames: int = 64) -> torch.Tensor:
    """Read a picture as (1, 3, H, W), an animated GIF, PNG, WebP or AVIF, or a video file, as
    (1, F, 3, H, W): float32 in [0, 1].

    Of more than ``max_frames`` frames so many are kept, evenly spaced, the first and the last among
    them. Video files need PyAV: ``MissingDependencyError`` without. Raises ``T2XError`` for a file
    that is missing, unreadable or neither.
    """
    import torch

    path = Path(path)
    if path.suffix.lower() in VIDEO_SUFFIXES:
        with _readable(path):
            return _from_bytes(_decode_video(path, max_frames)).unsqueeze(0)
    with _readable(path), Image.open(path) as image:
        count = int(getattr(image, "n_frames", 1))
        if count == 1 or image.format not in ("GIF", "PNG", "WEBP", "AVIF"):
            image.load()
            return _from_bytes(_rgb_bytes(upright(image)))
        frames = []
        for number in spaced(count, max_frames):
            image.seek(number)
            frames.append(_rgb_bytes(image.copy()))
        return _from_bytes(torch.cat(frames)).unsqueeze(0)


def spaced(count: int, wanted: int | None) -> list[int]:
    """Numbers of ``wanted`` of ``count`` frames, evenly spaced, with the first and the last; all if
    None, the middle one for 1."""
    if wanted is None or count <= wanted:
        return list(range(count))
    if wanted == 1:
        return [count // 2]
    return [round(i * (count - 1) / (wanted - 1)) for i in range(wanted)]


def _decode_video(path: Path, max_frames: int) -> torch.Tensor:
    """Frames of a video file, (F, 3, H, W) bytes: one pass to count them, one to keep some."""
    import torch

    try:
        import av
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
    frames = []
    try:
        with av.open(str(path)) as video:
            if not video.streams.video:
                raise ValueError("it holds no pictures")
            count = sum(1 for _ in video.decode(video=0))
        kept = set(spaced(count, max_frames))
        with av.open(str(path)) as video:
            for number, frame in enumerate(video.decode(video=0)):
                if number in kept:
                    frames.append(torch.from_numpy(frame.to_ndarray(format="rgb24")))
    except av.FFmpegError as error:
        raise ValueError(str(error)) from error
    if not frames:
        raise ValueError("it holds no frame")
    return torch.stack(frames).permute(0, 3, 1, 2).contiguous()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what decoders raise into an error that names the file."""
    if not path.exists():
        raise T2XError(f"there is no file {str(path)!r}; give the path of a picture")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            yield
    except T2XError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise T2XError(f"{str(path)!r} has too many pixels to be read safely: {error}") from error
    except UnidentifiedImageError as error:
        raise T2XError(f"{str(path)!r} is no picture; give a PNG, JPEG or WebP file") from error
    except Exception as error:  # decoders raise anything for a damaged file, MemoryError too
        reason = str(error) or type(error).__name__
        raise T2XError(f"cannot read {str(path)!r} as a picture: {reason}") from error


def upright(image: Image.Image) -> Image.Image:
    """The picture as its EXIF orientation says; as it is stored if the EXIF block is damaged."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception as error:  # the pixels were read; what parses EXIF raises anything
        log.warning("the EXIF block of a picture is damaged, it is not turned: %r", error)
        return image


def save_png(
    picture: torch.Tensor, path: str | Path, *, text: Mapping[str, str] | None = None
) -> None:
    """Write one picture, (3, H, W) or (1, 3, H, W) in [0, 1], with optional text chunks."""
    if picture.ndim == 3:
        picture = picture.unsqueeze(0)
    if picture.ndim != 4 or len(picture) != 1:
        raise ValueError(f"save_png takes one picture (3, H, W), got shape {tuple(picture.shape)}")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    to_pil(picture)[0].save(path, format="PNG", pnginfo=png_info(text or {}))


def png_info(text: Mapping[str, str]) -> PngInfo:
    """Text chunks as Pillow's ``save(..., pnginfo=)`` takes them; half surrogate pairs become
    question marks."""
    chunks = PngInfo()
    for key, value in text.items():
        chunks.add_itxt(key, value.encode("utf-8", "replace").decode("utf-8"))
    return chunks


def save_video(video: torch.Tensor, path: str | Path, *, fps: int = 8) -> None:
    """Write one video, (F, 3, H, W) or (1, F, 3, H, W) in [0, 1], as H.264 in an MP4 file, at
    x264's own quality; sides must be even. Needs the extra ``video``.
    """
    video = video[0] if video.ndim == 5 and len(video) == 1 else video
    if video.ndim != 4 or video.shape[1] != 3 or not len(video):
        raise ValueError(f"save_video takes one video (F, 3, H, W), got shape {tuple(video.shape)}")
    height, width = video.shape[-2:]
    if height % 2 or width % 2 or fps < 1:
        raise T2XError(
            f"an MP4 file needs even sides and 1 frame a second or more, got {height}x{width} "
            f"pixels at {fps}; draw another size"
        )
    try:
        import av
    except ModuleNotFoundError as error:
        raise missing_dependency(error) from error
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w", format="mp4") as file:
        stream = file.add_stream("libx264", rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for picture in to_pil(video):
            file.mux(stream.encode(av.VideoFrame.from_image(picture)))
        file.mux(stream.encode())


def png_text(path: str | Path) -> dict[str, str]:
    """Give the text chunks of a picture file, empty where it has none or can't be read."""
    try:
        with _readable(Path(path)), Image.open(path) as image:
            return {str(k): v for k, v in image.info.items() if isinstance(v, str)}
    except T2XError:  # whoever needs the pixels says what is wrong
        return {}


def _to_bytes(picture: torch.Tensor) -> torch.Tensor:
    import torch

    values = picture.detach().float()
    if not bool(torch.isfinite(values).all()):
        raise ValueError("media hold NaN or infinity; they must be finite and in [0, 1]")
    return values.clamp(0, 1).mul(255).round().to(torch.uint8)


def _from_bytes(pixels: torch.Tensor) -> torch.Tensor:
    return pixels.float().div(255)


def _rgb_bytes(image: Image.Image) -> torch.Tensor:
    """Turn a picture of any mode into (1, 3, H, W) uint8."""
    import torch

    if image.mode.startswith("I"):  # 16-bit grey; "I" is what some decoders make of it
        grey: np.ndarray[Any, Any] = np.asarray(image).astype(np.float64) / 257
        image = Image.fromarray(grey.round().clip(0, 255).astype(np.uint8))
    elif image.mode == "F":
        raise ValueError("floating-point pictures have no fixed range; save it with 8 or 16 bits")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    pixels = torch.from_numpy(np.array(image.convert("RGB")))
    return pixels.permute(2, 0, 1).unsqueeze(0).contiguous()
