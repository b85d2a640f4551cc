"""What strangers upload: pictures and files of prompts, judged by their content and never by their
name, with limits that hold before anything is decoded.

Every refusal is one line. Names are shown and used for nothing else: no file is written under one.
"""

from __future__ import annotations

import unicodedata
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.errors import T2XError
from t2x.jobs.lines import MAX_LINE
from t2x.studio.other_tools import OtherPrompt, read_other
from t2x.studio.recipes import Recipe, read_chunks

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 64 << 20
MOST_PIXELS = 64_000_000
MOST_PROMPT_BYTES = 512 << 20
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")
_NAME = 60  # characters that are shown
_HEAD = 1 << 16
_KINDS = {  # what files that are no pictures begin with
    b"PK\x03\x04": "a zip file",
    b"PK\x05\x06": "a zip file",
    b"\x1f\x8b": "a gzip file",
    b"%PDF": "a PDF file",
    b"<svg": "an SVG drawing",
    b"<?xml": "an XML file",
    b"<!doctype html": "a web page",
    b"<html": "a web page",
    b"<script": "a web page",
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"SQLite format": "a database",
}

__all__ = ["Dropped", "check_prompts_file", "open_upload", "read_dropped", "shown_name"]


def shown_name(name: str) -> str:
    """The last part of an upload's name, short and without control characters, for messages."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    kept = "".join(c if unicodedata.category(c)[0] != "C" else "?" for c in last).strip()
    short = kept if len(kept) <= _NAME else f"{kept[: _NAME - 12]}...{kept[-9:]}"
    return short or "the file"


@dataclass(frozen=True)
class Dropped:
    """A picture that was uploaded: RGB pixels, and the recipe if it could be read. ``tool`` is
    "t2x" if it can be drawn again, another program's name if the prompt is all there is, "" without
    a recipe. ``said`` is one line about it, plain text."""

    name: str
    picture: Image
    recipe: Recipe | None
    tool: str
    said: str


def open_upload(path: str | Path, *, name: str = "") -> Image:
    """Read an uploaded picture whole; ``info`` and EXIF stay with it.

    Raises T2XError for a file that is too large, has too many pixels, is cut, or is no picture.
    """
    from PIL import Image, UnidentifiedImageError

    shown = shown_name(name or str(path))
    _check_size(Path(path), shown, MOST_BYTES, "a picture")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is less
            with Image.open(path, formats=_FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise _too_many(shown, f"{width} x {height} pixels")
                image.load()
                return image
    except UnidentifiedImageError as error:
        raise T2XError(
            f"{shown} is {_kind(Path(path))}; give a PNG, JPEG or WebP picture"
        ) from error
    except Image.DecompressionBombError as error:
        raise _too_many(shown, "far too many pixels") from error
    except T2XError:
        raise
    except Exception as error:  # decoders raise anything for a damaged file
        raise T2XError(f"{shown} is damaged or cut off; export it again") from error


def _too_many(shown: str, given: str) -> T2XError:
    most = MOST_PIXELS // 1_000_000
    return T2XError(f"{shown} has {given}; give a picture of at most {most} megapixels")


def read_dropped(path: str | Path, *, name: str = "") -> Dropped:
    """Read a picture that was dropped on the page, and its recipe; the picture is as it is stored,
    laid on white where it is transparent. Raises what ``open_upload`` does."""
    from t2x.media import from_pil, to_pil, upright

    image = open_upload(path, name=name)
    shown = shown_name(name or str(path))
    info = {str(k): str(v) for k, v in image.info.items() if isinstance(v, str)}
    try:
        recipe = read_chunks(info)
    except T2XError as error:
        recipe, tool, said = None, "", f"{error}."
    else:
        tool, said = ("t2x", _about(recipe)) if recipe is not None else ("", "")
    if recipe is None and not said:
        recipe, tool, said = _other(read_other(info, _exif(image)))
    try:
        media = from_pil([upright(image)])
    except ValueError as error:
        raise T2XError(f"{shown} can't be used: {error}") from error
    assert not isinstance(media, list)
    return Dropped(shown, to_pil(media)[0], recipe, tool, said)


def _exif(image: Image) -> Any:
    try:
        return image.getexif()
    except Exception:  # what parses EXIF raises anything
        return None


def _about(recipe: Recipe) -> str:
    """One line about a picture of ours."""
    what = {"picture": "drawn", "edit": "edited", "sheet": "compared"}[recipe.kind]
    said = f"This was {what} by {recipe.model or 'an unnamed model'} from seed {recipe.seed}"
    if other := _other_versions(recipe):
        return f"{said}, with {other}: drawn again it may differ."
    return f"{said}; its recipe is filled in."


def _other_versions(recipe: Recipe) -> str:
    """Libraries that drew it in another version than the one here."""
    if not recipe.versions:
        return ""
    from t2x.generators.identity import versions

    here = versions()
    changed = [
        f"{name} {version} (here {here[name]})"
        for name, version in recipe.versions.items()
        if name in here and here[name] != version
    ]
    return ", ".join(changed)


def _other(found: OtherPrompt | None) -> tuple[Recipe | None, str, str]:
    """What another program's picture gives, and a line about what it does not."""
    if found is None:
        said = "There is no recipe in this picture. It can be edited, or kept as it is."
        return None, "", said
    if not found.prompt:
        return None, "", f"{found.tool} drew this, and {found.problem}: no prompt could be read."
    seed = found.seed if found.seed is not None else 0
    recipe = Recipe(
        prompt=found.prompt,
        text=found.prompt,
        negative=found.negative,
        seed=seed,
        sampling=dict(found.settings),
    )
    taken = ["prompt", *(["negative prompt"] if found.negative else [])]
    taken += ["seed"] * (found.seed is not None) + ["settings"] * bool(found.settings)
    more = f"; not taken: {', '.join(found.left[:8])}" if found.left else ""
    more += f" and {len(found.left) - 8} more" if len(found.left) > 8 else ""
    said = f"{found.tool} drew this. Taken: {', '.join(taken)}{more}. Here it is another picture."
    return recipe, found.tool, said


