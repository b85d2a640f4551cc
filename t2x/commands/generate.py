"""``t2x generate``: pictures from prompts, with or without a rewrite before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t2x.commands.console import check_prompts, parse_size, print_json, print_table, progress
from t2x.errors import T2XError
from t2x.files import made_folder

if TYPE_CHECKING:
    from torch import Tensor

    from t2x.types import Generator

BATCH = 16  # pictures between two savings, for generators that have no batch size of their own
_NUMBERED = re.compile(r"(\d{4,})-seed")

__all__ = ["generate"]


def generate(
    prompts: Annotated[list[str], typer.Argument(help="What you want to see.")],
    out: Annotated[
        Path, typer.Option(help="Folder for the pictures; those that are there stay.")
    ] = Path("out"),
    model: Annotated[
        str, typer.Option("--model", help="A name from `t2x list`, a folder, or a hub id.")
    ] = "emoji-flow",
    rewriter: Annotated[
        str, typer.Option("--rewriter", help="Rewrite first, with this rewriter.")
    ] = "none",
    num: Annotated[int, typer.Option("--num", "-n", min=1, help="Pictures per prompt.")] = 1,
    seed: Annotated[
        int, typer.Option(help="Seed of the first picture; the next has seed + 1.")
    ] = 0,
    size: Annotated[str | None, typer.Option(help="HEIGHTxWIDTH in pixels.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Sampling steps.")] = None,
    guidance: Annotated[float | None, typer.Option(help="Guidance scale.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Generate pictures and save them as PNG; each file holds its prompt and seed as text.

    Pictures are saved as they are drawn, and numbered on from those that the folder holds.
    """
    check_prompts(prompts)
    pixels = None if size is None else parse_size(size)
    folder = made_folder(out)
    texts = (
        [(text, text, "") for text in prompts]
        if rewriter == "none"
        else _rewrite(prompts, rewriter, model, seed)
    )
    jobs = [(*text, seed + i) for text in texts for i in range(num)]
    from t2x.registry import load_generator

    options: dict[str, Any] = {"num_inference_steps": steps, "guidance_scale": guidance}
    given = {key: value for key, value in options.items() if value is not None}
    generator = load_generator(model, **given)
    from t2x.generators.negatives import usable_negatives

    negatives = usable_negatives(generator, [job[2] for job in jobs]) or [""] * len(jobs)
    rows: list[dict[str, Any]] = [
        {
            "prompt": prompt,
            "text": text,
            "negative": negative,
            "seed": number,
            "model": generator.model_id,
        }
        for (prompt, text, _, number), negative in zip(jobs, negatives, strict=True)
    ]
    with progress() as show:
        for done in _draw(generator, rows, folder, pixels):
            show(f"drawing with {generator.model_id}", done, len(rows))
    if as_json:
        print_json(rows)
    else:
        print_table(
            "",
            ("prompt", "text", "seed", "file"),
            [(row["prompt"], row["text"], row["seed"], row["file"]) for row in rows],
        )


def _rewrite(prompts: list[str], name: str, model: str, seed: int) -> list[tuple[str, str, str]]:
    """Rewrite within the token limits of what will draw."""
    from t2x.rewriters.loading import load_guarded

    answers = load_guarded(name, generator=model).rewrite(prompts, seed=seed)
    return [(item.original, item.text, item.negative) for (item,) in answers]


def _next_number(folder: Path) -> int:
    """The first number that no picture in the folder has."""
    found = (_NUMBERED.match(path.name) for path in folder.iterdir())
    return 1 + max((int(match[1]) for match in found if match), default=-1)


def _draw(
    generator: Generator,
    rows: list[dict[str, Any]],
    folder: Path,
    size: tuple[int, int] | None,
) -> Iterator[int]:
    """Draw and save batch by batch, so that what ends a run costs one batch; add to each row its
    "file", and give how many are done."""
    done, number = 0, _next_number(folder)
    while done < len(rows):
        batch = rows[done : done + getattr(generator, "batch_size", BATCH)]
        negatives = [row["negative"] for row in batch]
        media = generator.generate(
            [row["text"] for row in batch],
            negative=negatives if any(negatives) else None,
            seeds=[row["seed"] for row in batch],
            size=size,
        )
        for row, picture in zip(batch, media, strict=True):
            number = _save(picture, row, folder, number) + 1
        done += len(batch)
        yield done


def _save(picture: Tensor, row: dict[str, Any], folder: Path, number: int) -> int:
    """Save a picture, or a video frame by frame, under the first free number; give that number."""
    frames = picture if picture.ndim == 4 else picture.unsqueeze(0)
    text = {key: str(row[key]) for key in ("prompt", "text", "negative", "seed", "model")}
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
