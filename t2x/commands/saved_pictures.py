"""Pictures of ``t2x generate`` as files: numbered, whole or not there, their recipe inside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2x.commands.console import plain
from t2x.errors import T2XError

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.guidance.trace import SampleTrace

_NUMBERED = re.compile(r"(\d{4,})-seed")

__all__ = ["next_number", "save_picture", "save_strip"]


def next_number(folder: Path) -> int:
    """The first number that no picture in the folder has."""
    found = (_NUMBERED.match(path.name) for path in folder.iterdir())
    return 1 + max((int(match[1]) for match in found if match), default=-1)


def save_strip(picture: Tensor, row: dict[str, Any], trace: SampleTrace) -> str:
    """Draw the strip beside the picture; of a video with its middle frame."""
    from t2x.evaluation.strip import draw_strip

    frame = picture if picture.ndim == 3 else picture[len(picture) // 2]
    asked = row["guidance"]
    weights = ", ".join(f"{name} {value:g}" for name, value in asked["config"]["rewards"].items())
    about = f"{row['model']}, seed {row['seed']}, mode {asked['mode']}, weights: {weights}"
    if row["text"] != row["prompt"]:
        about += f"; drawn: {row['text']}"
    path = str(row["file"]).removesuffix(".png") + "-strip.png"
    sheet = draw_strip(trace, result=frame, title=row["prompt"], subtitle=about)
    try:
        sheet.save(path, format="PNG")
    except OSError as error:
        raise T2XError(f"cannot write {path!r}: {error}") from error
    return path


def save_picture(picture: Tensor, row: dict[str, Any], folder: Path, number: int) -> int:
    """Save a picture, or a video frame by frame, under the first free number; give that number."""
    from t2x.studio.recipes import Recipe, chunks

    frames = picture if picture.ndim == 4 else picture.unsqueeze(0)
    text = chunks(Recipe.from_record(plain(row)))
    endings = [""] if len(frames) == 1 else [f"-frame{i:03d}" for i in range(len(frames))]
    try:
        number = _claim(folder, number, f"-seed{row['seed']}{endings[0]}.png")
        stem = f"{number:04d}-seed{row['seed']}"
        row["file"] = str(folder / f"{stem}.png")
        for frame, ending in zip(frames, endings, strict=True):
            _save_whole(frame, folder / f"{stem}{ending}.png", text)
    except OSError as error:
        raise T2XError(f"cannot write a picture into {str(folder)!r}: {error}") from error
    return number


def _claim(folder: Path, number: int, ending: str) -> int:
    """Count on to a number whose name no other process has taken since the folder was read, and
    take it."""
    while True:
        try:
            (folder / f"{number:04d}{ending}").open("xb").close()
        except FileExistsError:
            number += 1
        else:
            return number


def _save_whole(picture: Tensor, path: Path, text: dict[str, str]) -> None:
    """Leave no part of a picture, nor the empty file that held its name."""
    from t2x.media import save_png

    try:
        save_png(picture, path, text=text)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