def check_prompts_file(path: str | Path, *, name: str = "") -> None:
    """Refuse what is no file of prompts: too large, binary, UTF-16, or a table whose first line is
    longer than a line may be. Single bad lines are the job's to tell.

    Raises T2XError.
    """
    file, shown = Path(path), shown_name(name or str(path))
    _check_size(file, shown, MOST_PROMPT_BYTES, "a file of prompts")
    with file.open("rb") as opened:
        head = opened.read(_HEAD)
        opened.seek(0)
        first = opened.readline(MAX_LINE + 2)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise T2XError(f"{shown} is UTF-16; save it as UTF-8")
    kind = _known_kind(head)
    if kind and not head.lstrip()[:1] == b"<":  # a prompt may begin with <lora:...>
        raise T2XError(f"{shown} is {kind}; give prompts as JSONL, CSV or plain lines")
    if b"\0" in head:
        raise T2XError(f"{shown} is binary; give prompts as JSONL, CSV or plain lines in UTF-8")
    if len(first) > MAX_LINE and shown.lower().endswith((".csv", ".tsv")):
        raise T2XError(
            f"the first line of {shown} is longer than {MAX_LINE} bytes; a table of prompts needs "
            "a column named 'prompt'"
        )


def _check_size(path: Path, shown: str, most: int, what: str) -> None:
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise T2XError(f"{shown} did not arrive; upload it again") from error
    if not path.is_file():
        raise T2XError(f"{shown} is no file; give {what}")
    if not size:
        raise T2XError(f"{shown} is empty; give {what}")
    if size > most:
        raise T2XError(
            f"{shown} has {size / 2**20:.0f} MB; {what} may have at most {most >> 20} MB"
        )


def _kind(path: Path) -> str:
    with path.open("rb") as file:
        return _known_kind(file.read(_HEAD)) or "no picture"


def _known_kind(head: bytes) -> str:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    for start, kind in _KINDS.items():
        if text.startswith(start.lower()):
            inside = b"<svg" in text[:4096] and kind == "an XML file"
            return "an SVG drawing" if inside else kind
    return ""
